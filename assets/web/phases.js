// The phases of one step in their order, each with its words, its tensors' shapes and its time. Pure.
// N nodes · K heads · L committed rows · A accepted nodes · d hidden size · V vocabulary

const PHASE_ORDER = ["propose", "layout", "mask", "verify", "accept", "commit", "next"];
const PHASE_TITLES = {
  propose: phrase("Propose"), layout: phrase("Lay out"), mask: phrase("Mask"), verify: phrase("Verify"), accept: phrase("Accept"), commit: phrase("Commit"),
  next: phrase("Next root"),
};
// Which of the engine's four clocks times a phase; the phase with the clock's name shows its share.
const TIMED_BY = { propose: "propose", layout: "propose", mask: "verify", verify: "verify", accept: "accept", next: "accept", commit: "commit" };

// Those whose picture is the step's row of cache slots.
const ROW_PHASES = ["layout", "verify", "commit"];

// Plain decoding guesses nothing: no tree to propose, to lay out or to accept.
const phasesOf = (step) => (sizeOf(step) > 1 ? PHASE_ORDER : ["verify", "commit", "next"]);

// How far a step has come: the place of the shown phase; a whole step is beyond all of them.
const STAGE = Object.fromEntries(PHASE_ORDER.map((name, i) => [name, i]));

// The phase to show in a step that may not have it: itself, or the next one in the step.
function phaseIn(step, phase) {
  if (!phase) return null;
  const own = phasesOf(step);
  return own.find((name) => STAGE[name] >= STAGE[phase]) ?? own.at(-1);
}

// A recording's milliseconds come from another day and machine than the tabs' speeds, so only shares are shown.
const isRecording = ({ note, failure }) => Boolean(note && !failure);

function timeWords(step, phase, recording) {
  const clock = TIMED_BY[phase];
  if (clock !== phase && phasesOf(step).includes(clock)) return say`time counted with “${say(PHASE_TITLES[clock])}”`;
  if (recording && step.index === 0) return ""; // it was timed cold, so its shares are unlike those of other steps
  const ms = step.ms[clock];
  const share = Math.round((100 * ms) / (step.ms.total || 1));
  return recording ? say`${share} % of the step in this run` : say`${decimal(ms, ms < 10 ? 2 : 1)} ms, ${share} % of the step`;
}

// Shapes as [name, shape]: letters with this step's numbers where the trace has them.
function shapesOf({ trace, step }, phase) {
  const { hidden, vocabulary, layers } = trace.sizes || {};
  const size = (letter, value) => (isKnown(value) ? `${letter} = ${value.toLocaleString("en")}` : letter);
  const [n, l, a] = [size("N", step.nodes.length), size("L", step.cache_length), size("A", step.path.length)];
  const [d, v] = [size("d", hidden), size("V", vocabulary)];
  const heads = headsOf(step, trace);
  const shapes = {
    propose: heads ? [[say`hidden state`, `[1, ${d}]`], [say`heads’ logits`, `[K = ${heads}, ${v}]`]] : [[say`tokens drafted`, `[N − 1 = ${step.nodes.length - 1}]`]],
    layout: [[say`tokens`, `[1, ${n}]`], [say`positions`, `[1, ${n}]`]],
    mask: [[say`mask`, `[${n}, L + N = ${step.cache_length} + ${step.nodes.length}]`]],
    verify: [[say`tokens in`, `[1, ${n}]`], [say`logits out`, `[${n}, ${v}]`],
      [say`new cache rows`, isKnown(layers) ? say`${n} in each of ${layers} layers` : say`${n} in each of the layers`]],
    accept: [[say`p, one a node`, `[${n}]`], [say`accepted path`, `[${a}]`]],
    commit: [[say`cache before`, `[${l}]`], [say`cache after`, `[L + A = ${step.cache_length + step.path.length}]`]],
    next: [[say`logits of the last kept row`, `[1, ${v}]`]],
  };
  return shapes[phase];
}

// How many heads were asked, 0 for a drafter without heads; for a dynamic tree all heads, even those without a node.
function headsOf(step, trace) {
  const seen = Math.max(0, ...step.nodes.map((node) => node.origin.head ?? 0));
  return seen && trace && dynamicNodes(trace) ? allHeads(trace) || seen : seen;
}

// How many heads the model has, 0 where its name does not say.
const allHeads = (trace) => Number(/(\d+) Medusa heads/.exec(trace.model.name)?.[1] ?? 0);

// The nodes of a dynamic tree, which has another shape in each step; 0 for other trees.
function dynamicNodes({ config }) {
  const [, nodes] = /^dynamic-([1-9]\d{0,2})$/.exec(config.drafter.settings.tree) || [];
  return Number(nodes || 0);
}

const PHASE_WORDS = {
  propose: proposeWords,
  layout: ({ step }) => {
    const shared = sharedPosition(step);
    const example = shared ? " " + say`Nodes ${listed(shared.nodes)} stand at position ${shared.position}, since each would be the ${ordinal(shared.depth)} token after the root; yet each has a slot of its own.` : "";
    return say`The tree becomes one row of ${step.nodes.length} tokens. A node’s position is ${step.cache_length} + its depth, its cache slot ${step.cache_length} + its number.${example}`;
  },
  mask: (scene) => say`Each node may look at the ${committedWords(scene)}, at its own ancestors and at itself.` + " "
    + say`A node of another branch is hidden: with it in sight, the model would read a text that no path of the tree spells.`,
  verify: ({ step }) => (step.nodes.length > 1
    ? say`One forward of the base model reads all ${step.nodes.length} rows at once. After every node it says how likely each next token is: from that comes each guess’s p, read at its parent.`
    : say`One forward of the base model reads the root’s row and says how likely each next token is. Nothing was guessed, so there is nothing to check.`),
  accept: acceptWords,
  commit: commitWords,
  next: ({ step, recorded, hypothetical }) => {
    const last = step.nodes[step.path.at(-1)];
    if (!step.bonus && hypothetical) return say`What the model says after ${quoted(last)} was not recorded, so the next root is not known.`;
    if (!step.bonus) return say`The run ends here: ${[...recorded.cuts.values()][0] || say`there is no next root`}.`;
    return say`The forward has already said what comes after the last kept token ${quoted(last)}: ${quoted(step.bonus)}, from the base model itself. It costs no extra forward, needs no check and is the root of the next step.`;
  },
};

function proposeWords({ step, steps, index, trace }) {
  const heads = headsOf(step, trace);
  if (!heads) {
    const { by } = (step.nodes[1] || step.nodes[0]).origin;
    const proposed = say`The drafter “${say(methodOf(by).title)}” proposes ${plural(step.nodes.length - 1, "token")} after the root ${quoted(step.nodes[0])}.`;
    return [proposed, ...(methodOf(by).drafting?.words ?? []).map((words) => say(words))].join(" ");
  }
  const before = steps[index - 1];
  const last = before ? quoted(pathNodes(before).at(-1)) : say`the prompt’s last token`;
  if (step.nodes.some((node) => methodOf(node.origin.by).sequential)) { // the heads read the tokens drafted before their guesses
    return say`The hidden state of the last kept token, ${last}, goes into head 1 together with the root ${quoted(step.nodes[0])}, the base model’s own next token. Of ${plural(heads, "head")}, head k then reads the tokens drafted before it on each path too, so its guesses differ from path to path. q is the head’s own probability on that path.`;
  }
  const unused = allHeads(trace) > heads ? " " + say`The model has ${allHeads(trace)} heads; a tree of this depth asks ${heads} of them.` : "";
  const chosen = dynamicNodes(trace) ? " " + say`The tree is dynamic: its nodes are the guesses whose q, multiplied along the path, is largest.` : "";
  return say`The hidden state of the last kept token, ${last}, goes into ${plural(heads, "head")} at once. The base model’s own next token is the root ${quoted(step.nodes[0])}; head k guesses the token k places after it, without seeing the other heads. q is the head’s own probability.` + unused + chosen;
}

function acceptWords({ step, ruling, config, hypothetical, verdict }) {
  const { epsilon, delta } = hypothetical || config;
  const rule = {
    typical: say`A node passes when the model’s p is above its bar, min(ε, δ·e^−H) with ε = ${setting(epsilon)}, δ = ${setting(delta)}; H is how undecided the model is there.`,
    greedy: say`A node passes when it is the model’s own most likely token.`,
    match: say`The model draws one token at each node; a guess passes when it is that token.`,
    nucleus: say`For each path from the root to a leaf the model draws a new token at each of its nodes; a guess passes when it is that token on a path, and the longest path that was drawn is kept.`,
    rejection: say`A guess passes when a random number u in [0, 1) is below p/q, the model’s p over the drafter’s q; a drafter that does not draw has q = 1. After a refused guess, p is reduced to what exceeds q; where all are refused, the model draws from that rest.`,
  }[ruling] || say`The rule judges each node.`;
  const passed = verdict.passes.filter((passes, i) => i > 0 && passes).length;
  const guesses = plural(step.nodes.length - 1, "guess", "guesses");
  const tried = verdict.kinds.filter((kind, i) => i > 0 && kind !== "untried").length;
  if (ruling === "rejection") return say`${rule} Guesses are tried from the root on; where one passes, its children follow: ${tried} of ${guesses} tried, ${passed} passed, ${plural(verdict.path.length, "token")} kept.`;
  const kept = plural(verdict.path.length, "token");
  if (passed === 1) return say`${rule} 1 of ${guesses} passes by itself; kept is the longest path from the root on which all pass: ${kept}.`;
  return say`${rule} ${passed} of ${guesses} pass by themselves; kept is the longest path from the root on which all pass: ${kept}.`;
}

function commitWords(scene) {
  const { step } = scene;
  const { path } = step;
  const moved = path.filter((node, place) => node !== place);
  const lost = step.nodes.length - path.length;
  const base = step.cache_length;
  const kept = path.length === 1 ? say`1 row of keys and values stays` : say`${path.length} rows of keys and values stay`;
  const moves = moved.map((node) => say`, slot ${base + node} moves to ${base + path.indexOf(node)}`).join("");
  const gone = !lost ? "" : " " + (lost === 1 ? say`The 1 other row is forgotten.` : say`The ${lost} other rows are forgotten.`) + overwriteWords(scene);
  return say`${kept}${moves}. Nothing is computed again: slot and position agree once more.${gone}`;
}

// The nodes of the first position that several share.
function sharedPosition(step) {
  for (let depth = 1; ; depth++) {
    const nodes = step.nodes.filter((node) => node.depth === depth).map((node) => node.id);
    if (!nodes.length) return null;
    if (nodes.length > 1) return { depth, nodes, position: step.cache_length + depth };
  }
}

const ordinal = (count) => ["", say`first`, say`second`, say`third`, say`fourth`, say`fifth`][count] || say`${count}th`;
const listed = (ids) => (ids.length < 6 ? say`${ids.slice(0, -1).join(", ")} and ${ids.at(-1)}` : say`${ids[0]} to ${ids.at(-1)}`);
