// Pointer habits shared by the drawings: hovering and clicking nodes, dragging a box to pan it.

// Any element below `area` with data-node lights on hover, and is pinned on click.
function linkNodes(store, area) {
  const nodeAt = ({ target }) => {
    const part = target.closest("[data-node]");
    return part && Number(part.dataset.node);
  };
  area.addEventListener("pointerover", (event) => store.set({ hover: nodeAt(event) }));
  area.addEventListener("pointerleave", () => store.set({ hover: null }));
  area.addEventListener("click", (event) => {
    const node = nodeAt(event);
    if (node !== null) togglePin(store, node);
  });
}

function togglePin(store, node) {
  const { state } = store;
  if (state.pinned && state.node === node) store.set({ node: null, pinned: false });
  else store.set({ node, pinned: true });
}

function dragToPan(box) {
  box.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse" || event.button !== 0) return;
    const from = { x: event.clientX, y: event.clientY, left: box.scrollLeft, top: box.scrollTop };
    const done = new AbortController();
    const move = (now) => {
      box.scrollLeft = from.left - (now.clientX - from.x);
      box.scrollTop = from.top - (now.clientY - from.y);
    };
    window.addEventListener("pointermove", move, { signal: done.signal });
    window.addEventListener("pointerup", () => done.abort(), { signal: done.signal });
  });
}

function treeLegend() {
  const items = [["root", say`root, from the base model`], ["accepted", say`✓ accepted`], ["cut", say`✂ accepted, not in the text`], ["rejected", say`✕ rejected`],
    ["orphan", say`– passes, parent rejected`], ["spare", say`○ passes, not the longest`], ["untried", say`· not tried`]];
  const entries = items.map(([kind, words]) => html("span", {}, html("i", { class: "mdv-swatch is-" + kind }), words));
  const row = html("div", { class: "mdv-legend mdv-treelegend" }, ...entries);
  // Plain decoding has only the root; rejection sampling tries guesses one by one, other rules judge all of them.
  const [tried, judged] = [["orphan", "spare"], ["untried"]].map((others) => entries.filter((_, k) => !others.includes(items[k][0])));
  let labels = { of: null, words: null };
  function draw({ trace, config, ruling, step }, slim) {
    // A step without guesses keeps the words of the one before, so that nothing jumps; slim chips have no labels.
    labels = { of: trace, words: labelWords(step.nodes) ?? (labels.of === trace ? labels.words : null) };
    row.replaceChildren(...(!drafts(config.method) ? entries.slice(0, 1) : ruling === "rejection" ? tried : judged), ...(labels.words && !slim ? [labels.words] : []));
  }
  return { row, draw };
}
