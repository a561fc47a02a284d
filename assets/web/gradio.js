// The one file that knows gradio: `element`, `props` and `watch` are given to js_on_load.

const decodeView = mountDecodeView(element.querySelector(".mdv-host"), DECODE_VIEW_STYLE);
watch("value", () => decodeView.receive(props.value));
decodeView.receive(props.value);
