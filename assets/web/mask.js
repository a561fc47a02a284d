// The attention mask as a canvas: which node (row) may see which cached row or node (column).

const LABEL = 12; // pixels, whatever the size of a cell
const PREFIX_BINS = 27; // bins of the committed rows, if it is known which of them the drafter saw
const MASK_FONT = "ui-monospace, 'DejaVu Sans Mono', monospace";

function makeMask(store) {
  const canvas = html("canvas", { class: "mdv-maskpic", role: "img" });
  const pointer = html("canvas", { class: "mdv-maskpointer", "aria-hidden": "true" }); // above the mask, so that pointing repaints little
  const box = html("div", { class: "mdv-maskbox" }, html("div", { class: "mdv-masksheets" }, canvas, pointer));
  const caption = html("p", { class: "mdv-maskcaption", "data-role": "mask-caption" });
  const table = html("details", { class: "mdv-astext" }, html("summary", {}, say`The mask as text`), html("ul", {}));
  const choice = [["tokens", say`tokens`], ["ids", say`ids`], ["positions", say`positions`]].map(([name, label]) => html("button", {
    type: "button", "data-labels": name, title: say`Label rows and columns with ${label}`, onclick: () => store.set({ labels: name }),
  }, label));
  const card = html("section", { class: "mdv-card mdv-area-mask", "aria-label": say`Attention mask` },
    cardHead(say`Attention mask`, say`row may look at column`, html("div", { class: "mdv-segments" }, ...choice)), box, caption, table);
  let latest = null;
  let plan = null;

  canvas.addEventListener("pointermove", pointTo);
  canvas.addEventListener("pointerdown", pointTo);
  canvas.addEventListener("pointerleave", () => store.set({ hover: null, cell: null }));
  canvas.addEventListener("click", () => { if (store.state.cell) togglePin(store, store.state.cell.row); });
  table.addEventListener("toggle", () => latest?.step && writeTable(table, latest));
  const room = widthKept(box, () => latest?.step && paint(latest, true));

  // In the canvas's own pixels, whatever lecture mode's zoom is.
  function pointTo(event) {
    if (!plan) return;
    const seen = canvas.getBoundingClientRect();
    const scale = canvas.offsetWidth / seen.width;
    const [x, y] = [(event.clientX - seen.left) * scale, (event.clientY - seen.top) * scale];
    const row = Math.floor((y - plan.top) / plan.cell);
    const column = x < plan.left - plan.prefix || x < 0 ? null : x < plan.left ? -1 : Math.floor((x - plan.left) / plan.cell);
    const inside = row >= 0 && row < plan.count && column !== null && column < plan.count;
    const next = inside ? { row, column } : null;
    if (JSON.stringify(next) !== JSON.stringify(store.state.cell)) store.set({ hover: inside ? row : null, cell: next });
  }

  function paint(scene, renewed) {
    if (renewed) {
      plan = planMask(scene, room.width);
      if (plan) paintMask(canvas, scene, plan);
    }
    if (plan) paintPointer(blank(pointer, plan), scene, plan);
  }

  function draw(scene, changed) {
    latest = scene;
    if (!scene.step) return;
    for (const button of choice) button.setAttribute("aria-pressed", String(button.dataset.labels === scene.state.labels));
    // Where not every label has room, the pointed row's is drawn in place of its neighbours'.
    const crowded = plan && plan.cell < LABEL && (changed.has("node") || changed.has("hover"));
    paint(scene, crowded || !onlyLights(changed));
    caption.textContent = captionOf(scene);
    canvas.setAttribute("aria-label", say`${plural(scene.step.nodes.length, "row")}: the root and ${plural(scene.step.nodes.length - 1, "guess", "guesses")}.` + " "
      + say`Every row sees the ${committedWords(scene)}, itself and its ancestors in the tree.`);
    if (table.open) writeTable(table, scene);
  }

  // The label of a node's row, on the screen; null where nothing is drawn.
  function rowPlace(i) {
    if (!plan || i >= plan.count) return null;
    const seen = canvas.getBoundingClientRect();
    const scale = seen.width / canvas.offsetWidth;
    return { left: seen.left, width: plan.gutter * scale, top: seen.top + (plan.top + i * plan.cell) * scale, height: plan.cell * scale };
  }

  return { card, draw, rowPlace };
}

function captionOf(scene) {
  const { step, recorded, lit } = scene;
  const { cell } = scene.state; // the cell under the pointer
  const name = (i) => {
    const token = visible(step.nodes[i].text, step.nodes[i].token_id);
    if (scene.state.labels === "ids") return say`${token} (node ${i})`;
    return scene.state.labels === "positions" ? say`${token} (position ${step.cache_length + step.nodes[i].depth})` : token;
  };
  if (!cell && lit === null) return say`A node sees the committed text, itself and its ancestors, never another branch. Hover a cell to read it.` + seenWords(step) + windowWords(scene);
  const row = cell ? cell.row : lit;
  if (!cell) {
    const line = lineage(recorded.parents, row).reverse().map(name).join(" → ");
    return say`Row ${name(row)} sees the prefix and ${line} (itself).`;
  }
  if (cell.column < 0 && attentionWindow(scene)) return say`Row ${name(row)} may see the committed prefix as far back as the window of ${attentionWindow(scene)} positions reaches.`;
  if (cell.column < 0) return say`Row ${name(row)} may see all ${plural(step.cache_length, "row")} of the committed prefix.`;
  if (cell.column === row) return say`Row ${name(row)} may see itself.`;
  const ancestor = lineage(recorded.parents, row).includes(cell.column);
  if (ancestor) return say`Row ${name(row)} may see column ${name(cell.column)}: ancestor.`;
  const descendant = lineage(recorded.parents, cell.column).includes(row);
  return descendant ? say`Row ${name(row)} may not see column ${name(cell.column)}: it comes later on this branch.`
    : say`Row ${name(row)} may not see column ${name(cell.column)}: on another branch.`;
}

function planMask(scene, room) {
  if (room < 40) return null;
  const count = scene.step.nodes.length;
  const [gutter, prefix, top] = [92, 58, 78];
  const cell = Math.max(4, Math.min(24, (room - gutter - prefix - 6) / count));
  const left = gutter + prefix;
  return { count, gutter, prefix, cell, top, left, width: left + cell * count + 4, height: top + cell * count + 6 };
}

// The pen of an empty canvas of the plan's size, sharp on dense screens.
function blank(canvas, plan) {
  const ratio = (window.devicePixelRatio || 1) * (canvas.currentCSSZoom || 1); // lecture mode zooms
  const [width, height] = [Math.round(plan.width * ratio), Math.round(plan.height * ratio)];
  const pen = canvas.getContext("2d");
  if (canvas.width === width && canvas.height === height) {
    pen.clearRect(0, 0, plan.width, plan.height); // a canvas of unchanged size keeps its memory
    pen.textBaseline = "alphabetic"; // as a new one has it
    return pen;
  }
  Object.assign(canvas, { width, height });
  Object.assign(canvas.style, { width: plan.width + "px", height: plan.height + "px" });
  pen.scale(ratio, ratio);
  return pen;
}

function paintMask(sheet, scene, plan) {
  const pen = blank(sheet, plan);
  const accepted = new Set(scene.verdict.path);
  paintPrefix(pen, scene, plan);
  paintCells(pen, scene, plan, accepted);
  paintLabels(pen, scene, plan, accepted);
}

function paintPrefix(pen, scene, plan) {
  const { ink } = scene;
  const [x, y, w, h] = [plan.gutter, plan.top, plan.prefix - 4, plan.cell * plan.count];
  pen.save();
  pen.beginPath();
  pen.rect(x, y, w, h);
  pen.fillStyle = ink("prefix-fill");
  pen.fill();
  pen.clip();
  const seen = rowsSeen(scene.step, PREFIX_BINS) || [];
  pen.save();
  pen.fillStyle = ink("accept");
  seen.forEach((share, i) => {
    pen.globalAlpha = share && 0.25 + 0.75 * share;
    if (share) pen.fillRect(x + (i * w) / seen.length, y, w / seen.length, h);
  });
  pen.restore();
  pen.strokeStyle = ink("prefix");
  pen.lineWidth = 1;
  pen.beginPath();
  for (let d = -h; d < w; d += 7) { pen.moveTo(x + d, y + h); pen.lineTo(x + d + h, y); }
  pen.stroke();
  pen.restore();
  pen.fillStyle = ink("ink-soft");
  pen.textAlign = "center";
  pen.font = `11px ${MASK_FONT}`;
  pen.fillText(say`prefix`, x + w / 2, y - 20);
  pen.fillText(plural(rowsInSight(scene), "row"), x + w / 2, y - 7);
}

// One path per colour: thousands of single fills would take longer than a frame.
function paintCells(pen, { recorded, ink }, plan, accepted) {
  const paths = Object.fromEntries(["cell-empty", "cell", "accept"].map((name) => [name, pen.newPath ? pen.newPath() : new Path2D()]));
  const pad = plan.cell > 8 ? 1 : 0.25;
  const size = plan.cell - 2 * pad;
  const fine = plan.cell <= 8; // too small for lines between the cells: the empty ones are one ground
  if (fine) paths["cell-empty"].rect(plan.left, plan.top, plan.cell * plan.count, plan.cell * plan.count);
  for (let row = 0; row < plan.count; row++) {
    const seen = new Set(lineage(recorded.parents, row));
    for (let column = 0; column < plan.count; column++) {
      if (fine && !seen.has(column)) continue;
      const both = accepted.has(row) && accepted.has(column);
      const name = seen.has(column) ? (both ? "accept" : "cell") : "cell-empty";
      paths[name].rect(plan.left + column * plan.cell + pad, plan.top + row * plan.cell + pad, size, size);
    }
  }
  for (const [name, path] of Object.entries(paths)) {
    pen.fillStyle = ink(name);
    pen.fill(path);
  }
}

function paintLabels(pen, { step, state, lit, ink }, plan, accepted) {
  const names = step.nodes.map((node, i) => {
    if (state.labels === "ids") return String(i);
    if (state.labels === "positions") return String(step.cache_length + node.depth);
    return visible(node.text, node.token_id);
  });
  pen.textBaseline = "middle";
  const labelled = labelsThatFit(plan, accepted, lit);
  names.forEach((name, i) => {
    const middle = (i + 0.5) * plan.cell;
    if (accepted.has(i)) {
      pen.fillStyle = ink("accept");
      pen.fillRect(plan.gutter - 6, plan.top + i * plan.cell + 1, 3, plan.cell - 2);
      pen.fillRect(plan.left + i * plan.cell + 1, plan.top - 6, plan.cell - 2, 3);
    }
    if (!labelled.has(i)) return;
    const font = `${accepted.has(i) ? "600 " : ""}${LABEL}px ${MASK_FONT}`;
    pen.font = font;
    pen.fillStyle = ink(accepted.has(i) ? "ink" : "ink-soft");
    pen.textAlign = "right";
    pen.fillText(clip(name, plan.gutter - 14, font), plan.gutter - 10, plan.top + middle);
    pen.save();
    pen.translate(plan.left + middle, plan.top - 10);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "left";
    pen.fillText(clip(name, plan.top - 14, font), 0, 0);
    pen.restore();
  });
}

// The nodes whose labels have room next to each other: the pointed one first, then the accepted, then the others.
function labelsThatFit({ cell, count }, accepted, lit) {
  const chosen = [];
  const apart = (i) => chosen.every((j) => Math.abs(i - j) * cell >= LABEL);
  const order = [...(lit === null ? [] : [lit]), ...accepted, ...Array.from({ length: count }, (_, i) => i)];
  for (const i of order) if (apart(i)) chosen.push(i);
  return new Set(chosen);
}

function paintPointer(pen, { state, lit, ink }, plan) {
  const hovered = state.cell;
  const row = hovered ? hovered.row : lit;
  if (row === null) return;
  const frame = (x, y, w, h, width) => {
    pen.lineWidth = width + 2;
    pen.strokeStyle = ink("halo-dark");
    pen.strokeRect(x, y, w, h);
    pen.lineWidth = width;
    pen.strokeStyle = ink("select");
    pen.strokeRect(x, y, w, h);
  };
  const reach = plan.prefix + plan.count * plan.cell;
  frame(plan.gutter, plan.top + row * plan.cell, reach, plan.cell, 2);
  if (!hovered) return;
  const x = hovered.column < 0 ? plan.gutter : plan.left + hovered.column * plan.cell;
  const width = hovered.column < 0 ? plan.prefix - 4 : plan.cell;
  pen.lineWidth = 1;
  pen.strokeStyle = ink("select");
  pen.strokeRect(x, plan.top, width, plan.count * plan.cell);
  frame(x, plan.top + row * plan.cell, width, plan.cell, 2);
}

// The same picture for readers who cannot see it.
function writeTable(table, scene) {
  const { step, recorded } = scene;
  const name = (i) => `${i} ${visible(step.nodes[i].text, step.nodes[i].token_id)}`;
  const rows = step.nodes.map((_, i) => html("li", {}, say`${name(i)} sees: prefix (${plural(rowsInSight(scene), "row")}), ${lineage(recorded.parents, i).reverse().map(name).join(", ")}`));
  table.querySelector("ul").replaceChildren(...rows);
}
