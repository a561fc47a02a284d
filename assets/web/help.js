// The sheet of keys of a view, opened by its button or by "?".

const HELP_KEYS = [
  ["← →", phrase("the previous step, the next step")],
  ["Home End", phrase("the first step, the last step")],
  [phrase("Space"), phrase("play or pause")],
  [". ,", phrase("the next phase of the step, the previous one; also Shift with → ←")],
  ["↑ ↓", phrase("the node above, the node below in the tree")],
  ["Enter", phrase("pin the node, or unpin it")],
  ["Esc", phrase("unpin the node, then show the whole step")],
  ["L", phrase("lecture mode: large type, full screen")],
  ["?", phrase("this sheet")],
];

function makeHelp(root) {
  const rows = HELP_KEYS.map(([keys, words]) => html("div", {}, html("dt", {}, html("kbd", {}, say(keys))), html("dd", {}, say(words))));
  const close = html("button", { type: "button", onclick: () => sheet.close() }, say`Close`);
  const sheet = html("dialog", { class: "mdv-help", "aria-label": say`Keys of this view` },
    html("h3", {}, say`Keys of this view`), html("p", {}, say`They work at once where nothing else has the focus; those of the tree once the view has it: click it, or reach it with Tab.`),
    html("dl", {}, ...rows), close);
  const button = html("button", { type: "button", class: "lecture-button", "data-act": "help", "aria-haspopup": "dialog", title: say`Keys of this view`,
    "aria-label": say`Keys of this view`, onclick: () => sheet.showModal() }, "?"); // the browser closes it on Escape and gives the focus back

  root.addEventListener("keydown", (event) => {
    if (sheet.open) return event.stopPropagation(); // the view's own keys are off while it is read
    if (event.key !== "?" || isWriting(event.target) || hasModifier(event)) return;
    event.preventDefault();
    sheet.showModal();
  });
  return { button, sheet };
}
