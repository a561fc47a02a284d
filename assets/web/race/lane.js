// One lane of the replay (needs dom.js and records.js).
// Model and prompt text only ever passes through text nodes.

// One lane: name, growing text, ticks, figures. `draw(now)` moves it to a moment of the clock.
function buildLane(table, span, differs) {
  const flag = html("span", { class: "race-flag" });
  const spans = table.tokens.map((token, i) => {
    const node = buildToken(token.text, besideDigits(token.text, table.tokens[i + 1]?.text) ? "" : token.mark, Boolean(token.mark));
    if (i === differs) node.classList.add("differs");
    node.title = token.mark ? say`accepted guess of ${token.by}, step ${token.step}` : say`root of step ${token.step}`;
    return node;
  });
  const text = html("div", { class: "race-text", tabindex: "0", role: "group", "aria-label": say`Text of ${table.name}` },
    html("span", { class: "race-prompt" }, table.trace.prompt.text), ...spans);
  const ticks = buildTicks(table, span);
  const stats = buildStats(decimalsOf(rateOf(table), 1));
  // Accepted guesses have the drafter's colour.
  const root = html("section", { class: "race-lane", "aria-label": table.name, "data-drafter": table.drafter },
    html("header", { class: "race-lane-head" }, html("h3", {}, table.name), flag), text, ticks.root, stats.root);
  const front = buildFront(spans);
  let shown = -1;
  function draw(now) {
    const done = stepsDone(table, now);
    ticks.draw(now, done);
    const begun = table.steps.length > 0;
    const finished = begun && done === table.steps.length;
    root.classList.toggle("finished", finished);
    flag.textContent = !begun ? "" : finished ? `⚑ ${seconds(table.end)}` : seconds(Math.min(now, table.end));
    if (done === shown) return;
    shown = done;
    const tokens = done ? table.steps[done - 1].tokens : 0;
    front(tokens);
    if (tokens) {
      const { offsetTop: top, offsetHeight: height } = spans[tokens - 1];
      reveal(text, 0, top, 0, top + height, 4, false);
    }
    stats.draw(figures(table, done));
  }
  return { root, draw };
}

// A token with the mark of where it came from. Leading blanks stay outside the mark, as they
// may hang at a line's end, and so do final line breaks: the mark would begin the next line. The mark holds a sign for
// them that is no part of the text.
function buildToken(text, label, drafted) {
  const [, lead, core, breaks] = text.match(/^(\s*?)(\S[^]*?|[^\S\n]*)(\n*)$/);
  const sign = breaks && html("span", { class: "race-break", "data-sign": "⏎".repeat(breaks.length) });
  const mark = html("span", { class: "race-mark", "data-head": (drafted && label) || null }, core, sign);
  return html("span", { class: drafted ? "race-token draft" : "race-token root" }, lead, mark, breaks);
}

// A row of ticks on the shared clock: one bar per forward pass, as wide as it took, as tall as the tokens it kept.
function buildTicks(table, span) {
  const width = 1000;
  const height = 30;
  const most = Math.max(4, ...table.steps.map((step) => step.kept));
  const bars = table.steps.map((step) => {
    const tall = 6 + ((height - 6) * step.kept) / most;
    const x = (width * step.start) / span;
    const w = (width * (step.end - step.start)) / span;
    const box = { x: x + Math.min(1, w * 0.15), y: height - tall, width: Math.max(0.4, w - Math.min(2, w * 0.3)), height: tall };
    return svg("rect", { ...box, class: step.kept > 1 ? "many" : "one" });
  });
  const hand = svg("line", { class: "hand", x1: 0, x2: 0, y1: 0, y2: height });
  const root = svg("svg", { class: "race-ticks", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
    "aria-label": say`${plural(table.steps.length, "forward pass", "forward passes")} in ${seconds(table.end)}` }, ...bars, hand);
  const front = buildFront(bars);
  function draw(now, done) {
    const x = (width * Math.min(now, table.end)) / span;
    hand.setAttribute("x1", x);
    hand.setAttribute("x2", x);
    front(done);
  }
  return { root, draw };
}

// Marks the first `count` nodes as shown, touching only those that change.
function buildFront(nodes) {
  let front = 0;
  return (count) => {
    for (let i = front; i < count; i += 1) nodes[i].classList.add("on");
    for (let i = count; i < front; i += 1) nodes[i].classList.remove("on");
    front = count;
  };
}

// `digits` are the speed's decimals, no more than its range over the runs allows.
function buildStats(digits) {
  const cells = Array.from({ length: 4 }, () => html("dd", {}, "–"));
  const names = [say`tokens/s`, say`forward passes`, say`tokens per step`, say`ms per step`];
  const root = html("dl", { class: "race-stats" }, ...names.map((name, i) => html("div", {}, html("dt", {}, name), cells[i])));
  function draw({ rate, passes, perStep, ms }) {
    const figures = [rate === null ? "–" : grouped(rate, digits), passes, perStep?.toFixed(2) ?? "–", ms?.toFixed(2) ?? "–"];
    figures.forEach((figure, i) => { cells[i].textContent = figure; });
  }
  return { root, draw };
}
