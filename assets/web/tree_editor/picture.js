// The tree that is edited, drawn as in the linked view: chips in the columns of their heads, ghosts with a plus.

const CROSS = 24; // pixels at the right end of a chip whose click removes it

// `act` has choose(item), add(parent) and remove(node).
function makeEditorPicture(uid, act) {
  const header = svg("svg", { class: "mdv-columns", "aria-hidden": "true", height: 24, preserveAspectRatio: "xMinYMin" });
  const picture = svg("svg", { class: "mdv-treepic", role: "tree", tabindex: "0", "aria-label": say`Candidate tree, to be edited`, "aria-describedby": uid + "-keys" });
  const box = html("div", { class: "mdv-treebox tree-edit-box" }, header, picture);
  let plan = null;
  let pressed = null;
  dragToPan(box);
  picture.addEventListener("pointerdown", ({ clientX, clientY }) => { pressed = [clientX, clientY]; });
  picture.addEventListener("click", (event) => {
    const chip = event.target.closest("[data-item]");
    const panned = pressed && Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) > 5;
    if (!chip || panned) return;
    const item = plan.items[Number(chip.dataset.item)];
    if (item.ghost) act.add(item.node.slice(0, -1));
    else if (event.target.closest(".tree-edit-cross")) act.remove(item.node);
    else act.choose(item);
  });

  function draw(next, chosen) {
    plan = next;
    header.replaceChildren(...plan.columns.map((name, depth) => svg("text", { x: plan.x(depth) + plan.style.width - chipWidth(plan, depth) / 2, y: 16, "text-anchor": "middle" }, name)));
    setSize(picture, plan.width, plan.height);
    setSize(header, plan.width, 24);
    const family = plan.items.filter((item) => isBelow(chosen.node, item.node));
    picture.replaceChildren(...plan.items.slice(1).map((item) => editEdge(plan, item, family.includes(item))),
      ...plan.items.map((item, i) => editChip(plan, item, i, { uid, chosen: item === chosen, family: family.includes(item) })));
    picture.setAttribute("aria-activedescendant", `${uid}-${plan.items.indexOf(chosen)}`);
  }

  function show(item) {
    const [right, top] = [plan.x(item.depth) + plan.style.width, plan.y(item.row) + 24];
    reveal(box, Math.max(0, right - chipWidth(plan, item.depth) - 8), top - 28, right + 4, top + plan.style.height + 4);
  }

  return { box, picture, draw, show };
}

function editEdge(plan, item, family) {
  const parent = plan.items[item.parent];
  const kind = (item.ghost ? " is-ghost" : " is-open") + (family ? " family" : "");
  return svg("path", { class: "mdv-edge" + kind, d: edgePath(plan, parent.depth, parent.row, item.depth, item.row) });
}

function editChip(plan, item, i, { uid, chosen, family }) {
  const [width, { height }] = [chipWidth(plan, item.depth), plan.style];
  const kind = item.depth === 0 ? "is-root" : item.ghost ? "is-ghost" : "is-open";
  const marks = [kind, item.best && "is-best", chosen && "lit pinned", family && "family"].filter(Boolean).join(" ");
  const group = svg("g", { class: "mdv-node " + marks, id: `${uid}-${i}`, "data-item": i, "data-node": item.ghost ? null : item.key, "data-add": item.ghost ? item.key : null,
    role: "treeitem", "aria-level": item.depth + 1, "aria-selected": String(chosen), "aria-label": itemLabel(item),
    transform: `translate(${plan.x(item.depth) + plan.style.width - width},${plan.y(item.row)})` });
  group.append(svg("rect", { class: "halo", x: -4, y: -4, width: width + 8, height: height + 8, rx: 10 }));
  if (kind === "is-root") group.append(svg("rect", { class: "ring", x: -3, y: -3, width: width + 6, height: height + 6, rx: 9 }));
  group.append(svg("rect", { class: "chip", width, height, rx: item.ghost ? height / 2 : 7 }));
  const removable = item.depth > 0 && !item.ghost;
  const label = item.depth === 0 ? say`root` : (item.ghost ? "+ " : "") + say`guess ${item.node[item.depth - 1] + 1}`;
  const number = item.depth === 0 ? "1" : (item.best ? "★ " : "") + signed(item.gain);
  group.append(svg("text", { class: "tree-edit-guess", x: 10, y: 18.5 }, label),
    svg("text", { class: "small num", x: width - (removable ? CROSS : 10), y: 18.5, "text-anchor": "end" }, number));
  if (removable) group.append(crossOf(width, height));
  return group;
}

const chipWidth = ({ style }, depth) => (depth ? style.width : style.root);

// Only for pointers: keys have Delete, screen readers the button next to the tree.
function crossOf(width, height) {
  return svg("g", { class: "tree-edit-cross", "aria-hidden": "true", transform: `translate(${width - CROSS},0)` },
    svg("title", {}, say`Remove, with all that follows it`), svg("rect", { width: CROSS, height, fill: "transparent" }),
    svg("path", { d: `M8 ${height / 2 - 4}l8 8m0 -8l-8 8` }));
}

function itemLabel(item) {
  if (item.depth === 0) return say`root, the model’s own token, always kept`;
  const before = item.node.slice(0, -1).map((rank) => rank + 1).join(", ");
  const after = item.depth < 2 ? "" : item.depth === 2 ? say`, after guess ${before}` : say`, after guesses ${before}`;
  const adds = say`${nodeName(item.node)}${after}: ${signed(item.gain)} tokens per step`;
  if (!item.ghost) return adds;
  return item.best ? say`add ${adds}, the most there is to gain` : say`add ${adds}`;
}
