// The result above the lanes: figures, sentences, and a row for each lane (needs dom.js, records.js and lane.js).

const COLUMNS = ["tokens/s", "tokens per step", "overhead", "speedup"].map(phrase);

// Does not change with the playhead.
function buildSummary(tables, message) {
  const result = comparison(tables, message.baseline);
  const same = equality(message.verdict, tables.map((table) => table.name));
  const doubt = [LANGUAGE.tell(message.warning || ""), doubts(tables)].filter(Boolean).join(" ");
  return html("div", { class: "race-summary" },
    result && buildResult(result),
    same && html("p", { class: `race-verdict ${same.tone}` }, html("span", { class: "race-sign" }, same.sign), html("b", {}, same.head), html("span", {}, ` ${same.tail}`)),
    buildTable(tables, message.baseline),
    doubt && html("p", { class: "race-doubt" }, `⚠ ${doubt}`),
    tables.some((table) => table.runs.length > 1) && html("p", { class: "race-note" }, runsWords(tables)));
}

function buildResult({ speedup, against, overhead, cost, tone, sentence }) {
  const figures = [[speedup, against], [overhead, cost]].map(([range, label]) => {
    const words = rangeWords(range);
    return html("span", { class: "race-big" }, html("b", {}, middleWords(range, "×")), html("small", {}, words ? say`${label}, ${words}` : label));
  });
  return html("p", { class: `race-result ${tone}` }, ...figures, html("span", {}, sentence));
}

// A row for each lane: its speed as a bar with the range of its runs, and its gain over the baseline.
function buildTable(tables, baseline) {
  const fastest = Math.max(...tables.map((table) => rateOf(table).high), 1e-9);
  const rows = tables.map((table, i) => buildRow(table, fastest, i === baseline ? null : tables[baseline]));
  return html("table", { class: "race-table" }, tableHead(["", ...COLUMNS.map((label) => say(label))]), html("tbody", {}, ...rows));
}

function buildRow(table, fastest, base) {
  const rate = rateOf(table);
  const ratio = base && speedRatio(table, base);
  const worth = ratio ? [overheadOf(table, base, ratio), ratio].map((range) => figureCell(middleWords(range, "×"), rangeWords(range))) : [figureCell("1"), figureCell("1")];
  const speed = figureCell(middleWords(rate), rangeWords(rate), buildBar(rate, fastest));
  const cells = [speed, figureCell((wholeFigures(table).perStep || 0).toFixed(2)), ...worth];
  cells.forEach((cell, i) => { cell.dataset.label = say(COLUMNS[i]); });
  return html("tr", { "data-drafter": table.drafter }, html("th", { scope: "row" }, table.name), ...cells);
}

const figureCell = (value, range, bar) => html("td", {}, bar, html("b", {}, value), range && " ", range && html("small", {}, `(${range})`));

// The bar's length is the median run's speed; the thin line goes from the slowest run to the fastest.
function buildBar(rate, fastest) {
  const share = (value) => `${((100 * value) / fastest).toFixed(2)}%`;
  return html("span", { class: "race-speedbar", "aria-hidden": "true" }, html("i", { class: "fill", style: `width:${share(rate.middle)}` }),
    html("i", { class: "range", style: `left:${share(rate.low)};width:${share(rate.high - rate.low)}` }));
}

const runsWords = (tables) => say`${plural(tables[0].runs.length, "run")} of each, alternating; ranges go from the slowest to the fastest. The median run of each is replayed.`;

function recordedWords({ model, dtype, machine, threads, torch, date }) {
  const computer = [machine, plural(Number(threads), "thread"), `torch ${torch}`].join(", ");
  return say`Recorded, not measured here: ${LANGUAGE.tell(model)} in ${dtype} on ${computer}, ${date}. Compare measures this prompt on this machine.`;
}

function buildKey(drafter) {
  const [plain, draft] = [buildToken(say`root`, "", false), buildToken(say`guess`, "k", true)];
  for (const node of [plain, draft]) node.classList.add("on");
  return html("p", { class: "race-key", "data-drafter": drafter },
    plain, ` ${say`chosen by the model itself`} · `, draft, ` ${say`accepted guess; k is its head or drafter, not shown next to digits`} `,
    "· ", say`a bar is one forward pass: as wide as its time, as tall as the tokens it kept`, " · ",
    html("i", { class: "one" }), ` ${say`one token`} · `, html("i", { class: "many" }), ` ${say`several tokens`}`);
}
