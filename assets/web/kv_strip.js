// The cache of keys and values as a strip of slots: the committed rows folded, this step's rows, and which of
// them stay. Two nodes may share a position, never a slot.

const SEEN_BINS = 90; // bins of the committed rows, if it is known which of them the drafter saw
const KV = { prefix: 96, seen: 280, height: 30, top: 20, drop: 86, narrow: 36, wide: 72 };

function makeKvStrip(store) {
  const box = html("div", { class: "mdv-kvbox", tabindex: "0", role: "group", "aria-label": say`Slots of the cache, scrolls sideways` });
  const caption = html("p", { class: "mdv-maskcaption", "data-role": "kv-caption" });
  const card = html("section", { class: "mdv-card mdv-area-kv", "aria-label": say`KV cache` },
    cardHead(say`KV cache`, say`one row of keys and values for each token read; above during the step, below after it`), box, caption);
  let latest = null;
  let shown = null;
  let waiting = false; // drawn only while in sight and when the browser is idle: it costs as much as the tree
  let inSight = false;
  const whenIdle = window.requestIdleCallback || ((act) => setTimeout(act, 50)); // Safari has none
  const room = widthKept(box, redraw);
  linkNodes(store, box);
  new IntersectionObserver((entries) => {
    inSight = entries.at(-1).isIntersecting; // A busy page gets several changes at once, the newest last.
    if (inSight && waiting) redraw();
  }, { rootMargin: "200px" }).observe(card);

  listenWhile(card, "beforeprint", () => waiting && redraw(true), { target: window });

  function redrawSoon() {
    if (waiting) return;
    waiting = true;
    if (inSight) whenIdle(() => waiting && redraw(), { timeout: 200 });
  }

  // A run that has just begun has no step yet; its first step asks again.
  function redraw(anyway = false) {
    waiting = !inSight && !anyway;
    if (waiting || !latest?.step) return;
    shown = kvPicture(latest, room.width, STAGE.commit);
    box.replaceChildren(shown);
    lightKv(shown, latest);
  }

  function draw(scene, changed) {
    latest = asJudged(scene);
    if (!scene.step) {
      shown = null;
      box.replaceChildren();
      caption.textContent = "";
      return;
    }
    if (!onlyLights(changed)) redrawSoon();
    else if (shown && !waiting) lightKv(shown, scene);
    caption.textContent = kvCaption(latest);
  }

  return { card, draw };
}

// The strip at a stage of the step: only its rows until they are judged, then what is kept in a second line.
function kvPicture(scene, room, stage) {
  const { step, recorded } = scene;
  const count = step.nodes.length;
  const prefix = step.drafter_rows ? Math.max(KV.prefix, Math.min(KV.seen, room / 3)) : KV.prefix;
  const cell = Math.max(KV.narrow, Math.min(KV.wide, (room - prefix - 6) / count));
  const after = stage >= STAGE.commit;
  const height = KV.top + KV.height + (after ? KV.drop + 2 : 20);
  const x = (slot) => prefix + slot * cell;
  const places = new Map(step.path.map((node, place) => [node, place]));
  const parts = [prefixOf(scene, KV.top, prefix, say`position →`)];
  step.nodes.forEach((node, i) => parts.push(kvCell(scene, node, x(i), KV.top, cell, { place: i, position: true,
    kind: after ? (places.has(i) ? "kept" : "lost") : "new" })));
  if (after) {
    const top = KV.top + KV.drop;
    for (const [node, place] of places) if (node !== place) parts.push(kvArrow(x(node) + cell / 2, x(place) + cell / 2));
    parts.push(prefixOf(scene, top, prefix));
    for (const [node, place] of places) {
      const group = kvCell(scene, step.nodes[node], x(place), top, cell, { place, position: false, kind: "kept after" });
      group.style.setProperty("--dx", `${x(node) - x(place)}px`);
      group.style.setProperty("--dy", `${-KV.drop}px`);
      parts.push(group);
    }
    parts.push(freeOf(step, x, top, count));
  }
  const width = prefix + count * cell + 4;
  return svg("svg", { class: "mdv-kvpic", role: "img", width, height, viewBox: `0 0 ${width} ${height}`, "aria-label": kvLabel(step, after) },
    ...parts);
}

function kvCell({ step }, node, left, top, width, { place, position, kind }) {
  const [token, slot] = [step.cache_length + node.depth, step.cache_length + place]; // where the token stands in the text and in the cache
  return svg("g", { class: "mdv-kvcell is-" + kind, "data-node": node.id },
    svg("title", {}, say`node ${node.id} ${visible(node.text, node.token_id)}: position ${token}, slot ${slot}`),
    svg("g", { transform: `translate(${left},${top})` },
      svg("text", { class: "slot", x: width / 2, y: -6, "text-anchor": "middle" }, slot),
      svg("rect", { x: 1, width: width - 2, height: KV.height, rx: 4 }), kvToken(node, width),
      position && svg("text", { class: "position", x: width / 2, y: KV.height + 14, "text-anchor": "middle" }, token)));
}

function kvToken(node, width) {
  const shown = clip(visible(node.text, node.token_id), width - 8, "12px ui-monospace, monospace");
  return svg("text", { class: "word", x: width / 2, y: 19, "text-anchor": "middle" }, shown);
}

function prefixOf(scene, top, width, words) {
  const { step } = scene;
  const { cache_length: length } = step;
  const window = step.drafter_rows ? null : attentionWindow(scene); // the drafter chose its rows from all
  const bins = rowsSeen(step, SEEN_BINS) || [];
  const pitch = (width - 6) / (bins.length || 1);
  const seen = bins.map((share, i) => (share ? svg("rect", { class: "seen", x: i * pitch, y: 1, width: pitch, height: KV.height - 2, "fill-opacity": 0.25 + 0.75 * share }) : null));
  return svg("g", { class: "mdv-kvprefix", transform: `translate(0,${top})` },
    svg("text", { class: "slot", x: 0, y: -6 }, window ? `${length - window + 1} … ${length - 1}` : length ? say`slot 0 … ${length - 1}` : say`slot`),
    svg("rect", { width: width - 6, height: KV.height, rx: 4 }),
    ...seen,
    svg("text", { class: "word", x: (width - 6) / 2, y: 19, "text-anchor": "middle" }, plural(window ? window - 1 : length, "row")),
    words && svg("text", { class: "position", x: width - 8, y: KV.height + 14, "text-anchor": "end" }, words));
}

const seenWords = (step) => (step.drafter_rows ? " " + say`The drafter saw ${plural(countSeen(step), "committed row")} of ${step.cache_length}, drawn darker; the verification reads all.` : "");

function kvArrow(from, to) {
  const [top, bottom] = [KV.top + KV.height + 18, KV.top + KV.drop - 18];
  return svg("path", { class: "mdv-kvmove", d: `M${from},${top}C${from},${bottom} ${to},${top} ${to},${bottom}` });
}

function freeOf(step, x, top, count) {
  const kept = step.path.length;
  if (kept === count) return null;
  const width = x(count) - x(kept);
  const free = count - kept;
  const words = [say`${plural(free, "slot")} free again`, say`${free} free`, String(free)]
    .find((each) => clip(each, width - 14, "12px system-ui, sans-serif") === each) ?? "";
  return svg("g", { class: "mdv-kvfree", transform: `translate(${x(kept)},${top})` },
    svg("rect", { x: 1, width: width - 2, height: KV.height, rx: 4 }),
    svg("text", { class: "word", x: 10, y: 19 }, words));
}

function kvLabel(step, after) {
  const base = step.cache_length;
  const rows = say`${plural(base, "committed row")}, then slots ${base} to ${base + step.nodes.length - 1} for the nodes of this step.`;
  if (!after) return rows;
  return say`${rows} Kept: ${step.path.map((node, place) => say`node ${node} in slot ${base + place}`).join(", ")}. The others are forgotten.`;
}

function lightKv(picture, { step, lit }) {
  const position = lit === null ? null : step.nodes[lit].depth;
  for (const cell of picture.querySelectorAll(".mdv-kvcell")) {
    const node = Number(cell.dataset.node);
    cell.classList.toggle("lit", node === lit);
    cell.classList.toggle("peer", position !== null && node !== lit && step.nodes[node].depth === position);
  }
}

const overwriteWords = ({ index, steps }) => (index < steps.length - 1 ? " " + say`The next step writes over what is forgotten.` : "");

// The kept rows of tokens after the end of the text.
function cutWords({ step }) {
  const cut = step.path.length - emittedNodes(step).length;
  return cut > 0 ? " " + say`The text ends before the last ${plural(cut, "row")}.` : "";
}

function kvCaption(scene) {
  const { step, lit } = scene;
  const base = step.cache_length;
  const lost = step.nodes.length - step.path.length;
  if (lit === null) {
    return say`Above a cell stands its slot in the cache, below it the token’s position in the text.` + " " + (lost
      ? say`${plural(step.path.length, "row")} kept, ${lost} forgotten.` + overwriteWords(scene) : say`${plural(step.path.length, "row")} kept.`)
      + cutWords(scene) + seenWords(step) + windowWords(scene);
  }
  const node = step.nodes[lit];
  const peers = step.nodes.filter((other) => other.depth === node.depth && other.id !== lit).map((other) => other.id);
  const place = step.path.indexOf(lit);
  const fate = place < 0 ? say`Rejected, so its row is forgotten.` + overwriteWords(scene)
    : place === lit ? say`Kept where it is.` : say`Kept: its row moves to slot ${base + place}.`;
  const shared = !peers.length ? "" : " " + (peers.length === 1
    ? say`Node ${peers[0]} has the same position, but other slots.` : say`Nodes ${listed(peers)} have the same position, but other slots.`);
  return say`Node ${lit} ${quoted(node)}: position ${base + node.depth} (${base} + depth ${node.depth}), slot ${base + lit} (${base} + node ${lit}).${shared} ${fate}`;
}
