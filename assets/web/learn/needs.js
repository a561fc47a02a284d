// What a card can need from a step of a run, by the card's name for it: the facts that such a step gives, or null if
// it gives none. Pure.

const NEEDS = {
  heads: (_, { config, steps }) => {
    const guesses = steps.flatMap((step) => step.nodes.slice(1));
    return config.drafter.name === "medusa" && guesses.length && guesses.every((node) => isKnown(node.origin.head)) ? {} : null;
  },
  before: (step, { steps }) => {
    const before = steps[steps.indexOf(step) - 1];
    return before ? { last: named(before.nodes[before.path.at(-1)]), root: named(step.nodes[0]) } : null;
  },
  rivals: factsOfRivals,
  second: factsOfSecond,
  cousin: factsOfSeer,
  places: factsOfPlaces,
  failed: factsOfFailed,
  dropped: factsOfPath,
  fed: factsOfFed,
  drafted: factsOfDraft,
  copied: factsOfCopied,
  exact: factsOfExact,
  fork: factsOfFork,
  part: factsOfPart,
  next: (step, { steps }) => (step.bonus && step !== steps.at(-1) ? { bonus: named(step.bonus), end_id: step.path.at(-1) } : null),
};

// The first kept guess that was not its head's likeliest, with the likeliest at the same place.
function secondGuess(step) {
  const node = step.path.slice(1).map((i) => step.nodes[i]).find((each) => !isFirst(each));
  if (!node) return null;
  const first = step.nodes.find((each) => each.parent === node.parent && isFirst(each));
  return first ? { node, first } : null;
}

// Tokens that a tree of only first guesses would have kept.
function keptAlone(step) {
  let count = 0;
  const firstAfter = ({ id }) => step.nodes.find((node) => node.parent === id && isFirst(node) && node.passes);
  for (let node = step.nodes[0]; node; node = firstAfter(node)) count++;
  return count;
}

function factsOfSecond(step, { steps }) {
  const second = secondGuess(step);
  const others = steps.filter((each) => each.path.some((i) => i > 0 && !isFirst(each.nodes[i])));
  const total = (lengthOf) => others.reduce((sum, each) => sum + lengthOf(each), 0);
  const [firstsKeep, treeKeeps] = [total(keptAlone), total((each) => each.path.length)];
  if (!second || firstsKeep >= treeKeeps) return null;
  const { node, first } = second;
  return {
    second_pays: keptAlone(step) < step.path.length && !first.accepted,
    second: named(node), second_id: node.id, first: named(first), rank: guessRank(node) + 1, head: node.origin.head,
    parent: named(step.nodes[node.parent]), family_id: node.parent, alone: keptAlone(step),
    kept: step.path.length, kept_text: namedLine(step, step.path),
    second_steps: others.length, no_second_steps: steps.length - others.length, firsts_keep: firstsKeep, tree_keeps: treeKeeps,
  };
}

// Two guesses for one place: with one parent if possible, else at one depth.
function factsOfRivals(step) {
  const guesses = step.nodes.slice(1);
  const second = secondGuess(step);
  const pairOf = (alike) => guesses.map((a) => [a, guesses.find((b) => b.id > a.id && alike(a, b))]).find(([, b]) => b);
  const pair = second ? [second.first, second.node] : pairOf((a, b) => a.parent === b.parent) || pairOf((a, b) => a.depth === b.depth);
  if (!pair) return null;
  const [a, b] = [...pair].sort((one, other) => one.id - other.id);
  return {
    a: named(a), b: named(b), a_id: a.id, b_id: b.id, pair_depth: a.depth, pair_position: step.cache_length + a.depth,
    a_slot: step.cache_length + a.id, b_slot: step.cache_length + b.id,
  };
}

// The deepest kept node, or else any deep one, and an earlier node that has another parent and is not an ancestor:
// one at the same depth where there is one, with other words.
function factsOfSeer(step) {
  const parents = parentsOf(step);
  const { nodes, path } = step;
  const deep = [path.at(-1), ...nodes.map((node) => node.id).sort((a, b) => nodes[b].depth - nodes[a].depth)];
  for (const seer of deep.map((id) => nodes[id]).filter((node) => node.depth > 1)) {
    const line = lineage(parents, seer.id);
    const words = new Set(line.map((i) => nodes[i].text));
    const others = nodes.filter((node) => node.id < seer.id && node.parent !== parents[seer.id] && !line.includes(node.id) && !words.has(node.text));
    const distance = (node) => Math.abs(node.depth - seer.depth);
    const [cousin] = others.sort((one, other) => distance(one) - distance(other));
    if (!cousin) continue;
    const above = (id) => lineage(parents, id).reverse();
    return {
      seer: named(seer), seer_id: seer.id, seer_line: namedLine(step, above(seer.parent)), seen: seer.depth + 1, so_far: seer.id + 1,
      cousin: named(cousin), cousin_id: cousin.id, cousin_line: namedLine(step, above(cousin.id)),
    };
  }
  return null;
}

// The guesses whose ancestors passed, the narrowest expectation first.
function aliveGuesses(step) {
  const parents = parentsOf(step);
  const guesses = step.nodes.slice(1).filter((node) => isKnown(node.entropy) && isKnown(node.p));
  const alive = guesses.filter((node) => lineage(parents, node.parent).every((i) => step.nodes[i].passes));
  return [...(new Set(alive.map((node) => node.parent)).size > 1 ? alive : guesses)].sort((a, b) => a.entropy - b.entropy);
}

// Whether one of the guesses at a node's place has most of the probability: the picture then shows where it lies.
const isSure = (step, node) => step.nodes.some((each) => each.parent === node.parent && each.p > 0.5);

// Whether two places clearly differ: in the bar, or in the entropy where there is no bar.
const differ = (narrow, wide) => (isKnown(wide.threshold) ? wide.threshold < 0.8 * narrow.threshold : wide.entropy > narrow.entropy + 1);
const barOf = (node) => probability(node.threshold);

// A narrow and a wide place of a step.
function placesOf(step) {
  const sorted = aliveGuesses(step);
  const wide = sorted.at(-1);
  const others = sorted.filter((node) => node.parent !== wide.parent);
  const narrow = others.find((node) => isSure(step, node)) || others[0];
  return narrow ? [narrow, wide] : null;
}

function factsOfPlaces(step) {
  const places = placesOf(step);
  if (!places) return null;
  const [narrow, wide] = places;
  return {
    narrow_h: decimal(narrow.entropy), wide_h: decimal(wide.entropy), narrow_id: narrow.id, wide_id: wide.id,
    narrow_bar: barOf(narrow), wide_bar: barOf(wide), typical_differs: isKnown(wide.threshold) && barOf(narrow) !== barOf(wide),
  };
}

function factsOfFailed(step) {
  const second = secondGuess(step);
  const found = [second?.first, ...aliveGuesses(step), ...step.nodes.slice(1)].find((node) => node && !node.passes && isKnown(node.p));
  return found ? { failed: named(found), failed_id: found.id, failed_p: probability(found.p), failed_bar: barOf(found) } : null;
}

// A kept guess and a dropped one, in a step whose path is entirely part of the text.
function factsOfPath({ path, nodes, emitted, bonus, cache_length: before }) {
  if (!bonus || path.length < 2 || path.length === nodes.length || path.length !== emitted.length) return null;
  return {
    kept: path.length, kept_text: namedLine({ nodes }, path), during: before + nodes.length, after: before + path.length,
    dropped: nodes.length - path.length, end_id: path.at(-1),
  };
}
