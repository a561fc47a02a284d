// Where everything stands in the drawing: the nodes of the tree and, as ghosts, the guesses that could be added. Pure.

const EDIT_CHIP = { width: 146, root: 72, height: 28, gap: 14, pitch: 35 };
const GHOSTS_UNTIL = 25; // nodes; a larger tree shows the likeliest ghosts and those around the chosen node
const LIKELIEST = 5;

// Columns of one width, but a smaller chip for the root, at the right end of a place as wide as the others.
// Items in drawing order, parents before their children: {node, key, depth, parent, ghost, best, gain, row}.
function planEditor({ rows, nodes, at, allGhosts }) {
  const found = additions(rows, nodes);
  const shown = ghostsToShow(found, nodes, at, allGhosts);
  const best = found.length ? keyOf(found[0].node) : null;
  const children = new Map();
  for (const [node, ghost] of [...nodes.map((each) => [each, false]), ...shown.map((each) => [each, true])]) {
    const parent = keyOf(node.slice(0, -1));
    children.set(parent, [...(children.get(parent) || []), { node, ghost }]);
  }
  const items = [];
  const place = (node, ghost, parent) => {
    const [key, index] = [keyOf(node), items.length];
    items.push({ node, key, ghost, parent, depth: node.length, best: ghost && key === best, gain: nodeValue(rows, node) });
    const below = ghost ? [] : children.get(key) || [];
    below.sort((a, b) => a.ghost - b.ghost || a.node[node.length] - b.node[node.length]).forEach((child) => place(child.node, child.ghost, index));
  };
  place([], false, -1);
  standLevel(items);
  const deepest = Math.max(...items.map((item) => item.depth));
  const x = (depth) => (depth ? 8 + EDIT_CHIP.root + EDIT_CHIP.gap + (depth - 1) * (EDIT_CHIP.width + EDIT_CHIP.gap) : 8 + EDIT_CHIP.root - EDIT_CHIP.width);
  const y = (row) => 8 + row * EDIT_CHIP.pitch;
  return { items, style: EDIT_CHIP, x, y, columns: [say`root`, ...Array.from({ length: deepest }, (_, head) => say`head ${head + 1}`)],
    hidden: found.length - shown.length, large: nodes.length + 1 > GHOSTS_UNTIL,
    width: x(deepest) + EDIT_CHIP.width + 8, height: y(Math.max(...items.map((item) => item.row))) + EDIT_CHIP.height + 8 };
}

function ghostsToShow(found, nodes, at, all) {
  const every = found.map(({ node }) => node);
  if (all || nodes.length + 1 <= GHOSTS_UNTIL) return every;
  const near = new Set([keyOf(at), keyOf(at.slice(0, -1))]);
  return every.filter((node, place) => place < LIKELIEST || near.has(keyOf(node.slice(0, -1))));
}

// An inner node is level with its first child, so that the root is in sight however tall the tree is.
function standLevel(items) {
  const rows = treeRows(items.map((item) => item.parent));
  items.forEach((item, i) => { item.row = rows[i]; });
  for (let i = items.length - 1; i > 0; i--) {
    const parent = items[items[i].parent];
    parent.row = Math.min(parent.row, items[i].row);
  }
}

// The item that an arrow key leads to: up and down within a column, left to the parent, right to the first child.
function neighbour(items, from, key) {
  const column = items.filter((item) => item.depth === from.depth).sort((a, b) => a.row - b.row);
  const moves = {
    ArrowUp: () => column[column.indexOf(from) - 1],
    ArrowDown: () => column[column.indexOf(from) + 1],
    ArrowLeft: () => items[from.parent],
    ArrowRight: () => items.find((item) => item.parent === items.indexOf(from)),
    Home: () => items[0],
    End: () => items.at(-1),
  };
  return moves[key]() || from;
}
