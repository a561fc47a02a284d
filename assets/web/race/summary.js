// The result above the lanes: figures, sentences, and a row of each lane (needs dom.js, records.js and lane.js).

const COLUMNS = ["tokens/s", "tokens per step", "overhead", "speedup"].map(phrase);

// Does not change with the playhead.
function buildSummary(tables, message) {
  const root = make("div", "race-summary");
  const result = comparison(tables, message.baseline);
  if (result) root.append(buildResult(result));
  const same = equality(message.verdict, tables.map((table) => table.name));
  if (same) {
    const line = make("p", `race-verdict ${same.tone}`);
    line.append(make("span", "race-sign", same.sign), make("b", "", same.head), make("span", "", ` ${same.tail}`));
    root.append(line);
  }
  root.append(buildTable(tables, message.baseline));
  const doubt = doubts(tables);
  if (doubt) root.append(make("p", "race-doubt", `⚠ ${doubt}`));
  if (tables.some((table) => table.runs.length > 1)) root.append(make("p", "race-note", runsWords(tables)));
  return root;
}

function buildResult(result) {
  const line = make("p", `race-result ${result.tone}`);
  const figures = [[result.speedup, result.against], [result.overhead, result.cost]];
  for (const [range, label] of figures) {
    const box = make("span", "race-big");
    const words = rangeWords(range);
    box.append(make("b", "", inDigits(range, "×")), make("small", "", words ? say`${label}, ${words}` : label));
    line.append(box);
  }
  line.append(make("span", "race-sentence", result.sentence));
  return line;
}

// A row of each lane: its speed as a bar with the range of its runs, and what it is worth over the baseline.
function buildTable(tables, baseline) {
  const root = make("table", "race-table");
  const head = make("tr");
  for (const label of ["", ...COLUMNS]) head.append(html("th", { scope: "col" }, label && say(label)));
  root.append(html("thead", {}, head));
  const fastest = Math.max(...tables.map((table) => rateOf(table).high), 1e-9);
  const body = make("tbody");
  tables.forEach((table, i) => body.append(buildRow(table, fastest, i === baseline ? null : tables[baseline])));
  root.append(body);
  return root;
}

function buildRow(table, fastest, base) {
  const row = make("tr");
  row.dataset.drafter = table.drafter;
  const rate = rateOf(table);
  const ratio = base && speedRatio(table, base);
  const worth = ratio ? [overheadOf(table, base, ratio), ratio].map((range) => figureCell(inDigits(range, "×"), rangeWords(range))) : [figureCell("1"), figureCell("1")];
  const speed = figureCell(inDigits(rate), rangeWords(rate));
  speed.prepend(buildBar(rate, fastest));
  const cells = [speed, figureCell((figures(table, table.steps.length).perStep || 0).toFixed(2)), ...worth];
  cells.forEach((cell, i) => { cell.dataset.label = say(COLUMNS[i]); });
  row.append(html("th", { scope: "row" }, table.name), ...cells);
  return row;
}

function figureCell(value, range) {
  const cell = make("td");
  cell.append(make("b", "", value));
  if (range) cell.append(make("small", "", ` (${range})`));
  return cell;
}

// As long as the median run was fast; the thin line goes from the slowest run to the fastest.
function buildBar(rate, fastest) {
  const share = (value) => `${((100 * value) / fastest).toFixed(2)}%`;
  const bar = html("span", { class: "race-speedbar", "aria-hidden": "true" });
  const fill = make("i", "fill");
  const range = make("i", "range");
  fill.style.width = share(rate.middle);
  range.style.left = share(rate.low);
  range.style.width = share(rate.high - rate.low);
  bar.append(fill, range);
  return bar;
}

const runsWords = (tables) => say`${plural(tables[0].runs.length, "run")} of each, in turn; ranges go from the slowest to the fastest. The median run of each is replayed.`;

function recordedWords({ model, dtype, machine, threads, torch, date }) {
  const computer = [machine, plural(Number(threads), "thread"), `torch ${torch}`].join(", ");
  return say`Recorded, not measured here: ${model} in ${dtype} on ${computer}, ${date}. Compare measures this prompt on this machine.`;
}

function buildKey(drafter) {
  const root = make("p", "race-key");
  root.dataset.drafter = drafter;
  const plain = buildToken(say`root`, "", false);
  const draft = buildToken(say`guess`, "k", true);
  for (const node of [plain, draft]) node.classList.add("on");
  root.append(plain, ` ${say`chosen by the model itself`} · `, draft, ` ${say`accepted guess; k is its head or drafter, not shown beside digits`} `);
  root.append("· ", say`a bar is one forward pass: as wide as its time, as tall as the tokens it kept`);
  return root;
}
