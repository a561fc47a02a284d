// How the guesses of a step were drafted: what was read, by whom, how often, and what each next guess was made from.
// One picture for the phase Propose and for the cards of Learn. The words are the drafters' own (METHODS).

const MOST_GUESSES = 4; // guesses of a column
const [MOST_COPIES, MOST_COPIED, MOST_AGREEING] = [3, 8, 6]; // copies under one another, tokens of each, and tokens shown to agree before it

// `step`, `steps`: those of the run up to this one, `trace`: the run. Returns a node for each drafter that proposed.
function draftingPicture({ step, steps, trace }) {
  const drafters = [...new Set(step.nodes.slice(1).map((node) => node.origin.by))];
  const parts = drafters.flatMap((by) => {
    const own = step.nodes.filter((node) => node.origin.by === by);
    const guessed = own.filter((node) => !isKnown(node.origin.back));
    const levels = new Set(guessed.map((node) => node.depth)).size;
    const columns = columnsOf(step, guessed, by);
    return [
      html("div", { class: "mdv-headspic", "data-drafter": by, tabindex: "0", role: "group", "aria-label": say`How the guesses were drafted, scrolls sideways` },
        ...sourceBoxes(by, levels), ...columns),
      seenRows(step),
      ...copyStarts(own).slice(0, MOST_COPIES).map((first) => copyPicture({ step, steps, trace, first })),
      labelWords(own),
    ];
  });
  return html("div", { class: "mdv-drafting" }, ...parts);
}

// What is read, and by whom.
function sourceBoxes(by, levels) {
  const { drafting, title } = methodOf(by);
  if (!drafting) return [html("div", { class: "mdv-draftwho" }, html("b", {}, say(title)))];
  const rounds = drafting.feeds ? Math.max(1, levels) : 1;
  const often = rounds === 1 ? say`once in a step` : say`${rounds} rounds in a step`;
  return [
    html("div", { class: "mdv-draftreads" }, ...drafting.reads.map((name) => html("span", {}, say(name)))), intoSign(),
    html("div", { class: "mdv-draftwho" }, html("b", {}, say(drafting.who)), html("span", {}, often)), levels ? intoSign() : null,
  ];
}

const intoSign = () => html("span", { class: "mdv-into", "aria-hidden": "true" }, "→");

// A column for each level: what it was fed and its best guesses; where guesses differ by path, also the path.
function columnsOf(step, nodes, by) {
  const { drafting } = methodOf(by);
  const depths = [...new Set(nodes.map((node) => node.depth))].sort((a, b) => a - b);
  return depths.flatMap((depth) => {
    const guesses = guessesOfLevel(nodes, depth);
    const most = Math.max(...guesses.map((node) => node.draft_p ?? 0), 1e-9);
    const rows = guesses.slice(0, MOST_GUESSES).map((node) => html("div", { class: "mdv-guess", "data-node": node.id },
      html("span", { class: "mdv-barname" }, visible(node.text, node.token_id)),
      html("span", { class: "mdv-track" }, html("span", { class: "mdv-fill", style: `width:${(100 * (node.draft_p ?? 0)) / most}%` })),
      html("span", { class: "mdv-num" }, "q " + shortP(node.draft_p))));
    const more = guesses.length > MOST_GUESSES ? html("div", { class: "mdv-more" }, say`+${guesses.length - MOST_GUESSES} more`) : null;
    const fed = depth > depths[0] && drafting?.feeds ? html("span", { class: "mdv-fed" }, "↳ " + say`fed: ${say(drafting.feeds)}`) : null;
    const foretold = foretells(step, guesses, depth, by);
    const column = html("div", { class: "mdv-head" }, html("b", {}, levelName(drafting, depth)), html("span", { class: "mdv-foretells", title: foretold }, foretold), fed, ...rows, more);
    return fed ? [intoSign(), column] : [column];
  });
}

function levelName(drafting, depth) {
  const levels = drafting?.levels ?? [phrase("token {0}")];
  const place = Math.min(depth, levels.length);
  return say(levels[place - 1], depth - place + 1);
}

// The different guesses of a level, the best first, each by its first node. Where a level is fed the guesses before
// it, only those after one path: that of its first node.
function guessesOfLevel(nodes, depth) {
  const level = nodes.filter((node) => node.depth === depth);
  const [first] = level;
  const rivals = first && methodOf(first.origin.by).drafting?.feeds ? level.filter((node) => node.parent === first.parent) : level;
  const found = new Map();
  for (const node of rivals) {
    const key = node.origin.rank ?? node.token_id;
    if (!found.has(key)) found.set(key, node);
  }
  return [...found.values()].sort((a, b) => (a.origin.rank ?? 0) - (b.origin.rank ?? 0));
}

// The guesses of one head, as the panel of alternatives lists them.
const guessesOf = (step, head) => guessesOfLevel(step.nodes.filter((node) => node.origin.head === head), head);

// Which token a level guesses and, where it is fed the path, after which.
function foretells(step, guesses, depth, by) {
  if (depth === 1) return say`next token after the root`;
  if (!methodOf(by).drafting?.feeds || !guesses.length) return say`token ${depth} after the root`;
  const path = lineage(parentsOf(step), guesses[0].parent).reverse();
  return say`token ${depth}, after ${joined(path.map((id) => step.nodes[id]))}`;
}

// The cache rows that a drafter sees, in bins, unless it sees all.
function seenRows(step) {
  const shares = rowsSeen(step, 64);
  const seen = shares && countSeen(step);
  if (!shares || seen >= step.cache_length) return null;
  return html("figure", { class: "mdv-seenrows" },
    html("div", {}, ...shares.map((share) => html("i", { style: `--share:${share.toFixed(3)}` }))),
    html("figcaption", {}, say`The text’s rows in the cache, the first one at the left: the draft sees ${seen} of ${step.cache_length}, drawn filled; the verification sees all.`));
}

// The first guess of each copy: where a draft branches, another copy begins.
function copyStarts(own) {
  const copied = own.filter((node) => isKnown(node.origin.back));
  return copied.filter((node) => !copied.some((each) => each.id === node.parent) || copied.some((each) => each.parent === node.parent && each.id < node.id));
}

// Copied guesses under the place that they were copied from: what agrees, and what is guessed after it.
function copyPicture({ step, steps, trace, first }) {
  const chain = [];
  const copyAfter = ({ id }) => step.nodes.find((node) => node.parent === id && isKnown(node.origin.back));
  for (let node = first; node && chain.length < MOST_COPIED; node = copyAfter(node)) chain.push(node);
  const textAt = textReader({ step, steps, trace, chain });
  const base = step.cache_length + first.depth - 1; // the place of the token before the guesses
  const { back } = first.origin;
  const agreeing = agreement(textAt, base, back, settingsOf(trace.config).lookup_ngram ?? MOST_AGREEING);
  const context = 2;
  const cell = (place, kind, id = null) => html("td", { class: kind, "data-node": id }, visible(textAt(place) ?? "…"));
  const before = Array.from({ length: context + agreeing }, (_, i) => base - agreeing - context + 1 + i);
  const kindOf = (place) => (place > base - agreeing ? "is-match" : "is-before");
  const row = (name, cells) => html("tr", {}, html("th", { scope: "row" }, name), ...cells);
  return html("div", { class: "mdv-copies", tabindex: "0", role: "group", "aria-label": say`What was copied, scrolls sideways` }, html("table", {}, html("tbody", {},
    row(say`${plural(back, "token")} earlier`, [...before.map((place) => cell(place - back, kindOf(place))), ...chain.map((node) => cell(step.cache_length + node.depth - node.origin.back, "is-source"))]),
    row("", [...before.map((place) => html("td", { class: "is-sign" }, place > base - agreeing ? "=" : "")), ...chain.map(() => html("td", { class: "is-sign" }, "↓"))]),
    row(say`now`, [...before.map((place) => cell(place, kindOf(place))), ...chain.map((node) => cell(step.cache_length + node.depth, "is-copied", node.id))]))));
}

// How many tokens up to a place equal those `back` earlier, at least 1.
function agreement(textAt, base, back, most) {
  let count = 1;
  while (count < most && textAt(base - count) !== null && textAt(base - count) === textAt(base - count - back)) count++;
  return count;
}

// The token at a place of the text or, after its end, of the guessed path. Null where it is not known.
function textReader({ step, steps, trace, chain }) {
  const pieces = trace.prompt.texts ?? [];
  const start = steps[0].cache_length;
  const written = steps.slice(0, steps.indexOf(step)).flatMap((each) => emittedNodes(each).map((node) => node.text));
  const path = [...lineage(parentsOf(step), chain[0].parent).reverse().map((id) => step.nodes[id]), ...chain];
  return (place) => (place < start ? pieces[place] : place < step.cache_length ? written[place - start] : path[place - step.cache_length]?.text) ?? null;
}

// What the short label on a node of a drafter without heads means, with an example.
function labelWords(nodes) {
  const examples = new Map();
  for (const node of nodes) if (node.origin.label && node.origin.note) examples.set(isKnown(node.origin.back), node);
  if (!examples.size) return null;
  return html("p", { class: "mdv-draftlabels" }, ...[...examples.values()].map((node) => html("span", {}, html("code", {}, nodeTag(node)), " " + say`on ${quoted(node)}: ${LANGUAGE.tell(node.origin.note)}.`)));
}
