// What a finished run came to: tokens per step, what a step cost next to one of plain decoding, the speedup that follows,
// and whether the text is plain decoding's.

// `beside` is what the server knows besides the trace: {"timed_ms", milliseconds of a step of plain decoding and of one
// with this tree, timed on this machine while nothing was drawn, or null; "source" and "speedup" of a recorded
// run: which measurement the times come from, and what it found, "sized" {"nodes", "ms"} the step measured
// nearest to the size of the run's trees; "small", how far the speeds of a small model carry, "untimed", why the tree "auto" was
// not chosen by times, "faster", that this tree is faster than the run's}; null for a run from a file.
const NOTHING_KEPT = 1.005; // tokens a step, shown with two decimals
const SLOWED = 1.5; // times a step timed by itself: beyond this the page says that drawing slowed the run

function worthOf({ steps, output }, beside) {
  if (!output || !steps.length) return null;
  const times = steps.map((step) => step.ms.total).sort((a, b) => a - b);
  const stepMs = times[Math.floor((times.length - 1) / 2)];
  const [plainMs, treeMs] = beside?.timed_ms || [null, null];
  const mean = output.tokens_per_step;
  const overhead = plainMs && treeMs / plainMs;
  // Computed from rounded numbers, so that a reader who divides what is shown gets the same speedup.
  const sized = overhead && beside.source ? beside.sized.ms / plainMs : overhead; // a recorded run has the overhead of trees as large as its own
  return { mean, stepMs, plainMs, treeMs, overhead: sized, speedup: sized && Number(decimal(mean)) / Number(decimal(sized)) };
}

function worthWords({ mean, stepMs, plainMs, treeMs, overhead, speedup }, beside) {
  if (overhead && beside.source) {
    const other = beside.nodes === beside.sized.nodes ? "" : say`Watch takes ${beside.sized.nodes} nodes so that there is a tree to look at; Compare takes the fastest tree, which had ${beside.nodes} when this was measured.` + " ";
    return say`This text alone: ${decimal(mean)} tokens a step ÷ overhead ${decimal(overhead)}, with ${beside.sized.nodes} nodes, ≈ ${decimal(speedup)} times as fast as plain decoding.` + " " + other
      + say`Over whole runs of all texts that were measured, this method is ${decimal(beside.speedup)} times as fast: its step takes ${decimal(treeMs)} ms where a plain one takes ${decimal(plainMs)}.` + " " + LANGUAGE.tell(beside.source);
  }
  if (overhead) {
    const estimate = say`An estimate: ${decimal(mean)} tokens a step ÷ overhead ${decimal(overhead)} ≈ ${decimal(speedup)} times as fast as plain decoding. The overhead is a step with a tree of this size, ${decimal(treeMs)} ms, over a plain step’s ${decimal(plainMs)} ms, both timed on this machine with a short text. Side by side in Compare measures both with your prompt.` + (beside.faster ? " " + LANGUAGE.tell(beside.faster) : "");
    if (stepMs < SLOWED * treeMs) return estimate;
    return estimate + " " + say`In this run a step took ${decimal(stepMs)} ms (median): it shared the processor with the drawing of this page.`;
  }
  if (mean < NOTHING_KEPT) return say`No guess was kept in this run: one token a step, as without guesses, and what guessing took came on top.`;
  const perStep = say`${decimal(mean)} tokens a step is not yet a speedup: a step with a tree takes longer than a plain one.`;
  if (!beside) return perStep + " " + say`This file holds no time of a plain step, so there is no estimate.`;
  if (beside.untimed) return perStep + " " + LANGUAGE.tell(beside.untimed);
  return perStep + " " + say`Steps of this model and method have not been timed on this machine, so there is no estimate: Side by side in Compare measures it.`;
}

// Whether a run with these settings writes what plain decoding would, in one sentence.
function samenessWords({ acceptance, temperature, root }, dtype, exact) {
  const heat = setting(temperature);
  if (temperature <= 0) {
    if (dtype === "float32") return say`Yes, but for exact ties: at temperature 0 a guess is kept only where it is the model’s own most likely token.`;
    if (exact) return say`Yes: at temperature 0 a guess is kept only where it is the model’s own most likely token, and in ${dtype} too this model’s forward gives a guess the numbers that its token gets alone.`;
    return say`Yes, but for near ties: at temperature 0 a guess is kept only where it is the model’s own most likely token, but rounding in ${dtype} can depend on how many tokens are read at once and flip two that are almost equally likely.`;
  }
  if (acceptance === "typical" && root !== "sample") return say`Not always: typical acceptance also keeps plausible tokens that are not the likeliest. At temperature 0, or by the rule “match”, the text is the model’s own.`;
  if (acceptance === "typical") return say`No: tokens are drawn at temperature ${heat}, and typical acceptance also keeps plausible ones that plain decoding would draw less often.`;
  if (acceptance === "nucleus") return say`No: tokens are drawn at temperature ${heat}, and a guess on several paths has several chances, so guessed tokens come more often than plain decoding would draw them. The rule “match” with the same top-p is exact.`;
  return say`The same odds, not the same words: at temperature ${heat} every token is drawn from the distribution plain decoding draws from, but with other draws. At temperature 0 the words are the same too.`;
}

function makeWorth() {
  const figures = html("div", { class: "mdv-numbers" });
  const [words, same] = [html("p", { "data-role": "worth" }), html("p", { "data-role": "sameness" })];
  const card = html("section", { class: "mdv-card mdv-area-worth", hidden: true, "aria-label": say`The whole run` },
    cardHead(say`The whole run`, say`how much faster, and whether the text is the same`), html("div", { class: "mdv-worth" }, figures, html("div", {}, words, same)));

  let drawn = [];

  function draw({ trace, config, state }) {
    const told = [trace, trace.output, state.beside, state.live];
    if (told.every((part, i) => part === drawn[i])) return; // it says the same at every step
    drawn = told;
    const worth = worthOf(trace, state.beside);
    card.hidden = !worth || state.live;
    if (card.hidden) return;
    const drafted = drafts(config.method);
    const [overhead, speedup] = [decimal(worth.overhead) + "×", decimal(worth.speedup) + "×"];
    const shown = [["worth-mean", decimal(worth.mean), say`tokens / step`]];
    if (worth.overhead && drafted) shown.push(["worth-overhead", "÷ " + overhead, say`overhead`], ["worth-speedup", "≈ " + speedup, say`speedup, estimated`]);
    figures.replaceChildren(...countsOf(shown));
    const small = state.beside?.small ? " " + LANGUAGE.tell(state.beside.small) : "";
    words.textContent = drafted ? worthWords(worth, state.beside) + small : say`This is plain decoding: one token a step, which is what speedup and overhead refer to.`;
    same.hidden = !drafted;
    same.replaceChildren(html("b", {}, say`The text of plain decoding?`), " ", samenessWords(config, trace.model.dtype, Boolean(trace.model.exact)));
  }

  return { card, draw };
}
