// What is known of every step of a run, whether its details are here or not. Pure.

// A step without its details: what text, scrubber and counters need. `line` has the nodes of its path.
const briefOf = (step) => (isBrief(step) ? step : {
  index: step.index, cache_length: step.cache_length, size: step.nodes.length, path: step.path, emitted: step.emitted, bonus: step.bonus, ms: step.ms,
  line: step.path.map((i) => step.nodes[i]).map(({ id, token_id, text, origin }) => ({ id, token_id, text, origin })),
});
const isBrief = (step) => step.line !== undefined;
const sizeOf = (step) => (isBrief(step) ? step.size : step.nodes.length);
const pathNodes = (step) => (isBrief(step) ? step.line : step.path.map((i) => step.nodes[i]));
const emittedNodes = (step) => pathNodes(step).slice(0, step.emitted.length);

// Sums over the steps of a run, made longer as it grows: `tokens[i]` and `characters[i]` are those before step i.
const sumsOf = (() => {
  const known = new WeakMap();
  return ({ steps }) => {
    if (!known.has(steps)) known.set(steps, { tokens: [0], characters: [0], most: 0 });
    const sums = known.get(steps);
    for (let i = sums.tokens.length - 1; i < steps.length; i++) {
      const nodes = emittedNodes(steps[i]);
      sums.tokens.push(sums.tokens[i] + nodes.length);
      sums.characters.push(nodes.reduce((sum, node) => sum + node.text.length, sums.characters[i]));
      sums.most = Math.max(sums.most, nodes.length);
    }
    return sums;
  };
})();

// The last place of rising `sums` that is not beyond `value`: the step in which it lies.
function placeIn(sums, value) {
  let [low, high] = [0, sums.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (sums[middle] <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}

// The committed rows of a long context in a few bins: in each the share of rows that the drafter saw, or null where
// the trace does not say which.
function rowsSeen({ cache_length: length, drafter_rows: ranges }, most) {
  if (!ranges || !length) return null;
  const count = Math.min(most, length);
  const shares = Array.from({ length: count }, () => 0);
  for (const [start, end] of ranges) {
    for (let bin = Math.floor((start * count) / length); bin < count && (bin * length) / count < end; bin++) {
      const [from, to] = [(bin * length) / count, ((bin + 1) * length) / count];
      shares[bin] += Math.max(0, Math.min(end, to) - Math.max(start, from)) / (to - from);
    }
  }
  return shares;
}

// How many positions every layer sees, if there are committed rows before them, else null.
function attentionWindow({ trace, step }) {
  const { window } = trace.model;
  return window && step.cache_length >= window ? window : null;
}

// The committed rows that the root sees, itself being the last position of the window; deeper nodes see fewer.
const rowsInSight = (scene) => (attentionWindow(scene) ? attentionWindow(scene) - 1 : scene.step.cache_length);

// The same for a sentence.
function committedWords(scene) {
  const [rows, window] = [plural(scene.step.cache_length, "committed row"), attentionWindow(scene)];
  return window ? say`last ${window - 1} of ${rows}` : rows;
}

const windowWords = (scene) => (attentionWindow(scene) ? " " + say`Every layer sees only the last ${attentionWindow(scene)} positions, its own among them.` : "");

const countSeen = ({ drafter_rows: ranges }) => ranges.reduce((sum, [start, end]) => sum + end - start, 0);

// The text of all steps, without the prompt.
const textOf = ({ steps }) => steps.map((step) => emittedNodes(step).map((node) => node.text).join("")).join("");
