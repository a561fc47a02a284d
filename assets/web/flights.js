// The guesses of a step as moving elements: each is one element, made under its head, that goes to its place in the
// tree, the flat row, its row of the mask and its slot of the cache, and ends in the text or fades. Only transforms and
// opacity change. The parts draw the places; once an element is at rest, its place's own drawing is seen.

const FLIGHT_MS = 650;
const SCRUBBING_MS = 350; // between two steps: a faster reader sees only where they end

function makeFlights(root, places) {
  const layer = html("div", { class: "mdv-flights", "aria-hidden": "true" });
  let born = new Map(); // the elements of this step, by their nodes
  let from = null; // places before the drawing, by node, and their scene
  let movedAt = -Infinity;
  root.append(layer);

  // Before a drawing: where everything stands now.
  function before(scene, next, changed) {
    from = null;
    const moves = changed.has("phase") || changed.has("index");
    if (!moves || calm() || !scene || !scene.step || !next.step || scene.trace !== next.trace || next.state.live) return;
    const at = performance.now();
    const hurries = changed.has("index") && at - movedAt < SCRUBBING_MS;
    movedAt = at;
    if (hurries) return rest();
    const bonus = root.querySelector(".mdv-treepic .mdv-bonus");
    from = { places: placesIn(scene, changed.has("index") ? null : scene.phase), scene, bonus: bonus?.getBoundingClientRect() };
  }

  // After the drawing: whatever has a new place goes there.
  function after(scene) {
    if (!from) return;
    const old = from.scene;
    if (old.index !== scene.index) {
      if (old.index === scene.index - 1) intoText(old, scene);
      rest(); // the next step makes new elements; those that leave go on
    }
    if (!scene.phase) return;
    const starts = old.index === scene.index ? from.places : new Map();
    const ends = placesIn(scene, scene.phase);
    const heads = scene.phase === "propose" ? headPlaces(scene) : null;
    for (const node of scene.step.nodes) {
      const start = (heads || starts).get(node.id);
      const end = ends.get(node.id);
      if (start) fly(elementOf(node, scene), start, end || start, !end);
    }
  }

  function rest() {
    for (const element of born.values()) if (!element.leaving) element.remove();
    born = new Map();
  }

  function elementOf(node, { verdict }) {
    let element = born.get(node.id);
    if (!element) {
      element = html("div", { class: "mdv-flight is-" + verdict.kinds[node.id], "data-flight": node.id }, visible(node.text, node.token_id));
      born.set(node.id, element);
      layer.append(element);
    }
    return element;
  }

  // What a step has kept goes into the text, and the model's own next token becomes the root.
  function intoText(old, scene) {
    const tokens = rectsOf(root.querySelectorAll(`.mdv-strip [data-step="${old.index}"][data-node]`));
    for (const id of old.phase === "next" ? [] : old.step.path) {
      const [start, end] = [from.places.get(id), tokens.get(id)];
      if (start && end) leave(elementOf(old.step.nodes[id], old), start, end);
    }
    const [bonus, root_] = [from.bonus, placesIn(scene, null).get(0)];
    if (bonus && root_) leave(html("div", { class: "mdv-flight is-root", "data-flight": "bonus" }, visible(old.step.bonus.text, old.step.bonus.token_id)), bonus, root_);
  }

  function leave(element, start, end) {
    element.leaving = true;
    if (!element.isConnected) layer.append(element);
    fly(element, start, end, false).finished.then(() => element.remove(), () => element.remove());
  }

  // `fades`: it no longer has a place.
  function fly(element, start, end, fades) {
    for (const one of element.getAnimations()) one.cancel();
    const frame = layer.getBoundingClientRect();
    const zoom = layer.currentCSSZoom || 1;
    const at = (box) => `translate(${(box.left + box.width / 2 - frame.left) / zoom}px, ${(box.top + box.height / 2 - frame.top) / zoom}px) translate(-50%, -50%)`;
    return element.animate([{ transform: at(start), opacity: 1 }, { transform: at(end), opacity: fades ? 0.2 : 1, offset: 0.85 }, { transform: at(end), opacity: 0 }],
      { duration: FLIGHT_MS, easing: "cubic-bezier(.4, 0, .2, 1)", fill: "both" });
  }

  // Where the nodes stand in a phase, by their numbers.
  function placesIn(scene, phase) {
    if (phase === "mask") return new Map(scene.step.nodes.map((node) => [node.id, places.maskRow(node.id)]).filter(([, box]) => box));
    if (ROW_PHASES.includes(phase)) return rectsOf(root.querySelectorAll(".mdv-phasepic .mdv-kvcell:not(.after)"));
    if (phase === "next") return rectsOf(root.querySelectorAll(`.mdv-strip [data-step="${scene.index}"][data-node]`));
    return rectsOf(root.querySelectorAll(".mdv-treepic .mdv-node"));
  }

  // A guess that stands in the tree more than once is listed once under its head.
  function headPlaces({ step }) {
    const listed = rectsOf(root.querySelectorAll(".mdv-phasepic .mdv-guess"));
    const twin = (node) => [...listed.keys()].find((id) => step.nodes[id].origin.head === node.origin.head && step.nodes[id].origin.rank === node.origin.rank);
    return new Map(step.nodes.filter((node) => node.id > 0).map((node) => [node.id, listed.get(twin(node))]).filter(([, box]) => box));
  }

  return { before, after };
}

const rectsOf = (parts) => new Map([...parts].map((part) => [Number(part.dataset.node), part.getBoundingClientRect()]));
