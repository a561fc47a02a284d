// Figures of the run up to the shown step, and where this step's time went.

const PHASES = [["propose", phrase("propose"), phrase("guesses")], ["verify", phrase("verify"), phrase("one forward")], ["accept", phrase("accept"), phrase("verdicts")],
  ["commit", phrase("commit"), phrase("cache")]];

// The share of n-grams that differ (Distinct-n, as medusa_core/engine/summary.py): small where a text goes in circles.
// Null where there is none.
function distinctShare(tokens, n) {
  const count = tokens.length - n + 1;
  if (count < 1) return null;
  return new Set(Array.from({ length: count }, (_, i) => tokens.slice(i, i + n).join())).size / count;
}

function makeCounters() {
  const numbers = html("div", { class: "mdv-numbers" });
  const time = html("div", {});
  const card = html("section", { class: "mdv-card mdv-area-counters", "aria-label": say`Counters` },
    cardHead(say`So far`, say`up to the shown step`), numbers, time);

  let finished = null; // the output whose n-grams were counted
  let distinct = null;

  function draw(scene) {
    const step = scene.step || scene.brief;
    if (!step) return;
    const { index, trace } = scene;
    const tokens = sumsOf(trace).tokens[index + 1];
    const figures = [
      ["tokens", tokens, noun(tokens, "token")], ["steps", index + 1, noun(index + 1, "step")], ["mean", decimal(tokens / (index + 1)), say`tokens / step`],
      ["now", step.emitted.length, say`in this step`],
    ];
    const recording = isRecording(scene.state);
    if (!recording && trace.output?.tokens_per_second) figures.push(["speed", Math.round(trace.output.tokens_per_second).toLocaleString("en"), say`tokens / s, whole run`]);
    if (trace.output !== finished) {
      finished = trace.output;
      distinct = distinctShare(finished?.token_ids ?? [], 4);
    }
    if (distinct !== null) figures.push(["distinct", `${Math.round(100 * distinct)} %`, say`distinct sequences of 4 tokens, whole run`]);
    numbers.replaceChildren(...countsOf(figures));
    time.replaceChildren(...timeOf(step, recording));
  }

  return { card, draw };
}

// Named figures, from [role, value, name].
const countsOf = (figures) => figures.map(([role, value, name]) => html("div", { "data-count": role }, html("b", {}, value), html("span", {}, name)));

function timeOf({ ms, index }, recording) {
  if (recording && index === 0) return [html("div", { class: "mdv-barhead" }, say`The first step of a recording has no times, since it includes warming up.`)];
  const parts = PHASES.map(([name, title, words]) => ({ name, title: say(title), words: say(words), value: ms[name] }));
  const sum = parts.reduce((total, part) => total + part.value, 0);
  const total = Math.max(ms.total, sum) || 1;
  const share = (part) => `width:${(100 * part.value) / total}%`;
  const amount = ({ value }) => (recording ? `${Math.round((100 * value) / total)} %` : decimal(value, value < 10 ? 2 : 1));
  const took = html("b", {}, decimal(ms.total, 1) + " ms");
  return [
    html("div", { class: "mdv-barhead" }, ...(recording ? [say`Parts of this step’s time in this run`] : [say`This step took` + " ", took])),
    html("div", { class: "mdv-stack", role: "img", "aria-label": parts.map((part) => `${part.title} ${amount(part)}${recording ? "" : " ms"}`).join(", ") },
      ...parts.map((part) => html("span", { class: "phase-" + part.name, style: share(part), title: part.words }))),
    html("div", { class: "mdv-legend" }, ...parts.map((part) =>
      html("span", { title: part.words }, html("i", { class: "mdv-dot phase-" + part.name }), `${part.title} ${amount(part)}`))),
  ];
}
