// Sentences: why a node was kept or not, and what a step did. Pure.

function explainNode(scene, i) {
  const { cuts } = scene.verdict;
  return explainVerdict(scene, i) + (cuts.has(i) ? " " + say`It is not in the text: ${cuts.get(i)}.` : "");
}

function explainVerdict(scene, i) {
  const { step, verdict } = scene;
  const node = step.nodes[i];
  if (i === 0) return explainRoot(scene, node);
  if (scene.ruling === "typical" && verdict.thresholds[i] !== null && node.p !== null) return explainTypical(scene, i);
  if (scene.ruling === "match" || scene.ruling === "greedy") return explainMatch(scene, i);
  if (scene.ruling === "rejection") return explainRejection(scene, i);
  if (scene.ruling === "nucleus") return explainNucleus(scene, i);
  return say`${proposer(node)} ${quoted(node)}: the model gives it p = ${probability(node.p)}. Verdict: ${node.reason}.`;
}

const guessWords = (node, p = probability(node.p)) => say`${proposer(node)} ${quoted(node)}: the model gives it p = ${p}.`;

// What rejection sampling compared (medusa_core/acceptance/rejection.py); null for a guess that was not tried. `p` and
// `q` are those left by the `refused` guesses before it at its place; q is null where the drafter did not draw.
function trialOf({ reason }) {
  const found = /^u = (\S+) [<≥] (p|p\/q) = ([^,]+)(?:, p = ([^,]+), q = ([^,]+))?(?:, (\d+) refused before)?$/.exec(reason);
  if (!found) return null;
  const number = (text) => (text === undefined ? null : text === "inf" ? Infinity : Number(text));
  const [u, bar, p, q] = [found[1], ...found.slice(3, 6)].map(number);
  return { u, what: found[2], bar, p: found[2] === "p" ? bar : p, q, refused: Number(found[6] ?? 0) };
}

function explainRejection(scene, i) {
  const node = scene.step.nodes[i];
  const trial = trialOf(node);
  if (!trial) {
    const why = scene.verdict.path.includes(scene.verdict.parents[i])
      ? say`It was not tried: another guess at its place was accepted before it.`
      : say`It was not tried: the guess it follows was not accepted.`;
    return guessWords(node) + " " + why;
  }
  const [u, bar] = pairOf(trial.u, trial.bar);
  const left = trial.what === "p" ? bar : probability(trial.p); // one p is printed in one way
  const first = trial.refused ? guessWords(node) : guessWords(node, left);
  const drawn = trial.what === "p" ? say`Its drafter does not draw, so q = 1.`
    : trial.refused ? say`The drafter drew it from what was left of its own, with q = ${probability(trial.q)}.`
    : say`The drafter drew it with q = ${probability(trial.q)}.`;
  const rest = !trial.refused ? "" : " " + (trial.refused === 1
    ? say`A guess before it at this place was refused; what that left is p = ${left}.`
    : say`${trial.refused} guesses before it at this place were refused; what they left is p = ${left}.`);
  const end = scene.verdict.passes[i]
    ? say`→ accepted because u = ${u} < ${trial.what} = ${bar}.`
    : say`→ rejected because u = ${u} ≥ ${trial.what} = ${bar}.` + fallout(scene, i);
  return `${first}${rest} ${drawn} ${end}`;
}

// What nucleus acceptance counted (medusa_core/acceptance/nucleus.py).
function explainNucleus(scene, i) {
  const node = scene.step.nodes[i];
  const [, won, tried] = /^drawn (\d+) of (\d+) times$/.exec(node.reason) || [];
  const guess = guessWords(node);
  if (!Number(tried)) return guess + " " + say`No path was drawn as far as the guess it follows.`;
  const end = !scene.verdict.passes[i] ? say`→ rejected, with all that follows it.`
    : scene.verdict.path.includes(i) ? say`→ accepted: its path was drawn for longest.` : say`→ drawn, but another path was drawn for longer.`;
  return guess + " " + say`At its parent the model drew ${plural(Number(tried), "token")} for the paths through it, and ${won} of them was this one.` + " " + end;
}

function explainRoot({ step, index }, node) {
  const guesses = step.nodes.length === 1 ? say`Nothing was guessed in this step.`
    : step.nodes.some((each) => isKnown(each.origin.head)) ? say`The heads’ guesses follow it.` : say`The drafter’s guesses follow it.`;
  const chosen = index === 0
    ? say`${quoted(node)} is the root. The base model itself chose it right after reading the prompt, so it needs no check and is always kept.`
    : say`${quoted(node)} is the root. The base model itself chose it at the end of the step before, so it needs no check and is always kept.`;
  return `${chosen} ${guesses}`;
}

function explainTypical(scene, i) {
  const { step, verdict } = scene;
  const node = step.nodes[i];
  const bar = verdict.thresholds[i];
  const { epsilon, delta } = scene.hypothetical || scene.config;
  const [p, b] = pairOf(node.p, bar);
  const formula = `min(ε, δ·e^−H) = min(${setting(epsilon)}, ${setting(delta)}·e^−${decimal(node.entropy)}) = ${b}`;
  const start = say`${proposer(node)} ${quoted(node)}: the model gives it p = ${p}; the bar is ${formula}.`;
  const compared = verdict.passes[i] ? `${p} > ${b}` : say`${p} is not above ${b}`;
  if (verdict.kinds[i] === "rejected") return say`${start} ${compared} → rejected.${fallout(scene, i)}`;
  if (verdict.kinds[i] === "orphan") return say`${start} ${compared}, so by itself it passes. ${deadBranch(scene, i)}`;
  if (verdict.kinds[i] === "spare") return say`${start} ${compared}, so it passes. ${notLongest(scene, i)}`;
  const parent = node.parent === 0 ? say`its parent is the root` : say`its parent passed too`;
  return say`${start} ${compared}, so it passes; ${parent} and it lies on the longest path → accepted.`;
}

function explainMatch(scene, i) {
  const { step, verdict } = scene;
  const node = step.nodes[i];
  const greedy = scene.ruling === "greedy";
  const start = guessWords(node);
  if (verdict.path.includes(i)) {
    const how = greedy ? say`It is the model’s own choice here, its most likely token` : say`The model’s one draw here fell on it`;
    return say`${start} ${how}, so the guess is right; it lies on the longest path → accepted.`;
  }
  if (verdict.kinds[i] === "orphan") return say`${start} It is what the model would choose at this place. ${deadBranch(scene, i)}`;
  if (verdict.kinds[i] === "spare") return say`${start} It is the model’s own choice. ${notLongest(scene, i)}`;
  const choice = ownChoice(scene, i);
  const rule = greedy ? say`The model takes its most likely token, and that was ${choice}` : say`The model draws once here, and the draw was ${choice}`;
  return say`${start} ${rule} → rejected.${fallout(scene, i)}`;
}

// What the model chose instead: a sibling that passed, the bonus where the path ended, or the likeliest token where that decides.
function ownChoice({ step, verdict, ruling, hypothetical }, i) {
  const parent = verdict.parents[i];
  const sibling = step.nodes.findIndex((_, j) => j > 0 && verdict.parents[j] === parent && verdict.passes[j]);
  if (sibling > 0) return quoted(step.nodes[sibling]);
  if (!hypothetical && step.bonus && step.path.at(-1) === parent) return quoted(step.bonus);
  const said = ruling === "greedy" && step.after.find((row) => row.node === parent);
  if (said && said.token_ids[0] !== step.nodes[i].token_id) return quoted({ text: said.texts[0], token_id: said.token_ids[0] }); // else they tie
  return say`another token`;
}

function deadBranch({ step, verdict }, i) {
  const failed = step.nodes[failedAncestor(verdict, i)];
  return say`But its ancestor ${quoted(failed)} (${originTag(failed)}) was rejected, so the whole branch after it falls → not kept.`;
}

function notLongest({ step, verdict }, i) {
  const rival = verdict.path.at(-1);
  const mine = lineage(verdict.parents, i).length;
  const end = quoted(step.nodes[rival]);
  if (mine < verdict.path.length) {
    return say`But it is not on the longest path: the branch that ends in ${end} keeps ${verdict.path.length} tokens, this one ${mine} → not kept.`;
  }
  const [own, other] = [i, rival].map((j) => decimal(pathScore(step, verdict.parents, j)));
  return say`The branch that ends in ${end} is just as long and likelier (Σ log p = ${other} against ${own}) → not kept.`;
}

// What a rejection means for the nodes around: what falls with it, or that its branch was dead anyway.
function fallout({ step, verdict }, i) {
  if (verdict.dead[i]) {
    const failed = step.nodes[failedAncestor(verdict, i)];
    return " " + say`Its branch was dead already: its ancestor ${quoted(failed)} (${originTag(failed)}) was rejected.`;
  }
  const fallen = verdict.parents.filter((_, j) => j !== i && lineage(verdict.parents, j).includes(i)).length;
  if (fallen === 0) return "";
  return " " + (fallen === 1 ? say`The guess after it falls with it.` : say`The ${fallen} guesses after it fall with it.`);
}

const joined = (nodes) => "“" + visible(nodes.map((node) => node.text).join("")) + "”";

function summarise(scene) {
  const { index, steps } = scene;
  const step = steps[index];
  const cuts = cutsOf(scene.trace, index);
  const kept = emittedNodes(step).filter((node) => !cuts.has(node.id));
  const reasons = [...cuts.values()];
  const cut = [...new Set(reasons)].map((reason) => [reasons.filter((each) => each === reason).length, reason])
    .map(([count, reason]) => (kept.length ? say`; ${count} more accepted, ${reason}` : say`; ${count} accepted, ${reason}`)).join("");
  const size = plural(sizeOf(step) - 1, "guess", "guesses");
  if (!kept.length) return say`Step ${index + 1} of ${steps.length}: ${size}, no token kept${cut}`;
  return say`Step ${index + 1} of ${steps.length}: ${size}, ${plural(kept.length, "token")} kept: ${joined(kept)}${cut}`;
}

function whatIfStart({ config, hypothetical, ruling, trace }) {
  if (ruling === "greedy") return say`At temperature 0, where only the model’s most likely token passes,`;
  const heat = setting(hypothetical.temperature);
  const bars = say`ε = ${setting(hypothetical.epsilon)} and δ = ${setting(hypothetical.delta)}`;
  if (rulingOf(config) !== "typical") return say`If judged by typical acceptance at temperature ${heat} with ${bars}`;
  if (near(hypothetical.temperature, config.temperature)) return say`With ${bars}`;
  const between = trace.temperatures.some((each) => near(each, hypothetical.temperature)) ? "" : " " + say`(p and H interpolated between recorded temperatures)`;
  return say`At temperature ${heat}${between} with ${bars}`;
}

function describeWhatIf(scene) {
  const { step, hypothetical, verdict, recorded } = scene;
  const now = verdict.path.length;
  const was = recorded.path.length;
  const same = now === was && verdict.path.every((node, i) => node === recorded.path[i]);
  const start = whatIfStart(scene);
  const kept = joined(verdict.path.map((i) => step.nodes[i]));
  if (same) return say`${start} this step would accept the same ${plural(now, "token")}: ${kept}.`;
  const versus = now === was ? say`${plural(now, "token")}, but others` : say`${plural(now, "token")} instead of ${was}`;
  return say`${start} this step would accept ${versus}: ${kept}.`;
}
