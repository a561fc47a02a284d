// One frame of the film: the text so far, the phase with a sentence, the tree as the page draws it, and the count.

const FILM = { narrow: 960, wide: 1080, pad: 20, line: 25, lines: 3, tallest: 620, head: 24, largest: 1 };
const FILM_ROOM = { width: FILM.narrow - 2 * FILM.pad, height: FILM.tallest, most: FILM.largest }; // columns move apart to fill it
const FILM_FONT = "15.5px system-ui, sans-serif"; // as .mdv-filmtext in share.css, for measuring
const TEXT_TOP = 46;
const PHASE_TOP = TEXT_TOP + FILM.lines * FILM.line + 30;
const TREE_TOP = PHASE_TOP + 92;

const FILM_LEGEND = [["root", phrase("base model")], ["accepted", phrase("kept")], ["rejected", phrase("rejected")], ["spare", phrase("passes, not kept")]];

// The scene of one frame: the run as it was judged, nothing pointed at, large trees folded.
function filmScene(trace, index, phase) {
  const state = { trace, index, phase, settings: null, node: null, hover: null, pinned: false, unfolded: false };
  const scene = Object.assign(sceneOf(state), { uid: "film" });
  // The kept path and the next root in one frame.
  return phase === "commit" ? Object.assign(scene, { stage: STAGE.next }) : scene;
}

// Which frames show a step: [phase, milliseconds]. Plain decoding has no guesses to show or to judge.
const filmPhases = (step) => (step.nodes.length > 1 ? [["propose", 1300], ["accept", 1700], ["commit", 2000]] : [["verify", 500], ["commit", 700]]);

// One size for all frames of these scenes.
function filmSize(scenes) {
  const plans = scenes.map((scene) => planTree(scene, false, FILM_ROOM));
  const widest = Math.max(...plans.map((plan) => plan.width));
  const highest = Math.max(...plans.map((plan) => plan.height)) + FILM.head;
  const width = Math.round(Math.min(FILM.wide, Math.max(FILM.narrow, widest + 2 * FILM.pad)));
  const scale = Math.min(FILM.largest, (width - 2 * FILM.pad) / widest, FILM.tallest / highest);
  return { width, scale, height: Math.ceil(TREE_TOP + highest * scale + 54) };
}

function filmFrame(scene, size) {
  const { width, height } = size;
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, ...headOf(scene, width), ...textBox(scene, width), ...phaseRow(scene, width),
    filmTree(scene, size), ...countOf(scene, size));
}

function headOf({ index, steps }, width) {
  return [svg("text", { class: "mdv-filmtitle", x: FILM.pad, y: 29 }, say`Medusa decoding, step by step`),
    svg("text", { class: "mdv-filmquiet", x: width - FILM.pad, y: 29, "text-anchor": "end" }, say`step ${index + 1} of ${steps.length}`)];
}

// The prompt and every token until now, each underlined by its origin; the last lines, where there are more.
function textBox(scene, width) {
  const { trace, steps, index, phase } = scene;
  const pieces = [{ text: trace.prompt.text, kind: "prompt" }];
  steps.slice(0, phase === "commit" ? index + 1 : index).forEach((step, i) => {
    for (const node of emittedNodes(step)) pieces.push({ text: node.text || visible(node.text, node.token_id), kind: node.origin.by ? "head" : "base", now: i === index });
  });
  const room = width - 2 * FILM.pad - 24;
  const lines = wrapPieces(pieces, room, (text) => widthOf(text, FILM_FONT)).slice(-FILM.lines);
  const box = svg("rect", { class: "mdv-filmwell", x: FILM.pad, y: TEXT_TOP, width: width - 2 * FILM.pad, height: FILM.lines * FILM.line + 14, rx: 8 });
  return [box, ...lines.flatMap((line, row) => line.flatMap((run) => textRun(run, FILM.pad + 12 + run.x, TEXT_TOP + 24 + row * FILM.line)))];
}

function textRun({ piece, text, width }, x, y) {
  const words = svg("text", { class: "mdv-filmtext", x, y }, text);
  if (piece.kind === "prompt" || width < 1) return [words];
  const line = (dy) => svg("path", { class: "mdv-filmline is-" + piece.kind, d: `M${x},${y + dy}h${width - 1.5}` });
  const ground = piece.now ? [svg("rect", { class: "mdv-filmnow is-" + piece.kind, x, y: y - 16, width: width - 1, height: 20 })] : [];
  return [...ground, words, line(5), ...(piece.kind === "base" ? [line(8)] : [])];
}

function phaseRow(scene, width) {
  let x = FILM.pad;
  const tabs = filmPhases(scene.step).flatMap(([name], i) => {
    const words = `${i + 1} ${say(PHASE_TITLES[name])}`;
    const wide = widthOf(words, "600 14px system-ui, sans-serif") + 24;
    const now = name === scene.phase ? " is-now" : "";
    const left = x;
    x += wide + 8;
    return [svg("rect", { class: "mdv-filmtab" + now, x: left, y: PHASE_TOP, width: wide, height: 28, rx: 6 }),
      svg("text", { class: "mdv-filmtabname" + now, x: left + wide / 2, y: PHASE_TOP + 19, "text-anchor": "middle" }, words)];
  });
  const lines = wrapPieces([{ text: filmWords(scene) }], width - 2 * FILM.pad, (text) => widthOf(text, FILM_FONT)).slice(0, 2);
  return [...tabs, ...lines.flatMap((line, row) => line.map((run) => svg("text", { class: "mdv-filmtext", x: FILM.pad + run.x, y: PHASE_TOP + 52 + row * 22 }, run.text)))];
}

// What happens in the frame, for a reader who has seen nothing else of the page.
function filmWords({ step, phase }) {
  const guesses = plural(step.nodes.length - 1, "guess", "guesses");
  const heads = headsOf(step);
  if (phase === "propose" && heads) return say`${plural(heads, "small head")} guess the next tokens at once: a tree of ${guesses}. q: how sure the head is.`;
  if (phase === "propose") return say`The drafter “${say(methodOf(step.nodes[1].origin.by).title)}” proposes ${guesses} after the root ${quoted(step.nodes[0])}.`;
  if (phase === "accept" && step.nodes.length === 2) return say`One forward pass of the model checks the guess. p: how likely the model itself finds it.`;
  if (phase === "accept") return say`One forward pass of the model checks all ${guesses}. p: how likely the model itself finds a guess.`;
  if (phase === "verify") return say`One forward pass of the model; nothing was guessed, so there is nothing to check.`;
  const kept = emittedNodes(step);
  const next = step.bonus ? " " + say`The model’s own next token, ${quoted(step.bonus)}, is the root of the next step.` : "";
  return say`${plural(kept.length, "token")} kept, for one forward pass: ${joined(kept)}.` + next;
}

function filmTree(scene, { scale }) {
  const plan = planTree(scene, false, FILM_ROOM);
  const edges = plan.shown.filter((i) => i > 0).map((i) => edgeOf(scene, plan, i));
  const folds = plan.folds.map((fold, k) => foldOf(plan, fold, plan.rowOf.get("fold" + k), null));
  const place = `translate(${FILM.pad - 8},${TREE_TOP}) scale(${scale})`;
  return svg("g", { transform: place }, svg("g", { class: "mdv-columns" }, ...columnTexts(plan)),
    svg("g", { class: "mdv-treepic", transform: `translate(0,${FILM.head})` }, ...edges, ...bonusOf(scene, plan), ...plan.shown.map((i) => chipOf(scene, plan, i)), ...folds));
}

// Below the tree: tokens and forward passes until now, and what the signs mean.
function countOf({ steps, index, phase, step }, { width, height }) {
  const done = steps.slice(0, phase === "commit" ? index + 1 : index);
  const tokens = done.reduce((sum, each) => sum + each.emitted.length, 0);
  const count = say`${plural(tokens, "token")} in ${plural(done.length, "forward pass", "forward passes")}`;
  const y = height - 20;
  const parts = [svg("path", { class: "mdv-filmrule", d: `M${FILM.pad},${height - 46}h${width - 2 * FILM.pad}` }), svg("text", { class: "mdv-filmcount", x: FILM.pad, y }, count)];
  if (step.nodes.length === 1) return parts;
  let x = width - FILM.pad;
  for (const [kind, words] of [...FILM_LEGEND].reverse()) {
    const name = say(words);
    x -= widthOf(name, "13px system-ui, sans-serif");
    parts.push(svg("text", { class: "mdv-filmquiet", x, y }, name));
    parts.push(svg("g", { class: "mdv-treepic" }, svg("g", { class: `mdv-node is-${kind}`, transform: `translate(${x - 24},${y - 13})` },
      svg("rect", { class: "chip", width: 18, height: 17, rx: 4 }), svg("text", { class: "mark", x: 9, y: 13, "text-anchor": "middle" }, MARKS[kind]))));
    x -= 40;
  }
  return parts;
}
