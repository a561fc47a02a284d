// Pictures of the cards, drawn from the step on screen and from shipped records. What answers the card's question
// has the class "learn-secret" and stays hidden until the reader has answered.

const MOST_CELLS = 9; // nodes next to each other, in a row that can be read on a phone and in a lecture hall
const bit = (className, ...children) => html("div", { class: className }, ...children);
const secret = (className, ...children) => bit(className + " learn-secret", ...children);
const keyRow = (kinds, wordsOf, prefix = "is-") => bit("learn-key", ...kinds.map((kind) => html("span", {}, html("i", { class: prefix + kind }), wordsOf(kind))));

const PICTURES = {
  steps: stepsPicture, heads: headsPicture, row: rowPicture, bar: barPicture, cache: cachePicture, speed: speedPicture, learning: learningPicture,
  draft: ({ step, trace }) => [draftingPicture({ step, steps: trace.steps, trace })], methods: methodsPicture, exact: exactPicture, passes: cachePassesPicture, roofline: rooflinePicture, tiles: tilesPicture, yours: yoursPicture,
};

// A block for each pass, with a mark for each token that it wrote: plain decoding, and this run.
function stepsPicture({ trace, facts, say }) {
  const blocks = (counts) => bit("learn-passes", ...counts.map((count) => html("i", {}, ...Array.from({ length: count }, () => html("b", {})))));
  const counts = trace.steps.map((step) => step.emitted.length);
  return [html("h4", {}, say("plain_passes", facts)), blocks(Array.from({ length: facts.tokens }, () => 1)),
    html("h4", { class: "learn-secret" }, say("own_passes", facts)), html("div", { class: "learn-secret" }, blocks(counts))];
}

// From one hidden state to the root and to the guesses of each head.
function headsPicture({ step, facts, say }) {
  const rows = [[say("lm"), 1, [step.nodes[0]]]];
  for (let k = 1; k <= facts.heads; k++) rows.push([say("head", { k }), k + 1, guessesOf(step, k).slice(0, 4)]);
  const lines = rows.map(([name, far, guesses]) => bit("learn-headline" + (far === 1 ? " is-base" : ""),
    html("b", {}, name), secret("learn-far", say("token", { far })),
    bit("learn-guesses", ...guesses.map((node) => html("span", { class: "learn-chip" }, tokenOf(node), node.id ? html("i", {}, probability(node.draft_p)) : null)),
      guesses.length ? null : html("em", {}, say("unused")))));
  const cells = Array.from({ length: 14 }, () => html("i", {}));
  const state = bit("learn-state", ...say.nodes("hidden", facts), bit("learn-cells", ...cells), facts.measured && html("span", {}, say("numbers", facts)));
  return [bit("learn-heads", state, bit("learn-headlines", ...lines)), html("p", { class: "learn-caption" }, say("own_p"))];
}

// The nodes of the step as the pass sees them: one row, each with its slot and its position. Of a long row, only the
// root and the surroundings of the two named nodes.
function rowPicture({ step, facts, say }) {
  const named = [facts.a_id, facts.b_id];
  const count = step.nodes.length;
  const wanted = [0, ...named.flatMap((id) => [id - 1, id, id + 1])].filter((id) => id < count);
  const ids = count <= MOST_CELLS ? step.nodes.map((node) => node.id) : [...new Set(wanted)].sort((a, b) => a - b);
  const cells = ids.flatMap((id, i) => [i && id > ids[i - 1] + 1 ? gapCell() : null, rowCell(step, step.nodes[id], named.includes(id))]);
  const names = bit("learn-cell is-names", html("b", {}, " "), html("span", {}, say("node")), html("span", {}, say("slot")), html("span", {}, say("position")));
  return [bit("learn-row", names, textCell(step.cache_length, say), ...cells, ids.at(-1) < count - 1 ? gapCell() : null)];
}

const rowCell = (step, node, isNamed) => bit("learn-cell" + (isNamed ? " is-named" : ""), tokenOf(node), html("span", {}, node.id),
  html("span", { class: "learn-secret" }, step.cache_length + node.id), html("span", { class: "learn-secret" }, step.cache_length + node.depth));
const gapCell = () => bit("learn-cell is-more", "…");
const textCell = (rows, say) => bit("learn-cell is-text", say("text", { rows }));

// The model's p of all guesses at a narrow and at a wide place, what is left for other tokens, and the bar.
function barPicture({ step, facts, say }) {
  const places = [["narrow", facts.narrow_id], ["wide", facts.wide_id]].map(([shape, id]) => {
    const place = step.nodes.filter((node) => node.parent === step.nodes[id].parent);
    const { entropy, threshold, parent } = step.nodes[id];
    const rest = Math.max(0, 1 - place.reduce((sum, node) => sum + (node.p ?? 0), 0));
    const head = html("h4", {}, ...say.nodes("behind", { parent: named(step.nodes[parent]), shape: say(shape), entropy: decimal(entropy) }));
    const line = isKnown(threshold) ? threshold : null;
    return bit("learn-place", head, ...place.map((node) => shareBar(tokenOf(node), node.p, line)), shareBar(say("rest"), rest, null, " is-rest"),
      line === null ? null : secret("learn-barnote", say("bar", { bar: probability(line) })));
  });
  return [bit("learn-places", ...places)];
}

function shareBar(label, share, line, kind = "") {
  const track = bit("learn-track", html("i", { style: `width:${100 * (share ?? 0)}%` }), line === null ? null : html("b", { class: "learn-secret", style: `left:${100 * line}%` }));
  return bit("learn-share" + kind, html("span", {}, label), track, html("span", {}, probability(share)));
}

// The cache while the tree is in it, and after the rejected rows are gone. It shows all kept rows, and as many others as there
// is room for.
function cachePicture({ step, facts, say }) {
  const kept = new Set(step.path);
  const cell = (node, kind) => bit("learn-cell " + kind, tokenOf(node));
  const others = step.nodes.map((node) => node.id).filter((id) => !kept.has(id)).slice(0, Math.max(1, MOST_CELLS - 2 - kept.size));
  const listed = [...step.path, ...others].sort((a, b) => a - b);
  const during = listed.map((id) => cell(step.nodes[id], kept.has(id) ? "is-kept" : "is-dropped"));
  const rest = step.nodes.length - listed.length;
  const forgotten = html("div", { class: "learn-cell is-free", style: `flex-grow:${others.length + (rest ? 1 : 0)}` }, say("forgotten"));
  return [
    html("h4", {}, say("during", { rows: facts.during })),
    bit("learn-row is-wrapping", textCell(facts.before, say), ...during, rest ? bit("learn-cell is-more", say("more", { count: rest })) : null),
    html("h4", { class: "learn-secret" }, say("after", { rows: facts.after })),
    secret("learn-row is-wrapping", textCell(facts.before, say), ...step.path.map((i) => cell(step.nodes[i], "is-kept")), forgotten),
  ];
}

// Tokens of a step as blocks over the step's time in plain steps: the denser, the faster. The phases are below.
function speedPicture({ facts, records, say }) {
  if (!facts.measured) return [];
  const plain = records.latency[0];
  const rowOf = (nodes) => records.latency.find((each) => each.nodes === nodes);
  const longest = Math.max(...[facts.measured_nodes, facts.big_nodes].map((nodes) => rowOf(nodes).step_ms / plain.step_ms));
  const line = (name, { row, mean, told, hidden }) => {
    const cost = row.step_ms / plain.step_ms;
    const wide = `width:${(100 * cost) / longest}%`;
    const blocks = Array.from({ length: Math.ceil(mean) }, (_, i) => html("i", { style: `flex-grow:${Math.min(1, mean - i)}` }));
    const phases = PHASES.map(([phase]) => html("i", { class: "phase-" + phase, title: LANGUAGE.tell(phase), style: `flex-grow:${row[phase]}` }));
    return bit("learn-cost" + (hidden ? " learn-secret" : ""), html("span", {}, name),
      bit("learn-costs", html("div", { class: "learn-blocks", style: wide }, ...blocks), html("div", { class: "learn-track", style: wide }, ...phases)),
      html("span", { class: "learn-rate learn-secret" }, told && say("rate", told)));
  };
  const size = (kind) => ({ row: rowOf(facts[kind + "_nodes"]), mean: rowOf(facts[kind + "_nodes"]).tokens_per_step, hidden: true,
    told: { mean: facts[kind + "_mean"], overhead: facts[kind + "_overhead"], speedup: facts[kind + "_speedup"] } });
  const quoted = records.methods.find(({ name }) => name === "medusa");
  const sizes = facts.best_nodes === facts.big_nodes ? [] : ["best", "big"]; // both are one size where the record has no curve over sizes
  return [
    html("p", { class: "learn-caption" }, say("blocks")),
    line(say("plain"), { row: plain, mean: 1 }),
    line(say("this_run", { nodes: facts.nodes }), { row: rowOf(facts.measured_nodes), mean: facts.mean_value, told: facts }),
    sizes.length > 1 && html("h4", { class: "learn-secret" }, say("sizes")),
    ...sizes.map((kind) => line(say("tree", { nodes: facts[kind + "_nodes"] }), size(kind))),
    keyRow(PHASES.map(([phase]) => phase), LANGUAGE.tell, "phase-"),
    quoted && html("p", { class: "learn-caption learn-secret", "data-role": "quoted" }, say("quoted", { nodes: quoted.nodes, speedup: decimal(quoted.speedup) })),
    records.source && html("p", { class: "learn-caption", "data-role": "source" }, LANGUAGE.tell(records.source)),
  ];
}

// How often each head is right, and what three trainings did to the model itself.
function learningPicture({ records, say }) {
  const bars = records.accuracies.map((ranks, i) => {
    const five = ranks.slice(0, 5).reduce((sum, share) => sum + share, 0);
    const kind = i ? " learn-secret" : "";
    const bar = (name, share) => html("i", { class: name + kind, style: `width:${100 * share}%` });
    return bit("learn-share", html("span", {}, say("head", { k: i + 1 })), bit("learn-track", bar("is-five", five), bar("is-first", ranks[0])),
      html("span", { class: kind }, `${percent(ranks[0])} / ${percent(five)}`));
  });
  const cells = ({ label, loss, speedup }) => [LANGUAGE.tell(label), decimal(loss), decimal(speedup)].map((text) => html("td", {}, text));
  const table = html("table", { class: "learn-trainings learn-secret" },
    tableHead(["trained", "loss", "gain"].map((each) => say(each))),
    html("tbody", {}, ...records.trainings.map((each) => html("tr", {}, ...cells(each)))));
  const timed = records.trainings.at(-1);
  const settings = timed && html("p", { class: "learn-caption learn-secret" }, say("gain_of", timed));
  const against = records.against && html("p", { class: "learn-caption learn-secret" }, LANGUAGE.tell(records.against));
  const source = records.trained && html("p", { class: "learn-caption learn-secret", "data-role": "trained" }, LANGUAGE.tell(records.trained));
  return [html("div", {}, ...bars), keyRow(["first", "five"], say), table, settings, source, against];
}

const tokenOf = (node) => factNode(named(node));
