// The page's direct line to its runs (server: ui/serving/page_routes.py). Runs once, before anything is clicked.

() => {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const page = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const root = window.gradio_config?.root || "";
  // A browser keeps few connections to a server: the newest number of a run stands for those before it.
  const unsaid = new Map();

  const post = (what, body, options = { keepalive: true }) =>
    fetch(`${root}/medusa/${what}`, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, ...options });

  async function confirm(run, number) {
    const talking = unsaid.has(run);
    unsaid.set(run, number);
    if (talking) return;
    for (let said = 0; said < unsaid.get(run); ) {
      said = unsaid.get(run);
      await post("drawn", { key: run, number: said }).catch(() => {});
    }
    unsaid.delete(run);
  }

  // What the server keeps of this page's run; an error's words are for the reader.
  async function ofRun(what, body, signal) {
    const answer = await post(what, body, { signal }).catch(() => null);
    if (!answer?.ok) throw new Error(answer?.status === 410 ? (await answer.json()).words : "");
    return answer;
  }

  const underWay = new Set(); // tabs whose run was asked for and has not ended
  const runOf = (name) => document.getElementById(`${name}-run`);

  window.medusaChannel = {
    steps: async (key, window, signal) => (await ofRun("steps", { key, window }, signal)).json(),
    trace: async (key) => (await ofRun("trace", { key })).blob(),
    begin: (name) => {
      underWay.add(name);
      runOf(name)?.setAttribute("aria-disabled", "true");
      for (const box of document.querySelectorAll("[data-too-long]")) delete box.dataset.tooLong; // from now on the run says so
      return `${page}-${name}`;
    },
    over: (name) => {
      underWay.delete(name);
      document.getElementById(`${name}-stop`)?.removeAttribute("aria-busy");
      runOf(name)?.removeAttribute("aria-disabled");
    },
    stop: (name) => post("stop", { key: `${page}-${name}` }).catch(() => {}),
    drawn: confirm,
  };
  // A tab has one run at a time, and gradio drops a second one silently: the next message waits in its box.
  const waits = (event, name) => {
    if (!underWay.has(name)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  // In the capturing phase of the click, before the page's framework handles it.
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[id$='-run'], [id$='-stop']");
    if (!button) return;
    const [, name, act] = /^(.*)-(run|stop)$/.exec(button.id);
    if (act === "run") return waits(event, name);
    if (underWay.has(name)) button.setAttribute("aria-busy", "true"); // at once, whatever the run is doing
    window.medusaChannel.stop(name);
  }, true);
  document.addEventListener("keydown", (event) => {
    const box = event.key === "Enter" && event.target.closest?.("#chat-message, [id$='-prompt']");
    if (box && event.shiftKey !== (box.id === "chat-message")) waits(event, box.id.split("-")[0]);
  }, true);
}
