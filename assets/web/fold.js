// Which nodes of a large tree are drawn: the paths that matter and the first guesses around them, the others folded
// into "+12 more" next to their parent. Pure.

const FOLD_FROM = 26; // nodes; smaller trees are always drawn whole
const FIRST = 2; // children that a node on the accepted path always shows

const isLarge = (step) => step.nodes.length >= FOLD_FROM;

// The nodes to draw, in the order of their numbers, and the folds: {parent, hidden: [node ids]}.
function foldTree({ step, recorded, verdict, state }) {
  const ids = step.nodes.map((node) => node.id);
  if (state.unfolded || !isLarge(step)) return { shown: ids, folds: [] };
  const { parents } = recorded;
  const onPath = new Set(recorded.path);
  const wanted = new Set([...onPath, ...verdict.path, ...(state.node === null ? [] : lineage(parents, state.node))]);
  ids.forEach((i) => { if (verdict.passes[i] && !verdict.dead[i]) lineage(parents, i).forEach((j) => wanted.add(j)); });
  for (const parent of onPath) ids.filter((i) => parents[i] === parent).slice(0, FIRST).forEach((i) => wanted.add(i));
  const folds = new Map(); // all that is hidden below a node of the path, by that node
  for (const i of ids) {
    if (wanted.has(i)) continue;
    const at = lineage(parents, parents[i]).find((j) => onPath.has(j));
    folds.set(at, [...(folds.get(at) || []), i]);
  }
  return { shown: ids.filter((i) => wanted.has(i)), folds: [...folds].map(([parent, hidden]) => ({ parent, hidden })) };
}

// Rows for what is drawn: leaves in order, inner nodes between their children, a fold below its siblings.
function foldedRows({ shown, folds }, parents) {
  const items = [...shown.map((id) => ({ id, parent: parents[id] })), ...folds.map((fold, k) => ({ id: "fold" + k, parent: fold.parent }))];
  const places = new Map(items.map((item, place) => [item.id, place]));
  const rows = treeRows(items.map((item) => (item.parent < 0 ? -1 : places.get(item.parent))));
  return new Map(items.map((item, place) => [item.id, rows[place]]));
}
