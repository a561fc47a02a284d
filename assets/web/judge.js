// Verdicts on a candidate tree from recorded numbers. Pure; knows nothing about drawing.
// A node is alive when it and all its ancestors pass; the deepest alive node's ancestors are the path
// (Medusa, arXiv 2401.10774, section 2.3.1).

const parentsOf = (step) => step.nodes.map((node) => node.parent ?? -1);

// The node itself first, the root last.
function lineage(parents, node) {
  const line = [];
  for (let at = node; at >= 0; at = parents[at]) line.push(at);
  return line;
}

const typicalBar = (epsilon, delta, entropy) => Math.min(epsilon, delta * Math.exp(-entropy));

function recordedVerdict(step) {
  const parents = parentsOf(step);
  const passes = step.nodes.map((node, i) => i === 0 || Boolean(node.passes));
  return finish(step, parents, passes, step.path, step.nodes.map((node) => node.threshold));
}

// The typical rule, applied again with other settings.
function typicalVerdict(step, epsilon, delta) {
  const parents = parentsOf(step);
  const thresholds = step.nodes.map((node) =>
    node.entropy === null || node.entropy === undefined ? null : typicalBar(epsilon, delta, node.entropy));
  const passes = step.nodes.map((node, i) =>
    i === 0 || (thresholds[i] !== null && node.p !== null && node.p !== undefined && node.p > thresholds[i]));
  return finish(step, parents, passes, longestAlive(step, parents, passes), thresholds);
}

// Σ log p from the root's child down to the node: the tie-break between equally long paths.
function pathScore(step, parents, node) {
  return lineage(parents, node).reduce((sum, i) => sum + (i === 0 ? 0 : Math.log(step.nodes[i].p ?? 0)), 0);
}

function longestAlive(step, parents, passes) {
  let best = 0;
  let bestScore = 0;
  const depth = (i) => lineage(parents, i).length;
  for (let i = 1; i < parents.length; i++) {
    if (!lineage(parents, i).every((j) => passes[j])) continue;
    const score = pathScore(step, parents, i);
    const longer = depth(i) - depth(best);
    if (longer > 0 || (longer === 0 && score > bestScore)) [best, bestScore] = [i, score];
  }
  return lineage(parents, best).reverse();
}

// kind: root | accepted | rejected (fails itself) | orphan (passes, but an ancestor failed) | spare (alive, not on
// the longest path). dead: an ancestor failed, whatever the node itself does.
function finish(step, parents, passes, path, thresholds) {
  const onPath = new Set(path);
  const dead = parents.map((parent) => lineage(parents, parent).some((j) => !passes[j]));
  const kinds = parents.map((_, i) => {
    if (i === 0) return "root";
    if (onPath.has(i)) return "accepted";
    if (!passes[i]) return "rejected";
    return dead[i] ? "orphan" : "spare";
  });
  return { parents, passes, path, thresholds, kinds, dead };
}

// The ancestor nearest to the root that did not pass.
const failedAncestor = (verdict, node) =>
  lineage(verdict.parents, node).slice(1).reverse().find((i) => !verdict.passes[i]);

// How the shown verdict comes about: null for "as recorded", else the settings of the what-if.
function settleWhatIf(config, wanted) {
  if (!wanted || !Number.isFinite(wanted.epsilon) || !Number.isFinite(wanted.delta)) return null;
  const near = (a, b) => Math.abs(a - b) < 1e-9;
  const same = config.acceptance === "typical" && near(wanted.epsilon, config.epsilon) && near(wanted.delta, config.delta);
  return same ? null : { epsilon: wanted.epsilon, delta: wanted.delta };
}
