// The one file that knows gradio and the page around the view: `element`, `props`, `watch` and `trigger` are given
// to js_on_load.

const decodeHost = element.querySelector(".mdv-host");
const writeNotes = noteWriter(element);
decodeHost.addEventListener("notes", ({ detail }) => writeNotes(detail));
decodeHost.addEventListener("restore", ({ detail }) => {
  decodeHost.dataset.restored = JSON.stringify(detail); // gradio passes no event data to a script
  trigger("undo");
});
// The controls hold what the reader tried out, so the button that starts a run starts it with these settings.
decodeHost.addEventListener("again", () => document.getElementById("decode-run")?.click());
// A slider of thousands is dragged in round numbers, as a pixel is dozens of tokens; its keys and its box are exact.
const desk = element.closest(".desk");
const rangeOf = ({ target }) => (target.matches(".setting-max_new_tokens input[type=range]") && Number(target.max) > 1000 ? target : null);
let dragged = null;
desk.addEventListener("pointerdown", (event) => { dragged = rangeOf(event); }, true);
desk.addEventListener("keydown", () => { dragged = null; }, true);
desk.addEventListener("input", (event) => {
  const range = rangeOf(event);
  if (!range || range !== dragged) return;
  const value = Number(range.value);
  const unit = value < 1000 ? 50 : 100;
  range.value = Math.max(Number(range.min), Math.round(value / unit) * unit); // before gradio reads it
}, true);
decodeHost.addEventListener("begin", () => trigger("play"));
const decodeView = mountDecodeView(decodeHost, DECODE_VIEW_STYLE, { whole: true });

// What the menu "Share" gets from the server and the page's address (server: ui/tabs/shown_runs.py).
const LINK = "#run=";
const MOST_LINK_CHARACTERS = 11_900; // as in ui/records/outside.py, less what surrounds the parts
const decodeShare = mountShare(decodeView, {
  shell: async () => (await fetch(`${window.gradio_config?.root || ""}/medusa/replay`)).text(), // an error's text has no place for a run
  linkTo: (state) => {
    const parts = linkParts(state, LINK_DEFAULTS);
    if (JSON.stringify(parts).length > MOST_LINK_CHARACTERS) throw new Error(say`the prompt is too long for a link`);
    // Without the query: on a Space it may hold one of the visitor's access tokens.
    return `${location.origin}${location.pathname}${LINK}${new URLSearchParams(parts)}`;
  },
  open: (text) => {
    decodeHost.openedTrace = text;
    trigger("upload");
  },
});
let wantedStep = null; // step of the run that a link asks for, once the run has been made
function applyLink() {
  const step = Number(new URLSearchParams(location.hash.slice(LINK.length)).get("step"));
  wantedStep = step > 1 ? step - 1 : null;
  trigger("apply");
}
decodeHost.addEventListener("linked", applyLink);
window.addEventListener("hashchange", () => location.hash.startsWith(LINK) && decodeHost.isConnected && applyLink());
decodeHost.addEventListener("ended", () => {
  if (wantedStep !== null) decodeView.store.goto(wantedStep);
  wantedStep = null;
});

const REFUSED = '{"kind": "refused"';
function receiveValue() {
  const text = props.value || "";
  if (text.startsWith(REFUSED)) decodeShare.say(LANGUAGE.tell(JSON.parse(text).words));
  else decodeView.receive(text);
  if (!text.startsWith('{"kind":"trace"')) return;
  decodeShare.say("");
  decodeShare.close();
}
watch("value", receiveValue);
receiveValue();
mountOpening(decodeView, { hash: location.hash });
