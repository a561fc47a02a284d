// Which step of a run each card is told with. Pure.

const MOST_STEPS_BACK = 400; // steps that are looked through for the one the cards are about

// Why no card at all can be told with a run, or "".
function unfitReason(trace) {
  if (!trace.output || !trace.steps.length) return "unfit_short";
  return trace.steps.some((step) => step.nodes.length > 1) ? "" : "unfit_method";
}

// Returns `tell(card)`, which gives {facts} of the step that has what the card needs, or {missing}: the name of what the run lacks.
// Nearly all cards are told with the same step, the one that shows most.
function makeTeller(trace, records) {
  const order = stepsByWorth(trace);
  const told = new Map();

  function look(card) {
    const needs = card.needs || [];
    const given = (index) => needs.map((need) => NEEDS[need](trace.steps[index], trace));
    const index = order.find((each) => given(each).every(Boolean));
    if (index === undefined) return { missing: needs.find((need) => !order.some((each) => NEEDS[need](trace.steps[each], trace))) || "together" };
    const facts = Object.assign(factsOf(trace, index, records), ...given(index));
    return questionOf(card, facts).choices.length > 1 ? { facts } : { missing: "question" };
  }

  return (card) => {
    if (!told.has(card.id)) told.set(card.id, look(card));
    return told.get(card.id);
  };
}

// The first and the last step only if no other will do: the first follows no step, the last has no next one.
function stepsByWorth(trace) {
  const last = Math.min(trace.steps.length, MOST_STEPS_BACK) - 1;
  const inner = Array.from({ length: Math.max(0, last - 1) }, (_, i) => i + 1);
  const worth = new Map(inner.map((index) => [index, worthOf(trace, index)]));
  return [...inner.sort((a, b) => worth.get(b) - worth.get(a) || a - b), ...new Set([0, last])];
}

// How much a step shows: a second guess that pays, several kept tokens, narrow and wide expectations, whole words.
function worthOf(trace, index) {
  const step = trace.steps[index];
  const second = secondGuess(step);
  const places = placesOf(step);
  const spread = places && differ(...places) && isSure(step, places[0]) && places[0].entropy < 0.8;
  const pays = second ? 2 + (!second.first.passes ? 3 : 0) + (second.node.depth === 1 ? 1 : 0) : 0;
  const failed = step.nodes.some((node, i) => i > 0 && !node.passes);
  const before = trace.steps[index - 1];
  const isWord = (node) => /\p{L}/u.test(node.text);
  const words = (isWord(before.nodes[before.path.at(-1)]) ? 1 : 0) + (step.path.every((i) => isWord(step.nodes[i])) ? 2.5 : 0);
  const whole = factsOfPath(step) && factsOfSeer(step) ? 20 : 0;
  return whole + pays + 1.5 * Math.min(4, step.path.length) + (spread ? 3 : 0) + (failed ? 1 : 0) + words;
}
