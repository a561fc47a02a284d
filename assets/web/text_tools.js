// Next to the text: the whole of it for the clipboard, and, where not all of it is laid out, a search.

function makeTextTools(store) {
  const copy = html("button", { type: "button", "data-act": "copy-text", title: say`Copy the prompt and the whole text`, onclick: copyText }, say`copy`);
  const field = html("input", { type: "search", class: "mdv-find", hidden: true, "aria-label": say`Find in the text`, placeholder: say`find, Enter: next` });
  const said = html("span", { class: "mdv-found", role: "status" });
  const box = html("div", { class: "mdv-texttools" }, said, field, copy);
  let trace = null;
  let searched = { trace: null, steps: 0, text: "" };

  field.addEventListener("input", () => { said.textContent = ""; });
  field.addEventListener("keydown", (event) => {
    event.stopPropagation(); // the view's own keys are letters and arrows too
    if (event.key === "Enter" && field.value) find(field.value.toLowerCase());
  });

  // The next step in which the words begin, from the shown one on and then from the start.
  function find(words) {
    if (searched.trace !== trace || searched.steps !== trace.steps.length) searched = { trace, steps: trace.steps.length, text: textOf(trace).toLowerCase() };
    const { characters } = sumsOf(trace);
    let at = searched.text.indexOf(words, characters[store.state.index + 1]);
    if (at < 0) at = searched.text.indexOf(words);
    said.textContent = at < 0 ? say`not in the text` : "";
    if (at < 0) return;
    store.jump(placeIn(characters, at));
  }

  async function copyText() {
    const field = html("textarea", { class: "mdv-offscreen", readonly: true });
    box.append(field);
    const done = await toClipboard(trace.prompt.text + textOf(trace), field);
    field.remove();
    said.textContent = done ? say`copied` : say`the browser refused`;
  }

  function draw(now, long) {
    if (trace !== now) said.textContent = "";
    trace = now;
    field.hidden = !long;
  }

  return { box, draw };
}
