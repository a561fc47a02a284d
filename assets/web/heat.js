// A recorded step at another temperature: p and entropy of its nodes from what the trace holds of the model's
// other answers (medusa_core/trace/alternatives.py). Pure.

const heatOf = ({ temperature }) => (temperature <= 0 ? 1 : temperature); // temperature of a trace's p and entropy

// Which tokens top-k, top-p and min-p leave depends on the temperature or cannot be undone: no trace has the others.
const canReheat = (trace, step) => Boolean((trace.temperatures || []).length && step.after.length && !truncationOf(settingsOf(trace.config)).length);

// The step with p and entropy as they would be at temperature `to`; its path stays the recorded one.
function reheated(trace, step, from, to) {
  if (near(from, to)) return step;
  const after = new Map(step.after.map((row) => [row.node, heatedRow(trace.temperatures, row, from, to)]));
  const nodes = step.nodes.map((node) => {
    const row = node.parent === null ? null : after.get(node.parent);
    return row ? { ...node, p: row.pOf(node.p), entropy: row.entropy } : node;
  });
  return { ...step, nodes, after: step.after.map((row) => ({ ...row, p: row.p.map(after.get(row.node).pOf) })) };
}

// The likeliest tokens are recorded, so their share of Z and H is known at any temperature. What the rest adds is
// smooth, and is interpolated along 1/T between the temperatures that are recorded.
function heatedRow(temperatures, row, from, to) {
  const gaps = row.p.map((p) => (p > 0 ? from * Math.log(p / row.p[0]) : -Infinity)); // logits below the largest one
  const rests = temperatures.map((at, i) => restOf(topOf(gaps, at), row.log_z[i], row.entropy[i])).reverse();
  const x = temperatures.map((at) => 1 / at).reverse();
  const top = topOf(gaps, to);
  const rest = Math.exp(valueAt(x, rests.map((each) => each.logZ), 1 / to, gaps.at(-1)));
  const logZ = Math.log(top.z + rest);
  const each = Math.max(0, valueAt(x, rests.map(({ height }) => height), 1 / to, 0));
  const entropy = entropyOf(top, logZ) + each * rest * Math.exp(-logZ);
  // T · ln(p / pmax) is how far the token's logit is below the largest one, at any temperature.
  const pOf = (p) => (p > 0 ? Math.min(1, Math.exp((from * Math.log(p / row.p[0])) / to - logZ)) : p);
  return { pOf, entropy };
}

const ENTROPY_GUARD = 1e-5; // as medusa_core/acceptance/sampling.py
const LEAST_REST = 1e-6; // least remainder of Z that numbers of four decimals can show

function topOf(gaps, at) {
  const weights = gaps.map((gap) => Math.exp(gap / at));
  return { weights, z: weights.reduce((sum, weight) => sum + weight, 0) };
}

const entropyOf = ({ weights }, logZ) => weights.reduce((sum, weight) => {
  const p = weight * Math.exp(-logZ);
  return sum - p * Math.log(p + ENTROPY_GUARD);
}, 0);

// ln of what the other tokens add to Z, and what one of them adds to H on average, for its share of p.
function restOf(top, logZ, entropy) {
  const rest = Math.max(LEAST_REST, Math.exp(logZ) - top.z);
  const height = (entropy - entropyOf(top, logZ)) * Math.exp(logZ) / rest;
  return { logZ: Math.log(rest), height: Math.max(0, Math.min(-Math.log(ENTROPY_GUARD), height)) };
}

// A value between those at `x`, which rises: a cubic that never overshoots (Fritsch and Carlson 1980). Beyond the last
// value the slope lies between the one there and `beyond`.
function valueAt(x, values, at, beyond) {
  const last = x.length - 1;
  if (last === 0) return values[0];
  if (at >= x[last]) return values[last] + (at - x[last]) * (slopeAt(x, values, last) + beyond) / 2;
  const i = Math.max(0, x.findIndex((each) => each > at) - 1);
  const [h, t] = [x[i + 1] - x[i], Math.max(0, (at - x[i]) / (x[i + 1] - x[i]))];
  const [a, b] = [slopeAt(x, values, i), slopeAt(x, values, i + 1)];
  return values[i] * (1 + 2 * t) * (1 - t) ** 2 + h * a * t * (1 - t) ** 2 + values[i + 1] * t * t * (3 - 2 * t) + h * b * t * t * (t - 1);
}

// The harmonic mean of the slopes on both sides; at the ends, the slope of a parabola through three points.
function slopeAt(x, y, i) {
  const slope = (j) => (y[j + 1] - y[j]) / (x[j + 1] - x[j]);
  const last = x.length - 1;
  if (last === 1) return slope(0);
  if (i === 0 || i === last) {
    const [near, next] = i === 0 ? [0, 1] : [last - 1, last - 2];
    const [h, k] = [near, next].map((j) => x[j + 1] - x[j]);
    const bent = ((2 * h + k) * slope(near) - h * slope(next)) / (h + k);
    return bent * slope(near) <= 0 ? 0 : bent;
  }
  const [left, right] = [slope(i - 1), slope(i)];
  if (left * right <= 0) return 0;
  const [wl, wr] = [x[i + 1] - x[i], x[i] - x[i - 1]].map((h, k, both) => both[0] + both[1] + h);
  return (wl + wr) / (wl / left + wr / right);
}
