// Where the nodes of a tree stand, and the edges between them. Pure.

// The row of each node: leaves below one another in their order, a parent in the middle of its children.
function treeRows(parents) {
  const children = parents.map(() => []);
  parents.forEach((parent, i) => { if (parent >= 0) children[parent].push(i); });
  const rows = parents.map(() => 0);
  let next = 0;
  const place = (i) => {
    children[i].forEach(place);
    const below = children[i];
    rows[i] = below.length ? (rows[below[0]] + rows[below.at(-1)]) / 2 : next++;
  };
  place(0);
  return rows;
}

// The names of the columns, above their chips.
const columnTexts = (plan) => plan.columns.map((name, depth) =>
  svg("text", { x: plan.x(depth) + plan.style.width / 2, y: 16, "text-anchor": "middle" }, name));

const setSize = (picture, width, height, zoom = 1) => fill(picture, { width: width * zoom, height: height * zoom, viewBox: `0 0 ${width} ${height}` });

// From the right end of a node to the left end of its child, by the columns and rows of both.
function edgePath(plan, fromDepth, fromRow, toDepth, toRow) {
  const half = plan.style.height / 2;
  const [x1, y1] = [plan.x(fromDepth) + plan.style.width, plan.y(fromRow) + half];
  return curvePath(x1, y1, plan.x(toDepth), plan.y(toRow) + half);
}

function curvePath(x1, y1, x2, y2) {
  const bend = (x1 + x2) / 2;
  return `M${x1},${y1}C${bend},${y1} ${bend},${y2} ${x2},${y2}`;
}
