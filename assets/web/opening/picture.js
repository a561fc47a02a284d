// The opening as one picture that can show any of its moments: made once, then only moved and faded. The page plays
// it, and the film is made of its frames.

const SHOW = { width: 1200, height: 640, pad: 28, chip: [72, 26], pitch: [78, 31], line: 27, scale: 1.2, type: 13 };
const TALL_SHOW = { width: 390, height: 780, pad: 14, chip: [52, 21], pitch: [56, 24], line: 19, scale: 1, type: 10 };
const WIDEST_PITCH = 112; // widest distance between columns
const MOVED_IN = 0.22; // share of a pass until its guesses are in their places
const JUDGED_AT = 0.78; // share from which kept tokens go into the text
const eased = (share) => { const s = Math.max(0, Math.min(1, share)); return s * s * (3 - 2 * s); };

// `paint(seconds)` draws a moment. `tall` is for a phone.
function openingPicture(trace, beside, tall) {
  const plan = openingPlan(trace, beside);
  const show = tall ? TALL_SHOW : SHOW;
  const picture = svg("svg", { class: "mdv-treepic mdv-showpic", viewBox: `0 0 ${show.width} ${show.height}`, role: "img",
    "aria-label": say`Plain decoding and Medusa write the same text, on one slowed clock.` });
  const half = tall ? show.width : (show.width - 3 * show.pad) / 2;
  const box = (i) => (tall ? { x: show.pad, y: 104 + i * 270, width: show.width - 2 * show.pad, height: i ? 400 : 255 }
    : { x: show.pad + i * (half + show.pad), y: 84, width: half, height: show.height - 84 - 20 });
  const words = wordsOf(show);
  const plain = laneOf(plan, plan.plain, box(0), show, say`Plain decoding`);
  const tree = laneOf(plan, plan.tree, box(1), show, say`Medusa`);
  picture.append(svg("text", { class: "mdv-filmtitle", x: show.pad, y: 30 }, say`Medusa in twenty seconds`), words.part, plain.part, tree.part);

  function paint(time) {
    words.write(openingWords(plan, time));
    plain.paint(time);
    tree.paint(time);
  }

  return { picture, paint, end: plan.end, width: show.width, height: show.height };
}

// The words, in at most two lines (three on a phone), rewritten only when they change.
function wordsOf(show) {
  const lines = Array.from({ length: 3 }, (_, i) => svg("text", { class: "mdv-filmtext", x: show.pad, y: 52 + i * 20 }));
  const part = svg("g", {}, ...lines);
  let said = "";
  function write(words) {
    if (words === said) return;
    said = words;
    const wrapped = wrapPieces([{ text: words }], show.width - 2 * show.pad, (text) => widthOf(text, FILM_FONT));
    lines.forEach((line, i) => { line.textContent = (wrapped[i] || []).map(({ text }) => text).join(""); });
  }
  return { part, write };
}

// A lane: its name, counters, the bar of the weights, the guesses of the pass that goes on, and the text.
function laneOf(plan, lane, box, show, name) {
  const inner = { x: box.x + 14, width: box.width - 28 };
  const big = "mdv-filmcount" + (show === SHOW ? "" : " mdv-showsmall");
  const counter = svg("text", { class: big, x: box.x + box.width - 14, y: box.y + 28, "text-anchor": "end" });
  const fill = svg("rect", { class: "mdv-showfill", width: inner.width, height: 12, rx: 4 });
  const bar = svg("g", { transform: `translate(${inner.x},${box.y + 44})` }, svg("rect", { class: "mdv-showbar", width: inner.width, height: 12, rx: 4 }), fill);
  const caption = svg("text", { class: "mdv-filmquiet", x: inner.x, y: box.y + 74 }, say`all weights read`);
  const marks = lane.passes.map((_, i) => svg("rect", { class: "mdv-showfill", x: inner.x + 118 + i * 8, y: box.y + 63, width: 5, height: 13, rx: 1, opacity: 0 }));
  const depths = Math.max(...lane.passes.map(({ step }) => (step ? Math.max(...step.nodes.map((node) => node.depth)) : 0)));
  const widest = Math.min(show.scale, inner.width / ((depths + 1) * show.pitch[0]));
  const pitch = Math.max(show.pitch[0], Math.min(WIDEST_PITCH, (inner.width / widest - show.chip[0]) / depths)); // columns fill the lane
  const heads = Array.from({ length: depths }, (_, i) => svg("text", { class: "mdv-filmquiet", "text-anchor": "middle", x: inner.x + ((i + 1) * pitch + show.chip[0] / 2) * widest, y: box.y + 100 }, show === SHOW ? say`head ${i + 1}` : String(i + 1)));
  const top = box.y + 110;
  const result = resultOf(lane, inner, (top + box.y + box.height - 3.4 * show.line) / 2, show);
  const text = textPlaces(plan, inner, box.y + box.height - 3.4 * show.line, show);
  const stays = text.prompt.map(({ words, x, y }) => svg("text", { class: "mdv-showprompt", x, y, "font-size": show.type }, words));
  const passes = lane.passes.map((pass, i) => passOf(lane, pass, i, { inner, top, show, text, widest, pitch, bottom: box.y + box.height - 4.4 * show.line }));
  const part = svg("g", {}, svg("rect", { class: "mdv-filmwell", x: box.x, y: box.y, width: box.width, height: box.height, rx: 10 }),
    svg("text", { class: big, x: inner.x, y: box.y + 28 }, name), counter, bar, caption, ...marks, ...heads, ...stays, result, ...passes.map((pass) => pass.part));

  let counted = -1;

  function paint(time) {
    const { done, tokens, now, share } = laneAt(lane, time);
    fill.setAttribute("transform", `scale(${now ? Math.max(0.001, eased((share - MOVED_IN * 0.6) / (JUDGED_AT - MOVED_IN * 0.6))) : 1},1)`);
    passes.forEach((pass, i) => pass.paint(i < done ? 1 : i === done ? share : null));
    if (done === counted) return;
    counted = done;
    result.setAttribute("opacity", now ? 0 : 1);
    heads.forEach((head) => head.setAttribute("opacity", now ? 1 : 0));
    counter.textContent = say`${plural(done, "pass", "passes")} · ${plural(tokens, "token")}`;
    marks.forEach((mark, i) => mark.setAttribute("opacity", i < done ? 1 : 0));
  }

  return { part, paint };
}

// A lane's result, in place of its guesses once it has ended.
function resultOf({ passes }, inner, middle, show) {
  const x = inner.x + inner.width / 2;
  return svg("g", { opacity: 0 }, svg("text", { class: "mdv-showresult", x, y: middle, "text-anchor": "middle", "font-size": show === SHOW ? 84 : 48 }, passes.length + "×"),
    svg("text", { class: "mdv-filmtext", x, y: middle + 30, "text-anchor": "middle" }, say`all weights read`));
}

// The nodes of one pass: each starts at the head of its column, takes its place in the tree, and ends in the text or
// fades. A pass without a tree has its one token.
function passOf(lane, pass, number, { inner, top, show, text, widest, pitch, bottom }) {
  const { step } = pass;
  const nodes = step ? step.nodes : pass.tokens;
  const first = lane.passes.slice(0, number).reduce((sum, each) => sum + each.tokens.length, 0);
  const rows = step ? treeRows(parentsOf(step)) : [0];
  const scale = Math.min(widest, (bottom - top - 8) / ((Math.max(...rows) + 1) * show.pitch[1]));
  const [wide, high] = show.chip;
  const parts = nodes.map((node, i) => {
    const kept = step ? step.path.indexOf(node.id) : 0;
    const place = kept >= 0 && kept < pass.tokens.length ? text.places[first + kept] : null;
    const chip = svg("rect", { class: "chip", width: wide, height: high, rx: 6 });
    const shown = place ? visible(node.text, node.token_id) : clip(visible(node.text, node.token_id), wide - 6, tokenFont(show.type));
    const words = svg("text", { class: "token", x: wide / 2, y: high / 2 + 4.5, "text-anchor": "middle", "font-size": show.type }, ...signed(shown));
    const group = svg("g", {}, chip, words);
    const depth = step ? node.depth : 0;
    const tree = { x: inner.x + depth * pitch * scale, y: top + rows[i] * show.pitch[1] * scale };
    const end = place && { x: place.x + place.width - (widthOf(shown, tokenFont(show.type)) + wide) / 2, y: place.y - high / 2 - 4.5 };
    return { group, chip, end, tree, born: { x: tree.x, y: top - 12 }, depth, isRoot: i === 0 };
  });
  const edges = parts.flatMap((each, i) => (step && i > 0 ? [edgeBetween(parts[step.nodes[i].parent].tree, each.tree, show.chip, scale)] : []));
  const lines = svg("g", { class: "mdv-showedges" }, ...edges);
  const part = svg("g", { opacity: 0 }, lines, ...parts.map(({ group }) => group));

  let painted;

  // `share` of the pass that is done, null before it.
  function paint(share) {
    if (share === painted) return; // most passes are over, or still to come
    painted = share;
    part.setAttribute("opacity", share === null ? 0 : 1);
    if (share === null) return;
    for (const each of parts) paintNode(each, share, scale);
    lines.setAttribute("opacity", (eased((share - MOVED_IN * 0.7) / 0.1) * (1 - eased((share - JUDGED_AT) / 0.1))).toFixed(3));
  }

  return { part, paint };
}

function paintNode({ group, chip, end, tree, born, depth, isRoot }, share, scale) {
  group.setAttribute("class", `mdv-node is-${isRoot ? "root" : end && share >= JUDGED_AT ? "accepted" : "spare"}`);
  const start = (depth * MOVED_IN) / 8;
  const came = eased((share - start) / (MOVED_IN - start));
  const gone = eased((share - JUDGED_AT) / (1 - JUDGED_AT));
  const at = (from, to, by) => from + (to - from) * by;
  let [x, y, size] = [at(born.x, tree.x, came), at(born.y, tree.y, came), scale];
  if (end) [x, y, size] = [at(x, end.x, gone), at(y, end.y, gone), at(size, 1, gone)];
  group.setAttribute("transform", `translate(${x.toFixed(1)},${y.toFixed(1)}) scale(${size.toFixed(3)})`);
  group.setAttribute("opacity", (came * (end ? 1 : 1 - gone)).toFixed(3));
  chip.setAttribute("opacity", (end ? 1 - gone : 1).toFixed(3));
}

function edgeBetween(from, to, [wide, high], scale) {
  const half = (high / 2) * scale;
  return svg("path", { class: "mdv-edge", d: curvePath(from.x + wide * scale, from.y + half, to.x, to.y + half) });
}

// Where the prompt's last words and the tokens stand, in three lines.
function textPlaces({ prompt, tokens }, inner, top, show) {
  const font = tokenFont(show.type);
  const measure = (words) => widthOf(words, font);
  const pieces = [{ text: "… " + prompt.split(/\s/).slice(-6).join(" ") }, ...tokens.map((node) => ({ text: visible(node.text, node.token_id).replaceAll("␣", " "), node }))];
  const sign = measure("␣"); // at the start of a line it gets its own place, as the words' own blanks are dropped there
  const lines = wrapPieces(pieces, inner.width - sign, measure);
  const places = new Map();
  const before = [];
  lines.forEach((line, row) => line.forEach(({ piece, text, x, width }) => {
    const at = { x: inner.x + x + (row && line[0].piece.node && line[0].piece.text.startsWith(" ") && !line[0].text.startsWith(" ") ? sign : 0), y: top + 18 + row * show.line, width };
    if (piece.node) places.has(piece.node) || places.set(piece.node, at);
    else before.push({ ...at, words: text });
  }));
  return { prompt: before, places: tokens.map((node) => places.get(node)) };
}
