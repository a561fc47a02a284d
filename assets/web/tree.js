// The candidate tree as SVG: depth runs to the right, rows come from the layout sent with the trace.

const DENSE_FROM = 18; // rows
const TALLEST = 500; // pixels of the scrolling box, more on a tall screen
// A whole tree is drawn no smaller than `least`. In a box below `slim` pixels its chips are slim, so that they can be
// read, as well as where wide ones would be smaller than `legible`. Where many rows are the reason, chips of one line are
// larger. Columns move apart, up to `gap`, to fill the width; where the box is as high as its tree, the tree then has at
// least the size `free`.
const WHOLE = { least: 0.5, slim: 560, legible: 0.72, free: 0.9, most: 1.5, gap: 96 };
const HEADER = 24; // height of the columns' names, which are scaled with the tree
const SPARE = 8; // pixels around both in the box
const REBUILD = ["index", "trace", "settings", "revision", "phase", "unfolded"];

// `whole`: a tree is as small as it must be to be seen from root to bonus, where the box has room to read it.
function makeTree(store, whole = false) {
  const header = svg("svg", { class: "mdv-columns", "aria-hidden": "true", preserveAspectRatio: "xMinYMin" });
  const picture = svg("svg", { class: "mdv-treepic", role: "tree", tabindex: "0", "aria-label": say`Candidate tree` });
  const away = html("button", { type: "button", class: "mdv-rootaway", hidden: true, title: say`Back to the root`, onclick: () => box.scrollTo(0, zoom.rootTop) });
  const box = html("div", { class: "mdv-treebox" }, header, away, picture);
  const zoom = { factor: 1, width: 0, height: 0, plan: null, rootTop: 0 };
  const legend = treeLegend();
  const folding = html("button", { type: "button", class: "mdv-folding", onclick: () => store.set({ unfolded: !store.state.unfolded }) });
  const tools = [["−", say`Zoom out`, () => scale(zoom.factor / 1.2)], [say`fit`, say`Fit the tree into the box`, fit],
    ["+", say`Zoom in`, () => scale(zoom.factor * 1.2)]]
    .map(([text, label, onclick]) => html("button", { type: "button", "aria-label": label, title: label, onclick }, text));
  const card = html("section", { class: "mdv-card mdv-area-tree", "aria-label": say`Candidate tree` },
    cardHead(say`Candidate tree`, " ", folding, ...tools), box, legend.row);
  const hint = card.querySelector(".mdv-title span"); // says what the numbers are
  const [groups, edges] = [new Map(), new Map()]; // chips and the edges to them by their nodes
  let loose = []; // other drawn parts
  let watched = null;
  let shown = "";
  let latest = null;
  const room = widthKept(box, () => {
    if (zoom.plan && latest.step) {
      const { style, gap } = planOf(latest);
      if (style !== zoom.plan.style || gap !== zoom.plan.gap) rebuild(latest);
    }
    settle();
  });
  // A busy page gets several changes at once, the newest last.
  const rootSeen = new IntersectionObserver((entries) => { away.hidden = entries.at(-1).intersectionRatio > 0.6; }, { root: box, threshold: [0, 0.6, 1] });
  linkNodes(store, picture);
  dragToPan(box);

  function scale(factor) {
    zoom.factor = Math.max(0.5, Math.min(2, factor));
    setSize(picture, zoom.width, zoom.height, zoom.factor);
    setSize(header, zoom.width, HEADER, zoom.factor);
  }

  function fit() {
    const fitting = Math.min((box.clientWidth - 4) / zoom.width, (box.clientHeight - SPARE) / (zoom.height + HEADER));
    scale(Math.min(1.25, fitting));
  }

  const isSlim = ({ step }) => {
    const columns = Math.max(...step.nodes.map((node) => node.depth)) + 2; // with the bonus
    return whole && room.width > 0 && room.width < Math.max(WHOLE.slim, WHOLE.legible * columns * (AIRY.width + AIRY.gap));
  };

  const isFilled = () => getComputedStyle(box).flexGrow !== "0"; // the page gives the box its height

  function planOf(scene) {
    if (!whole || !room.width) return planTree(scene, isSlim(scene));
    const height = isFilled() ? { height: box.clientHeight - SPARE } : { height: Infinity, most: WHOLE.free }; // a box as high as its tree
    return planTree(scene, isSlim(scene), { width: room.width - 4, ...height });
  }

  function rebuild(scene) {
    const plan = planOf(scene);
    const shape = [...plan.rowOf.keys()].join(",") + scene.recorded.parents.join(",");
    const reshaped = shown !== shape;
    // Only newly made parts play a phase.
    if (scene.phase || zoom.phase || !zoom.plan || plan.style !== zoom.plan.style) clear();
    Object.assign(zoom, { plan, width: plan.width, height: plan.height, phase: scene.phase });
    shown = shape;
    writeColumns(plan);
    for (const each of loose) each.remove();
    keepOnly(edges, plan.shown.slice(1), picture.querySelector(".mdv-node"), (i, edge) => edgeOf(scene, plan, i, edge));
    keepOnly(groups, plan.shown, null, (i, group) => chipOf(scene, plan, i, group));
    const bonus = bonusOf(scene, plan);
    const folds = plan.folds.map((fold, k) => foldOf(plan, fold, plan.rowOf.get("fold" + k), () => store.set({ unfolded: true })));
    groups.get(0).before(...bonus);
    picture.append(...folds);
    loose = [...bonus, ...folds];
    folding.hidden = !isLarge(scene.step);
    folding.textContent = scene.state.unfolded ? say`fold` : say`all ${scene.step.nodes.length} nodes`;
    away.textContent = say`◂ root ${visible(scene.step.nodes[0].text, scene.step.nodes[0].token_id)}`;
    if (watched !== groups.get(0)) {
      rootSeen.disconnect();
      rootSeen.observe((watched = groups.get(0)));
    }
    if (reshaped) settle();
    else scale(zoom.factor);
    return plan;
  }

  function clear() {
    for (const part of [picture, header]) part.replaceChildren();
    header.words = "";
    edges.clear();
    groups.clear();
    loose = [];
    rootSeen.disconnect();
    watched = null;
    away.hidden = true;
  }

  // Changes the parts of the nodes `wanted`, makes those that are missing, in their order and before `end`; takes the others away.
  function keepOnly(parts, wanted, end, make) {
    const stay = new Set(wanted);
    for (const [i, part] of parts) {
      if (stay.has(i)) continue;
      part.remove();
      parts.delete(i);
    }
    let next = end;
    for (const i of [...wanted].reverse()) {
      const part = make(i, parts.get(i));
      if (!parts.has(i)) picture.insertBefore(part, next);
      parts.set(i, part);
      next = part;
    }
  }

  function writeColumns(plan) {
    const words = plan.columns.join("\n") + plan.style.width + " " + plan.gap;
    if (header.words === words) return;
    header.words = words;
    header.replaceChildren(...columnTexts(plan));
  }

  // The size a tree starts with: as large as the box has room for, but never too small to read.
  function settle() {
    const { plan } = zoom;
    if (!plan || !room.width) return;
    const filled = isFilled();
    const tallest = filled ? box.clientHeight : Math.max(TALLEST, window.innerHeight * 0.55);
    const wide = (room.width - 4) / (whole ? plan.largest : plan.roomy);
    const least = whole ? WHOLE.least : plan.style.least;
    scale(Math.min(WHOLE.most, Math.max(least, Math.min(wide, (tallest - SPARE) / (plan.height + HEADER)))));
    box.style.height = filled ? "" : Math.min(tallest, (plan.height + plan.style.pitch) * zoom.factor + 36) + "px";
  }

  function show(plan, i) {
    if (!plan.rowOf.has(i)) return;
    const [left, top] = [plan.x(plan.depths[i]) * zoom.factor, (plan.y(plan.rowOf.get(i)) + 24) * zoom.factor];
    const columns = plan.bonus && i === plan.end ? 2 : 1;
    const right = left + (columns * plan.style.width + (columns - 1) * plan.gap) * zoom.factor;
    if (i === 0) zoom.rootTop = Math.max(0, top - 120);
    reveal(box, left, top - 28, right, top + plan.style.height * zoom.factor);
  }

  function draw(scene, changed, afterwards) {
    latest = scene;
    if (!scene.step) return clear();
    const { lit } = scene;
    hint.textContent = say(numberHint(scene));
    const revealed = changed.has("node") && isLarge(scene.step) && scene.state.node !== null && !groups.has(scene.state.node);
    if (revealed || REBUILD.some((name) => changed.has(name))) {
      const plan = rebuild(scene);
      afterwards.push(() => [0, plan.end].forEach((i) => show(plan, i)));
    }
    legend.draw(scene, zoom.plan.style.slim);
    for (const [i, group] of groups) {
      group.classList.toggle("lit", i === lit);
      group.classList.toggle("family", scene.family.has(i));
      group.classList.toggle("pinned", scene.state.pinned && i === scene.state.node);
      group.setAttribute("aria-selected", String(i === lit));
    }
    for (const [i, edge] of edges) edge.classList.toggle("family", scene.family.has(i));
    const active = groups.get(lit ?? -1);
    if (active) picture.setAttribute("aria-activedescendant", active.id);
    else picture.removeAttribute("aria-activedescendant");
    if (active && changed.has("node")) afterwards.push(() => show(zoom.plan, lit));
  }

  return { card, draw };
}

// Coordinates of everything drawn. The bonus token hangs after the path's end, on its own row if that node has
// children.
// `slim`: for a narrow box. `room` is that of a whole tree.
function planTree(scene, slim = false, room = null) {
  const { step, recorded, verdict } = scene;
  const { shown, folds } = foldTree(scene);
  const rowOf = folds.length ? foldedRows({ shown, folds }, recorded.parents) : new Map(treeRows(recorded.parents).entries());
  const depths = step.nodes.map((node) => node.depth);
  const end = verdict.path.at(-1);
  const sameEnd = recorded.path.at(-1) === end;
  const bonus = step.bonus && sameEnd ? { depth: depths[end] + 1, row: rowOf.get(end) } : null;
  const lines = Math.max(...rowOf.values()) + 1; // before the bonus may add one: trees of one shape have equally many in each step
  const below = [...shown.filter((i) => i !== end && lineage(recorded.parents, i).includes(end)), ...folds.flatMap((fold, k) => (fold.parent === end ? ["fold" + k] : []))];
  if (bonus && below.length) {
    bonus.row = Math.max(...below.map((item) => rowOf.get(item))) + 1;
    for (const [item, row] of rowOf) if (row > bonus.row - 1) rowOf.set(item, row + 1);
  }
  const deepest = Math.max(...depths) + 1; // with room for a bonus at the deepest node: columns stay in place over all steps of a run
  const dense = Math.max(...rowOf.values()) + 1 >= DENSE_FROM || (room && isDense(deepest + 1, lines, room));
  const style = slim ? SLIM : dense ? DENSE : AIRY;
  const rows = Math.max(...rowOf.values(), bonus ? bonus.row : 0) + 1;
  const last = Math.max(...depths, bonus ? bonus.depth : 0);
  const gap = room ? gapOf(style, deepest + 1, lines, room) : style.gap;
  const x = (depth) => (style.slim ? 5 : 8) + depth * (style.width + gap);
  const y = (row) => 10 + row * style.pitch;
  const columns = Array.from({ length: last + 1 }, (_, depth) => columnName(step.nodes, depth, slim));
  return { shown, folds, rowOf, depths, rows, style, gap, bonus, end, x, y, columns, roomy: x(deepest - 1) + style.width + 8,
    largest: x(deepest) + style.width + 8, width: x(last) + style.width + (style.slim ? 5 : 8), height: y(rows - 1) + style.height + 12 };
}

// The gap with which the columns fill the width, at the size that the height allows.
function gapOf(style, columns, lines, { width, height, most = WHOLE.most }) {
  const scale = Math.min(most, height / ((lines + 1) * style.pitch + HEADER));
  const free = width / scale - columns * style.width - 16;
  return Math.max(style.gap, Math.min(WHOLE.gap, Math.floor(free / (columns - 1))));
}

// Whether chips of one line are drawn larger in the room that there is.
function isDense(columns, lines, { width, height }) {
  const scale = (style) => Math.min(width / (columns * (style.width + style.gap)), height / (lines * style.pitch + HEADER));
  return scale(AIRY) < WHOLE.legible && scale(DENSE) * DENSE.token > scale(AIRY) * AIRY.token;
}

function columnName(nodes, depth, slim) {
  if (depth === 0) return say`root`;
  const heads = new Set(nodes.filter((node) => node.depth === depth).map((node) => node.origin.head));
  if (heads.size === 0) return slim ? say`next` : say`next step`;
  const [head] = heads;
  if (heads.size === 1 && isKnown(head)) return say`head ${head}`;
  return slim ? String(depth) : say`depth ${depth}`; // the full labels would touch each other
}

function edgeOf({ verdict, stage }, plan, i, edge = svg("path")) {
  const parent = verdict.parents[i];
  const d = edgePath(plan, plan.depths[parent], plan.rowOf.get(parent), plan.depths[i], plan.rowOf.get(i));
  const judged = stage >= STAGE.accept;
  const kind = judged ? `is-${verdict.kinds[i]}${verdict.dead[i] ? " dead" : ""}` : "is-open";
  give(edge, { class: "mdv-edge " + kind, d });
  return edge;
}

function drawingOrder({ recorded }) {
  const rows = treeRows(recorded.parents);
  return recorded.parents.map((_, i) => i).sort((a, b) => rows[a] - rows[b] || lineage(recorded.parents, a).length - lineage(recorded.parents, b).length);
}
