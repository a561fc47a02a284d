// Why sampling by p/q is exact: the two distributions of a recorded place, draws by the rule, and their counts next to
// the model's own probabilities. Leviathan et al., 2023; the draws are made here, from the recorded p and q.

const DRAWS = [1, 100, 5000];

// One token by the rule: a guess drawn from q is kept with the probability p/q, otherwise one is drawn from the
// rest of p. `isWrong` draws it from all of p instead. {guess, u, token, kept}, tokens by their places.
function drawExactly({ p, q }, random, isWrong = false) {
  const guess = drawn(q, random());
  const u = random();
  const kept = u * q[guess] < p[guess];
  return { guess, u, kept, token: kept ? guess : drawn(isWrong ? p : restOf(p, q), random()) };
}

// The rest of p: max(0, p − q) as a distribution.
function restOf(p, q) {
  const left = p.map((share, i) => Math.max(0, share - q[i]));
  const sum = left.reduce((total, share) => total + share, 0);
  return sum > 0 ? left.map((share) => share / sum) : p;
}

// The place at which a number in [0, 1) lands.
function drawn(shares, number) {
  let at = 0;
  for (let left = number; at < shares.length - 1 && left >= shares[at]; at++) left -= shares[at];
  return at;
}

// The guesses at one place with the model's p and the head's q of each; all other tokens count as one. Null where a
// step has no such place. Only above temperature 0, where p is the model's own.
function factsOfExact(step, { config }) {
  if (!(config.temperature > 0)) return null;
  const parents = [...new Set(step.nodes.slice(1).map((node) => node.parent))];
  const places = parents.map((parent) => placeOf(step, parent)).filter((place) => place && worthOfPlace(place) > 0);
  const [best] = places.sort((a, b) => worthOfPlace(b) - worthOfPlace(a));
  if (!best) return null;
  const refused = best.q.reduce((sum, share, i) => sum + Math.max(0, share - best.p[i]), 0);
  return { place: best, place_parent: named(step.nodes[best.parent]), refused: percent(refused), kept_draws: percent(1 - refused), wide_id: best.nodes[0].id };
}

function placeOf(step, parent) {
  const nodes = step.nodes.filter((node) => node.parent === parent && isKnown(node.p) && isKnown(node.draft_p));
  const sum = (name) => nodes.reduce((total, node) => total + node[name], 0);
  if (nodes.length < 3 || sum("p") > 1 || sum("draft_p") > 1) return null;
  const withRest = (name) => [...nodes.map((node) => node[name]), 1 - sum(name)];
  return { parent, nodes, p: withRest("p"), q: withRest("draft_p") };
}

// How much a place shows: other tokens have little of p, two tokens are likely, and p and q differ. 0 for too little.
function worthOfPlace({ p, q }) {
  const rest = Math.max(p.at(-1), q.at(-1));
  const apart = q.reduce((sum, share, i) => sum + Math.max(0, share - p[i]), 0);
  const [, second] = p.slice(0, -1).sort((a, b) => b - a);
  return rest < 0.4 && apart > 0.15 && second > 0.1 ? 1 - rest : 0;
}

function exactPicture({ facts, say }) {
  const { place } = facts;
  const tally = (place.tally ??= { counts: place.p.map(() => 0), wrong: false, last: null });
  const rows = place.p.map((_, i) => tokenRow(place, i, say));
  const told = html("p", { class: "learn-told", role: "status", "aria-live": "polite" });
  const buttons = DRAWS.map((count) => html("button", { type: "button", class: count === 1 ? "learn-primary" : "learn-plain", "data-draws": count, onclick: () => draw(count) }, say("draw", { count })));
  const clear = html("button", { type: "button", class: "learn-link", onclick: reset }, say("clear"));
  const wrong = html("input", { type: "checkbox", checked: tally.wrong, onchange: () => { tally.wrong = wrong.checked; reset(); } });

  function draw(count) {
    for (let i = 0; i < count; i++) {
      tally.last = drawExactly(place, Math.random, tally.wrong);
      tally.counts[tally.last.token]++;
    }
    show();
  }

  function reset() {
    tally.counts.fill(0);
    tally.last = null;
    show();
  }

  function show() {
    const total = tally.counts.reduce((sum, count) => sum + count, 0);
    rows.forEach((row, i) => row.count(total ? tally.counts[i] / total : null));
    const { last } = tally;
    const word = (i) => (i < place.nodes.length ? named(place.nodes[i]) : { token: say("rest") });
    const ratio = last && probability(Math.min(1, place.p[last.guess] / place.q[last.guess]));
    const facts = last && { guess: word(last.guess), token: word(last.token), ratio, u: last.u.toFixed(2), count: total };
    told.replaceChildren(...(last ? say.nodes(last.kept ? "draw_kept" : tally.wrong ? "draw_wrong" : "draw_rest", facts) : [say("draw_none")]), last ? " " + say("draws_so_far", facts) : "");
  }

  show();
  return [
    html("h4", {}, ...say.nodes("exact_place", { parent: facts.place_parent })),
    html("div", { class: "learn-exact" }, ...rows.map((row) => row.node)),
    keyRow(["both", "refused", "left", "count"], (kind) => say("exact_" + kind)),
    html("div", { class: "learn-buttons" }, ...buttons, clear), told,
    html("label", { class: "learn-wrongway learn-secret" }, wrong, " ", say("wrong_way")),
  ];
}

// p and q of one token over one another, and below them the share of the draws that it got.
function tokenRow({ nodes, p, q }, i, say) {
  const both = Math.min(p[i], q[i]);
  const wide = Math.max(...p, ...q);
  const part = (kind, from, share) => html("i", { class: "is-" + kind, style: `left:${(100 * from) / wide}%;width:${(100 * share) / wide}%` });
  const counted = html("i", { class: "is-count" });
  const number = html("span", { class: "learn-counted" });
  const node = bit("learn-exactrow", html("span", {}, i < nodes.length ? tokenOf(nodes[i]) : say("rest")),
    bit("learn-exactbars", bit("learn-exactbar", part("both", 0, both), part("refused", both, q[i] - both), part("left", both, p[i] - both)),
      bit("learn-exactbar", counted, html("b", { style: `left:${(100 * p[i]) / wide}%` }))),
    html("span", {}, `p ${shortP(p[i])} · q ${shortP(q[i])}`), number);
  return { node, count: (share) => {
    counted.style.width = `${(100 * Math.min(share ?? 0, wide)) / wide}%`;
    number.textContent = share === null ? "" : percent(share);
  } };
}
