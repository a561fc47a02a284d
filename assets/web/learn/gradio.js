// Mounts the tour; `element` and `props` are given to js_on_load.

const learnHost = element.querySelector(".learn-host");
learnHost.learn = mountLearn(learnHost, JSON.parse(props.value));
learnHost.addEventListener("ask", () => trigger("ask"));
watch("value", () => learnHost.learn?.renew(JSON.parse(props.value).records));
