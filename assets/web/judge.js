// Verdicts on a candidate tree from recorded numbers. Pure; knows nothing about drawing.
// A node is alive when it and all its ancestors pass; the deepest alive node's ancestors are the path
// (Medusa, arXiv 2401.10774, section 2.3.1).

const JUDGING = ["acceptance", "temperature", "epsilon", "delta"]; // the settings that a verdict depends on
const parentsOf = (step) => step.nodes.map((node) => node.parent ?? -1);

// The node itself first, the root last.
function lineage(parents, node) {
  const line = [];
  for (let at = node; at >= 0; at = parents[at]) line.push(at);
  return line;
}

const typicalBar = (epsilon, delta, entropy) => Math.min(epsilon, delta * Math.exp(-entropy));

// The engine's own verdict, with the step's `cuts`.
function recordedVerdict(step, cuts) {
  const parents = parentsOf(step);
  const passes = step.nodes.map((node) => node.passes);
  const verdict = finish(parents, passes, step.path, step.nodes.map((node) => node.threshold), cuts);
  const kinds = verdict.kinds.map((kind, i) => (kind === "rejected" && step.nodes[i].reason.startsWith("not tried") ? "untried" : kind));
  return { ...verdict, kinds };
}

// The typical rule, applied again with other settings.
function typicalVerdict(step, epsilon, delta) {
  const parents = parentsOf(step);
  const thresholds = step.nodes.map((node) =>
    isKnown(node.entropy) ? typicalBar(epsilon, delta, node.entropy) : null);
  const passes = step.nodes.map((node, i) =>
    i === 0 || (thresholds[i] !== null && isKnown(node.p) && node.p > thresholds[i]));
  const score = (node) => pathScore(step, parents, node);
  return finish(parents, passes, longestAlive(parents, passes, score), thresholds, new Map());
}

// The rule of temperature 0: a node passes when it is the model's most likely token after its parent. Of equally
// long paths, the first by node number wins.
function greedyVerdict(step) {
  const parents = parentsOf(step);
  const best = new Map(step.after.map((row) => [row.node, row.token_ids[0]]));
  const passes = step.nodes.map((node, i) => i === 0 || best.get(parents[i]) === node.token_id);
  return finish(parents, passes, longestAlive(parents, passes), parents.map(() => null), new Map());
}

// Σ log p from the root's child down to the node: the typical rule's tie-break between equally long paths.
function pathScore(step, parents, node) {
  return lineage(parents, node).reduce((sum, i) => sum + (i === 0 ? 0 : Math.log(step.nodes[i].p ?? 0)), 0);
}

function longestAlive(parents, passes, scoreOf = () => 0) {
  let best = 0;
  let bestScore = 0;
  const depth = (i) => lineage(parents, i).length;
  for (let i = 1; i < parents.length; i++) {
    if (!lineage(parents, i).every((j) => passes[j])) continue;
    const score = scoreOf(i);
    const longer = depth(i) - depth(best);
    if (longer > 0 || (longer === 0 && score > bestScore)) [best, bestScore] = [i, score];
  }
  return lineage(parents, best).reverse();
}

// kind: root | accepted | cut (accepted, but not in the text) | rejected (fails itself) | orphan (passes, but an
// ancestor failed) | spare (alive, not on the longest path) | untried (under a rule that stops at what it accepts). dead: an ancestor failed, whatever the node itself does.
function finish(parents, passes, path, thresholds, cuts) {
  const onPath = new Set(path);
  const dead = parents.map((parent) => lineage(parents, parent).some((j) => !passes[j]));
  const kinds = parents.map((_, i) => {
    if (i === 0) return "root";
    if (onPath.has(i)) return cuts.has(i) ? "cut" : "accepted";
    if (!passes[i]) return "rejected";
    return dead[i] ? "orphan" : "spare";
  });
  return { parents, passes, path, thresholds, kinds, dead, cuts };
}

// The ancestor nearest to the root that did not pass.
const failedAncestor = (verdict, node) =>
  lineage(verdict.parents, node).slice(1).reverse().find((i) => !verdict.passes[i]);

// The rule that decides: at temperature 0 every rule accepts only the model's most likely token.
const rulingOf = ({ acceptance, temperature }) => (temperature <= 0 ? "greedy" : acceptance);

const near = (a, b) => Math.abs(a - b) < 1e-9;

// The controls' settings as a what-if on a run of `config`: null where they change none of its verdicts, or where its
// numbers cannot tell. A trace holds p and entropy at the run's temperature, at 1 for a run of temperature 0; only
// one that `reheats` tells them at others (heat.js) and what the model would choose. No trace has the draws.
function settleWhatIf(config, settings, reheats = false) {
  if (!settings) return null;
  const wanted = Object.fromEntries(JUDGING.map((name) => [name, settings[name] ?? config[name]]));
  const [ruling, before] = [rulingOf(wanted), rulingOf(config)];
  if (ruling === "greedy") return reheats && before !== "greedy" ? wanted : null;
  if (ruling !== "typical" || ![wanted.epsilon, wanted.delta, wanted.temperature].every(Number.isFinite)) return null;
  if (wanted.epsilon <= 0 || wanted.delta <= 0) return null; // typed; corrected on leaving the field
  if (!reheats && !near(wanted.temperature, heatOf(config))) return null;
  const same = before === "typical" && ["epsilon", "delta", "temperature"].every((name) => near(wanted[name], config[name]));
  return same ? null : wanted;
}

// A scene whose step keeps what the verdict on screen keeps: under a what-if, the cache and its phases follow that.
function asJudged(scene) {
  if (!scene.hypothetical) return scene;
  const { step, recorded, verdict } = scene;
  const { path } = verdict;
  const bonus = path.at(-1) === recorded.path.at(-1) ? step.bonus : null;
  return { ...scene, step: { ...step, path, bonus, emitted: path.map((i) => step.nodes[i].token_id) } };
}

// Why accepted nodes of a step are not in the run's text, by node; most steps have none.
const CUTS = {
  length: phrase("cut by the token budget"), eos: phrase("after the end of the text"), stop: phrase("after the stop string"),
  context: phrase("cut, as the context is full"),
};

function cutsOf(trace, index) {
  const step = trace.steps[index];
  const cuts = new Map();
  const reason = trace.output?.finish_reason;
  if (reason === "stop") stopStringOf(trace, index).forEach((node) => cuts.set(node, say`part of the stop string`));
  if (step.bonus) return cuts; // the run went on
  const { path, emitted } = step;
  if (reason === "eos") cuts.set(path[emitted.length - 1], say`the end-of-text token, not part of the text`);
  path.slice(emitted.length).forEach((node) => cuts.set(node, say(CUTS[reason] || phrase("cut where the run ended"))));
  return cuts;
}

// Emitted nodes that begin beyond the place where the stop string cut the text.
function stopStringOf(trace, index) {
  const { steps, output } = trace;
  let at = sumsOf(trace).characters[index];
  return emittedNodes(steps[index]).filter((node) => {
    at += node.text.length;
    return at - node.text.length >= output.text.length;
  }).map((node) => node.id);
}

// The step whose verdict changes with the smallest move of ε or δ, so that moving a slider a little shows something at
// once; the first of several. 0 where none changes, as in a run that was judged by another rule.
const MOVES_OF_BAR = [1.1, 1.25, 1.5, 2, 3];

function turningStep({ config, steps }) {
  const { epsilon, delta } = settingsOf(config);
  const path = (step, ...bar) => typicalVerdict(step, ...bar).path.join();
  for (const by of MOVES_OF_BAR) {
    const bars = [[epsilon * by, delta], [epsilon / by, delta], [epsilon, delta * by], [epsilon, delta / by]];
    const found = steps.findIndex((step) => isJudgedByBar(step) && bars.some((bar) => path(step, ...bar) !== path(step, epsilon, delta)));
    if (found >= 0) return found;
  }
  return 0;
}

const isJudgedByBar = (step) => step.nodes.length > 1 && step.nodes.every((node, i) => i === 0 || isKnown(node.entropy));
