// The numbers that any card may name, from a run and from shipped records. What only some steps can give is in
// needs.js. Pure.

const percent = (share) => Math.round(100 * share) + " %";
const named = (node) => ({ token: visible(node.text, node.token_id) });
const namedLine = (step, line) => line.map((i) => named(step.nodes[i]));
const guessRank = (node) => node.origin.rank ?? 0;
const isFirst = (node) => guessRank(node) === 0;

function factsOf(trace, index, records) {
  const step = trace.steps[index];
  const config = settingsOf(trace.config);
  const rule = rulingOf(config);
  return {
    typical: rule === "typical", greedy: rule === "greedy", sampling: !["typical", "greedy", "nucleus"].includes(rule), nucleus: rule === "nucleus", matching: rule === "match", rejection: rule === "rejection", temperature: setting(config.temperature),
    epsilon: setting(config.epsilon ?? NaN), delta: setting(config.delta ?? NaN),
    index, step: index + 1, next_step: index + 2, before: step.cache_length, nodes: step.nodes.length, ...factsOfRun(trace),
    ...factsOfHeads(trace, records), ...factsOfTimes(trace, step, records), ...factsOfLearning(records), ...factsOfMethods(records), ...records.computed,
  };
}

function factsOfRun({ steps }) {
  const tokens = steps.reduce((sum, step) => sum + step.emitted.length, 0);
  const deepest = Math.max(...steps.flatMap((step) => step.nodes.map((node) => node.depth)));
  return { tokens, steps: steps.length, deepest, fewest: Math.ceil(tokens / (deepest + 1)), mean: decimal(tokens / steps.length), mean_value: tokens / steps.length };
}

function factsOfHeads(trace, { base, hidden, accuracies }) {
  const measured = base === trace.model.base;
  return {
    measured, unmeasured: !measured, hidden, heads: measured ? accuracies.length : Math.max(...trace.steps.flatMap((step) => step.nodes.map((node) => node.origin.head ?? 0))),
    first_right: percent(accuracies[0][0]), second_right: percent(accuracies[0][1]),
  };
}

const largest = (rows, valueOf) => rows.reduce((one, row) => (valueOf(row) > valueOf(one) ? row : one));

// Times of the record at the size nearest to this run's tree, and the sizes that pay most and least.
function factsOfTimes(trace, step, records) {
  const rows = records.latency;
  const plain = rows[0];
  const overheadOf = (row) => row.step_ms / plain.step_ms;
  const own = largest(rows, (row) => -Math.abs(row.nodes - step.nodes.length));
  const best = largest(rows, (row) => row.tokens_per_step / overheadOf(row));
  const big = rows.at(-1);
  const mean = factsOfRun(trace).mean_value;
  // Computed from rounded numbers, so that a reader who divides what is shown gets the same result.
  const ratio = (above, below) => decimal(Number(decimal(above)) / Number(decimal(below)));
  const told = (name, row) => ({
    [name + "_nodes"]: row.nodes, [name + "_mean"]: decimal(row.tokens_per_step),
    [name + "_overhead"]: decimal(overheadOf(row)), [name + "_speedup"]: ratio(row.tokens_per_step, overheadOf(row)),
  });
  return {
    plain_ms: decimal(plain.step_ms), tree_ms: decimal(own.step_ms), measured_nodes: own.nodes, overhead: decimal(overheadOf(own)),
    sized: records.base === trace.model.base && rows.length > 2, speedup: ratio(mean, overheadOf(own)), ...told("best", best), ...told("big", big),
  };
}

function factsOfMethods({ methods }) {
  const { speedup } = methods.find(({ name }) => name === "tokenswift") || {};
  return { swift_speedup: isKnown(speedup) ? decimal(speedup) : "–" };
}

function factsOfLearning({ accuracies, head_decay: decay, trainings }) {
  const rights = accuracies.map((row) => row[0]);
  const worst = largest(trainings, (row) => row.loss);
  const joint = trainings.find(({ label }) => label.startsWith("Medusa-2"));
  return {
    decay, heads_known: rights.length, last_right: percent(rights.at(-1)), chance: percent(rights[0] ** rights.length),
    worst: worst.label, worst_loss: decimal(worst.loss), joint_loss: decimal(joint?.loss), plain_loss: decimal(trainings[0].loss),
  };
}
