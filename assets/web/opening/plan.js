// The opening's timetable: the beginning of a recorded run twice on one slowed clock, by plain decoding and with its
// tree. Pure. Both lanes write the same text, since the run is greedy (tests/ui/test_shipped.py).

const [LEAST_SHOWN, MOST_SHOWN] = [18, 30]; // tokens of the run: up to the end of a sentence between these
const OPENING_SECONDS = 18; // duration of the slower lane; the result is read after it
const OPENING_AFTER = 2;

// Two lanes: {passes: [{start, end, tokens: nodes kept, step}], end}, in seconds. `beside` has the times of a pass
// as the two methods were measured (worth.js); without them every pass is drawn equally long.
function openingPlan(trace, beside) {
  const steps = [];
  const tokens = [];
  for (const step of trace.steps) {
    if (tokens.length >= MOST_SHOWN || (tokens.length >= LEAST_SHOWN && /[.!?]\s*$/.test(tokens.slice(-2).map((node) => node.text).join("")))) break;
    steps.push(step);
    tokens.push(...emittedNodes(step));
  }
  const [plainMs, treeMs] = beside ? [beside.timed_ms[0], beside.sized.ms] : [1, 1];
  const slow = OPENING_SECONDS / Math.max(tokens.length * plainMs, steps.length * treeMs);
  const lane = (kept, ms) => {
    const passes = kept.map((each, i) => ({ ...each, start: i * ms * slow, end: (i + 1) * ms * slow }));
    return { passes, end: passes.length * ms * slow };
  };
  const plain = lane(tokens.map((node) => ({ tokens: [node], step: null })), plainMs);
  const tree = lane(steps.map((step) => ({ tokens: emittedNodes(step), step })), treeMs);
  return { plain, tree, tokens, prompt: trace.prompt.text, isTimed: Boolean(beside), end: OPENING_SECONDS + OPENING_AFTER };
}

// A lane's progress at a time: whole passes done, tokens they wrote, the current pass and its share done.
function laneAt({ passes, end }, time) {
  const done = time >= end ? passes.length : passes.findIndex((pass) => time < pass.end);
  const now = passes[done] || null;
  return { done, tokens: passes.slice(0, done).reduce((sum, pass) => sum + pass.tokens.length, 0), now, share: now ? (time - now.start) / (now.end - now.start) : 1 };
}

// The words at a time, for a reader new to the subject.
function openingWords({ plain, tree, tokens, isTimed }, time) {
  if (time < 4.5) return say`To write one token, a language model reads all its weights once. Then it begins again.`;
  if (time < 9) return say`Medusa’s heads guess the next tokens from what the last pass left: a tree of guesses.`;
  if (time < 13.5) return say`One pass of the model checks the whole tree: it reads the weights once and keeps what it would have written.`;
  if (time < plain.end) return say`The rest is dropped. Both write the same text, Medusa in fewer passes.`;
  const counted = say`${plural(tokens.length, "token")} in ${tree.passes.length} passes, not ${plain.passes.length}.`;
  if (!isTimed) return counted;
  const faster = plain.end / tree.end, longer = (tree.end / tree.passes.length) / (plain.end / plain.passes.length);
  return counted + " " + say`A tree makes a pass of this small model ${decimal(longer)} times as long, so Medusa’s text is ready ${decimal(faster)} times as fast. A large model’s pass takes little longer with a tree.`;
}
