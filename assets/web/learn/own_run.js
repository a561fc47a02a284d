// The tour on a run other than the recorded one. Watch runs the reader's prompt, with a tree that branches, and its
// view hands the finished run over. Without a Watch tab, as on a separate page, this part stays away.

const decodeHostOfPage = () => document.querySelector("#decode-view .mdv-host");
const decodePrompt = () => document.querySelector("#decode-prompt textarea");

function makeOwnRun({ onRun, onRecorded }) {
  const field = html("textarea", { rows: 2, maxlength: 2000, class: "learn-prompt" });
  const run = html("button", { type: "button", class: "learn-primary", onclick: start });
  const use = html("button", { type: "button", class: "learn-plain", onclick: () => take(runOfDecode(), nameInDecode()) });
  const back = html("button", { type: "button", class: "learn-plain", hidden: true, onclick: onRecorded });
  const title = html("h3", {});
  const hint = html("p", {});
  const said = html("p", { class: "learn-said", role: "status", "aria-live": "polite" });
  const box = html("section", { class: "learn-yours" }, title, hint, field, html("div", { class: "learn-buttons" }, run, use, back), said);
  let words = null;
  let waiting = null; // for a run that was started here

  function draw(newWords, isOwn) {
    words = newWords;
    title.textContent = words.yours;
    hint.textContent = words.yours_hint;
    [run.textContent, use.textContent, back.textContent] = [words.run, words.use, words.back_to_recording];
    field.setAttribute("aria-label", words.yours);
    back.hidden = !isOwn;
    box.hidden = !decodePrompt();
    if (!field.value && decodePrompt()) field.value = decodePrompt().value;
  }

  function runOfDecode() {
    return decodeHostOfPage()?.decodeView?.store.state ?? null;
  }

  // A finished run of the visitor has no note; a recorded one has a name.
  function nameInDecode() {
    const { run, note } = runOfDecode() || {};
    if (String(run).startsWith(RECORDED)) return { text: "gallery", run: run.slice(RECORDED.length) };
    return { text: note ? "taken" : "own" };
  }

  // The prompt goes into Watch's own field and a button next to Watch's is pressed, so that every limit of a run applies.
  function start() {
    const host = decodeHostOfPage();
    const prompt = decodePrompt();
    if (document.querySelector("#decode-run").ariaDisabled === "true") {
      said.textContent = words.busy;
      return;
    }
    if (waiting) waiting.abort();
    waiting = new AbortController();
    const { signal } = waiting;
    prompt.value = field.value;
    prompt.dispatchEvent(new Event("input", { bubbles: true }));
    said.textContent = words.running;
    mirror(document.querySelector("#decode-status"), signal);
    host.addEventListener("ended", () => {
      waiting.abort();
      take(runOfDecode(), { text: "own" });
    }, { signal });
    setTimeout(() => document.querySelector("#learn-run").click()); // once the field has told its new value
  }

  // A run that is refused sends nothing to the view: so Watch's status line is repeated here.
  function mirror(line, signal) {
    const watcher = new MutationObserver(() => (said.textContent = line.innerText || line.textContent));
    watcher.observe(line, { childList: true, characterData: true, subtree: true });
    signal.addEventListener("abort", () => watcher.disconnect());
  }

  function take(state, name) {
    const complete = state?.trace?.output && !state.live;
    const why = complete && isWindowed(state) ? "unfit_long" : complete ? onRun({ ...state, name }) : "unfit_short";
    said.textContent = why ? plainText(words.unfit, { why: words[why] }) : "";
  }

  return { box, draw };
}

// Opens Watch at a step of a run if it shows that run, else at the run it shows; the sliders judge it again.
function openInDecode(trace, index) {
  const host = decodeHostOfPage();
  const panel = host.closest("[role=tabpanel]");
  document.querySelector(`[role=tab][aria-controls="${panel?.id}"]`)?.click();
  const own = host.decodeView.store.state.trace;
  if (own && isSameRun(own, trace)) host.decodeView.store.goto(index);
  host.scrollIntoView({ block: "start" });
}

const isSameRun = (a, b) => a.prompt.text === b.prompt.text && a.steps.length === b.steps.length && Boolean(a.output && b.output) && a.output.text === b.output.text;
