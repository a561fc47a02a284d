// At the chosen node: what the model itself would say at this place, and next to it what the head guessed.

const IMPOSSIBLE = 1e-30; // a trace holds less than that for p = 0
const penalises = ({ penalty, penalty_window }) => penalty !== 1 && penalty_window > 0;
// What leaves tokens out of the draws, in words.
const truncationOf = ({ top_k, top_p, min_p, temperature }) => (temperature > 0
  ? [top_k > 0 && say`top-k ${top_k}`, top_p < 1 && say`top-p ${setting(top_p)}`, min_p > 0 && say`min-p ${setting(min_p)}`].filter(Boolean) : []);

// What was done to the model's numbers before they were judged, and the choice that it changed here, or "".
function processedWords(config, row) {
  const done = [];
  if (penalises(config)) done.push(say`the penalty of ${setting(config.penalty)}`);
  done.push(...truncationOf(config));
  if (!done.length) return "";
  const words = say`p is after ${done.reduce((before, next) => say`${before} and ${next}`)}.`;
  if (!row.penalised) return words;
  const { copies } = row.penalised;
  const own = quoted(row.penalised);
  return words + " " + (copies === 1
    ? say`The model’s own first choice, ${own}, fell behind, as it stands once in the last ${config.penalty_window} tokens.`
    : say`The model’s own first choice, ${own}, fell behind, as it stands ${copies} times in the last ${config.penalty_window} tokens.`);
}

// Rows of the table: the model's likeliest tokens and the head's guesses, each with both numbers where known.
function alternativesAt({ step, config }, i) {
  const { parent } = step.nodes[i];
  const row = step.after.find((each) => each.node === parent);
  if (!row) return null;
  const rivals = step.nodes.filter((node) => node.parent === parent);
  const byToken = new Map(rivals.map((node) => [node.token_id, node]));
  const { head, by } = step.nodes[i].origin;
  const guesses = isKnown(head) && !methodOf(by).sequential ? guessesOf(step, head) : rivals;
  const known = new Map(guesses.map((node) => [node.token_id, node]));
  const model = row.token_ids.map((token, k) => ({ token, text: row.texts[k], p: byToken.get(token)?.p ?? row.p[k] })) // a node’s p has more digits
    .filter(({ p }) => !(truncationOf(config).length && p < IMPOSSIBLE));
  const others = guesses.filter((node) => !row.token_ids.includes(node.token_id)).slice(0, 3);
  if (![...row.token_ids, ...others.map((node) => node.token_id)].includes(step.nodes[i].token_id)) others.push(step.nodes[i]);
  return [...model, ...others.map(({ token_id: token, text }) => ({ token, text, p: byToken.get(token)?.p }))]
    .map((each) => ({ ...each, q: known.get(each.token)?.draft_p, node: byToken.get(each.token)?.id ?? null }));
}

function alternativesTable(scene, i) {
  const rows = i > 0 ? alternativesAt(scene, i) : null;
  if (!rows) return null;
  const { step } = scene;
  const { head, by } = step.nodes[i].origin;
  const who = isKnown(head) ? say`head ${head}` : say`the drafter`;
  const least = Math.min(...rows.filter((row) => isKnown(row.p)).slice(0, 5).map((row) => row.p)); // the others are less likely
  const most = Math.max(scene.verdict.thresholds[i] ?? 0, ...rows.flatMap((row) => [row.p ?? 0, row.q ?? 0]), 1e-9);
  const bar = scene.verdict.thresholds[i];
  const width = (value) => Math.min(100, (100 * (value ?? 0)) / most);
  const track = (value, kind) => html("span", { class: "mdv-track" }, html("span", { class: "mdv-fill " + kind, style: `width:${width(value)}%` }),
    kind === "of-model" && isKnown(bar) ? html("span", { class: "mdv-bar", style: `left:${width(bar)}%` }) : null);
  // What was rounded to 1 beside other tokens that are possible is not 1.
  const modelP = ({ p, node }) => (p === 1 && node === null && rows.some((each) => each.p < 1 && each.p > IMPOSSIBLE) ? shortP(0.9999) : probability(p));
  const lines = rows.map((row) => html("tr", { class: row.node === i ? "chosen" : null, "data-node": row.node },
    html("th", { scope: "row", class: "mdv-barname" }, visible(row.text, row.token), row.node === null ? "" : html("small", {}, " " + say`node ${row.node}`)),
    html("td", {}, track(row.p, "of-model"), html("span", { class: "mdv-num" }, isKnown(row.p) ? modelP(row) : "< " + probability(least))),
    html("td", {}, track(row.q, "of-head"), html("span", { class: "mdv-num" }, isKnown(row.q) ? probability(row.q) : "–"))));
  const parent = step.nodes[step.nodes[i].parent];
  const processed = processedWords(scene.config, step.after.find((row) => row.node === parent.id));
  return html("table", { class: "mdv-alternatives", "data-role": "alternatives" },
    html("caption", { class: "mdv-barhead" }, (by && !isKnown(head)
      ? say`After ${quoted(parent)}: the model’s five likeliest tokens, and what ${who} proposed for this place`
      : say`After ${quoted(parent)}: the model’s five likeliest tokens, and what ${who} guessed for this place`)
      + (isKnown(bar) ? say`; upright line: the bar, ${probability(bar)}` : ""),
      processed && html("span", { class: "mdv-processed", "data-role": "processed" }, processed)),
    tableHead([say`token`, say`the model’s p`, isKnown(head) ? say`head ${head}’s q` : say`drafter’s q`]),
    html("tbody", {}, ...lines));
}
