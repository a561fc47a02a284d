// The arithmetic of a comparison: timetables, figures, the sentences of the result. Draws nothing.

const RATIO = 10; // a figure below it is shown with a decimal: ratios, and speeds of very slow models
const grouped = (value, digits = 0) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const seconds = (value) => (value < 1 ? `${(1000 * value).toFixed(1)} ms` : `${value.toFixed(2)} s`);
const oneLine = (text) => text.replace(/\s+/g, " ").trim();
const promptOf = ({ lanes }) => lanes[0].trace.prompt.text;

// A lane's timetable: when each step ended, and which tokens were on screen from then on.
function timetable(lane) {
  const steps = [];
  const tokens = [];
  let clock = 0;
  for (const step of lane.trace.steps) {
    const start = clock;
    clock += step.ms.total / 1000;
    const kept = step.path.slice(0, step.emitted.length).map((id) => step.nodes.find((node) => node.id === id));
    for (const { text, mark, by } of kept) tokens.push({ text, mark, by: LANGUAGE.tell(by), step: steps.length });
    steps.push({ start, end: clock, kept: kept.length, tokens: tokens.length });
  }
  return { name: LANGUAGE.tell(lane.name), drafter: lane.drafter, trace: lane.trace, runs: lane.runs, steps, tokens, end: clock };
}

// The figures of a lane's first `count` steps.
function figures(table, count) {
  if (!count) return { passes: 0, rate: null, perStep: null, ms: null };
  const { tokens, end } = table.steps[count - 1];
  return { passes: count, rate: end > 0 ? tokens / end : null, perStep: tokens / count, ms: (1000 * end) / count };
}

const wholeFigures = (table) => figures(table, table.steps.length);

const stepsDone = (table, now) => table.steps.findLastIndex((step) => step.end <= now + 1e-9) + 1;

// Speeds of a lane's runs, in the order in which they were made; a single run has the speed of its steps.
function speedsOf(table) {
  const runs = table.runs.filter((speed) => speed > 0);
  return runs.length > 1 ? runs : [wholeFigures(table).rate || 0];
}

// How many times as fast `table` is as `base`: the ratio of the median speeds that the table shows, so that a reader who
// divides them gets it, and the range over runs made next to each other. Null where a lane has no speed.
function speedRatio(table, base) {
  const [ours, theirs] = [speedsOf(table), speedsOf(base)];
  const paired = ours.slice(0, theirs.length).map((speed, i) => speed / theirs[i]);
  if (!paired.length || !paired.every((one) => one > 0 && Number.isFinite(one))) return null;
  const middle = rateOf(table).middle / rateOf(base).middle;
  return { middle, low: Math.min(middle, ...paired), high: Math.max(middle, ...paired), runs: paired.length };
}

// What a step of `table` costs in steps of `base`: tokens per step ÷ speedup, so a fast run is a cheap step.
function overheadOf(table, base, ratio) {
  const kept = wholeFigures(table).perStep / wholeFigures(base).perStep;
  return { middle: kept / ratio.middle, low: kept / ratio.high, high: kept / ratio.low, runs: ratio.runs };
}

// As many decimals as the range allows: for speeds, none if it is wider than 1, for ratios at least one, since "3×" may
// be 2.5. A single run has no range, and gets one. A number below 1 keeps its first digit.
function decimalsOf({ middle, low, high, runs }, most = 2, least = middle < RATIO ? 1 : 0) {
  const spread = high - low;
  const allowed = Math.max(least, runs < 2 ? 1 : spread > 0 ? Math.ceil(-Math.log10(spread)) : most);
  const needed = low > 0 && low < 1 ? Math.ceil(-Math.log10(low)) : 0;
  return middle > 0 ? Math.max(0, Math.min(most, Math.max(allowed, needed))) : 1;
}

function rangeWords(range, sign = "") {
  const digits = decimalsOf(range);
  const [low, high] = [grouped(range.low, digits), grouped(range.high, digits)];
  return range.runs > 1 && low !== high ? say`${low} to ${high}${sign}` : "";
}

const middleWords = (range, sign = "") => `${grouped(range.middle, decimalsOf(range))}${sign}`;

// A lane's tokens/s over its runs.
function rateOf(table) {
  const all = [...speedsOf(table)].sort((a, b) => a - b);
  return { middle: all[(all.length - 1) >> 1], low: all[0], high: all.at(-1), runs: all.length };
}

// The comparison in words: of the lane that is not the baseline with the baseline, or of the first two lanes where
// plain decoding, the baseline, is a third one.
function comparison(tables, baseline) {
  const [ours, base] = tables.length > 2 ? [tables[0], tables[1]] : [tables[1 - baseline], tables[baseline]];
  const speedup = speedRatio(ours, base);
  if (!speedup) return null;
  const overhead = overheadOf(ours, base, speedup);
  const [kept, before] = [ours, base].map((table) => wholeFigures(table).perStep.toFixed(2));
  const [against, cost, words] = tables.length > 2
    ? [say`speed of the first lane ÷ the second’s`, say`step ÷ the second lane’s step`,
      say`one step of ${ours.name} costs ${middleWords(overhead)} steps of ${base.name} and keeps ${kept} tokens, against ${before}`]
    : [say`speedup`, say`overhead (step ÷ plain step)`, say`one tree step costs ${middleWords(overhead)} plain steps and keeps ${kept} tokens`];
  const result = { speedup, overhead, against, cost, tone: "even" };
  const [low, middle, high] = ["low", "middle", "high"].map((part) => Number(speedup[part].toFixed(decimalsOf(speedup)))); // as shown
  if (low < 1 && high > 1) return { ...result, sentence: say`Not clear here, as each was faster in some of these runs: ${words}.` };
  if (middle > 1) return { ...result, tone: "good", sentence: say`Faster here: ${words}.` };
  if (middle < 1) return { ...result, tone: "bad", sentence: say`Slower here: ${words}.` };
  return { ...result, sentence: say`Break-even here: ${words}.` };
}

// What makes the figures rough: single runs, or a lane whose runs differ by half.
function doubts(tables) {
  if (tables.some((table) => table.runs.length < 2)) return say`One run of each has no range: take three or more before trusting the speedup.`;
  const wide = tables.map((table) => ({ name: table.name, ...rateOf(table) })).filter(({ low, high }) => high > 1.5 * low);
  if (!wide.length) return "";
  const words = wide.map((lane) => say`${lane.name} from ${grouped(lane.low)} to ${grouped(lane.high)} tokens/s`);
  return say`The runs spread widely (${words.join("; ")}): the machine probably had other work, so the speedup is rough. Compare again when it is idle.`;
}

// What has no effect in either lane, by the names of the controls; those of the second lane begin with SECOND,
// and are empty or SAME where they equal the first one's (ui/components/lane_controls.py).
const SECOND = "second-";
const SAME = "as the first lane";

function laneNotes(detail) {
  const [first, own] = [{}, {}];
  for (const [name, value] of Object.entries(detail)) {
    if (!name.startsWith(SECOND)) first[name] = value;
    else if (value !== SAME && value !== "" && value !== null) own[name.slice(SECOND.length)] = value;
  }
  const notes = notesOf(null, first, null);
  const both = { ...first, ...own, temperature: Number(String(own.temperature ?? first.temperature).replace(",", ".")) };
  const idle = idleSettings(both);
  for (const name of Object.keys(detail)) {
    if (name.startsWith(SECOND)) notes[name] = idle[name.slice(SECOND.length)] || "";
  }
  return notes;
}

// Title and drafter of both lanes, as far as the menus of methods and the ticks tell.
function laneTitles(detail) {
  const of = (name) => (detail[SECOND + name] === undefined || detail[SECOND + name] === SAME ? detail[name] : detail[SECOND + name]);
  const lanes = [[detail.method, detail.copies], [of("method"), of("copies")]];
  return lanes.filter(([name]) => name in METHODS).map(([name, copies]) => [say(METHODS[wholeMethod(name, copies)].title), name]);
}

// Whether the texts of the first two lanes, called `names`, agree, and whether they had to.
function equality(verdict, names) {
  if (!verdict) return null;
  const note = LANGUAGE.tell(verdict.note);
  if (!verdict.comparable) return { tone: "even", sign: "≈", head: say`Not compared token for token.`, tail: note };
  if (verdict.equal) return { tone: "good", sign: "✓", head: say`Identical output, token for token.`, tail: note };
  const gap = isKnown(verdict.logit_gap) ? say`; the two logits were ${verdict.logit_gap.toPrecision(2)} apart.` : ".";
  const head = say`First difference at token ${verdict.index + 1}:`;
  const said = [verdict.first, verdict.second].map((text, i) => say`${text ? quoted({ text }) : say`the end`} in ${names[i]}`);
  return { tone: verdict.expected === "may" ? "even" : "bad", sign: "≠", head, tail: `${said.join(", ")}${gap} ${note}` };
}
