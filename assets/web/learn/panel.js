// The Learn tab: the story's cards at the left, the picture and the linked view they drive at the right.

const KEPT = "medusa-learn"; // in the browser's storage: the card and the answers

function mountLearn(host, content) {
  installStyle(LEARN_STYLE, "learn-style");
  const { texts, records } = content;
  for (const [tag, { language }] of Object.entries(texts)) LANGUAGE.add(tag, language, {});
  const stored = parsed(readStored(KEPT)) ?? {};
  const runOf = (trace, name, answers = {}) => ({ trace, name, answers, tell: makeTeller(trace, records) });
  const recorded = runOf(unpackedTrace(content.recording.trace), { text: "recorded" }, stored.answers ?? {});
  const others = (content.runs ?? []).map(({ name, trace }) => runOf(unpackedTrace(trace), { text: "of_drafter", run: name }));
  for (const text of Object.values(texts)) text.cards = text.cards.filter((each) => [recorded, ...others].some((run) => canTell(run, each)));
  if (unfitReason(recorded.trace)) {
    const { words } = texts[languageOf(texts)];
    return host.replaceChildren(html("p", { class: "learn" }, plainText(words.unfit, { why: words.unfit_recording })));
  }
  const viewHost = html("div", { class: "mdv-host" });
  const view = mountDecodeView(viewHost, DECODE_VIEW_STYLE, { lecture: false, whole: true });
  const stage = makeStage(view, viewHost, records, ask);
  const glossary = makeGlossary({ onSeen: stage.showPart });
  const card = makeCard({ onAnswer: choose, onAgain: () => choose(null), onTry: tryInDecode, link: glossary.link });
  const yours = makeOwnRun({ onRun: takeRun, onRecorded: takeRecording });
  const dots = html("ol", { class: "learn-dots" });
  const progress = html("p", { class: "learn-progress" });
  const live = html("p", { class: "learn-hidden", role: "status", "aria-live": "polite" });
  const heading = html("h2", {});
  const keys = html("p", { class: "learn-keys" });
  const button = (kind, onclick) => html("button", { type: "button", class: kind, onclick });
  const back = button("learn-plain", () => go(state.card - 1));
  const next = button("learn-primary", () => (state.card === cardsNow().length - 1 ? tryInDecode() : go(state.card + 1)));
  const reset = button("learn-link", startOver);
  const side = html("article", { class: "learn-card" }, card.node, glossary.note, html("nav", { class: "learn-nav" }, back, dots, next));
  const root = html("div", { class: "learn", tabindex: "-1", role: "region" });
  const lecture = makeLecture(root, { onChange: () => state.run && draw(), type: 15, narrowest: 640 });
  root.append(html("header", { class: "learn-head" }, heading, html("div", { class: "learn-tools" }, progress, reset, lecture.button)),
    html("div", { class: "learn-desk" }, side, stage.node, html("div", { class: "learn-more" }, yours.box, glossary.box)), keys, live);
  let asked = "{}"; // model and device that the reader named last
  // `run`: the run that is told, with the answers given on it; `shown`: the run that the card on screen uses.
  const state = { run: null, shown: null, card: 0, language: languageOf(texts) };
  const cardsNow = () => texts[state.language].cards;
  const nameOf = (words, { name }) => plainText(words[name.text], { run: LANGUAGE.tell(name.run ?? "") });
  host.replaceChildren(root);
  listenToCardKeys(root, { go: (by) => go(state.card + by), choose: (index) => root.querySelector(`.learn-choice[data-choice="${index}"]`) && choose(index), glossary });
  show(recorded, Number.isInteger(stored.card) ? stored.card : 0);
  LANGUAGE.listen(() => {
    if (!host.isConnected) return false;
    state.language = languageOf(texts);
    speak();
  });

  function takeRecording() {
    show(recorded, 0);
  }

  // Returns why the run cannot carry the cards, or "". `name`: what the run is called, a word of the texts with its
  // facts, as in {text: "own"}.
  function takeRun({ trace, name = { text: "own" } }) {
    const why = unfitReason(trace);
    if (why) return why;
    show(runOf(trace, name), 0);
    card.title.focus();
    card.title.scrollIntoView({ block: "start" });
    return "";
  }

  function show(run, number) {
    Object.assign(state, { run, card: Math.max(0, Math.min(cardsNow().length - 1, number)) });
    speak();
  }

  // Everything in the current language: what does not change with the card, then the card.
  function speak() {
    const own = texts[state.language];
    const { words } = own;
    root.lang = state.language;
    root.setAttribute("aria-label", words.tour);
    [heading.textContent, back.textContent, reset.textContent] = [words.tour, words.back, words.reset];
    [lecture.button.textContent, keys.textContent] = [words.lecture, words.keys];
    [[dots, words.cards], [side, words.story], [stage.picture, words.picture], [stage.node, words.stage]]
      .forEach(([part, name]) => part.setAttribute("aria-label", name));
    glossary.draw(own);
    yours.draw(words, state.run !== recorded);
    draw();
  }

  function go(number) {
    const cards = cardsNow();
    const wanted = Math.max(0, Math.min(cards.length - 1, number));
    if (wanted === state.card) return;
    state.card = wanted;
    remember();
    glossary.close();
    draw();
    live.textContent = plainText(texts[state.language].words.card, { number: wanted + 1, count: cards.length }) + ": " + cards[wanted].title;
    if (!root.contains(document.activeElement) || !document.activeElement.isConnected) card.title.focus({ preventScroll: true });
    toStart();
  }

  // A card starts at its top, whatever was scrolled for the one before.
  function toStart() {
    for (const box of [root, side, stage.node]) box.scrollTop = 0;
    if (card.title.getBoundingClientRect().top < 0) card.title.scrollIntoView({ block: "start" });
  }

  function choose(choice) {
    const { id } = cardsNow()[state.card];
    const given = { ...state.run.answers };
    if (choice === null) delete given[id];
    else if (id in given) return;
    else given[id] = choice;
    state.run.answers = given;
    remember();
    glossary.close();
    draw();
    const to = root.querySelector(choice === null ? ".learn-choice" : `.learn-choice[data-choice="${choice}"]`);
    if (to) to.focus({ preventScroll: true });
    if (choice === null) toStart();
    else card.answer.scrollIntoView({ block: "nearest" });
  }

  // The run stays: only the answers given on it are dropped.
  function startOver() {
    state.run.answers = {};
    show(state.run, 0);
    remember();
  }

  // Without storage, as in a private window, card and answers last until the page is closed.
  function remember() {
    if (state.run === recorded) writeStored(KEPT, JSON.stringify({ card: state.card, answers: recorded.answers }));
  }

  function draw() {
    const own = texts[state.language];
    const told = own.cards[state.card];
    const chosen = state.run.answers[told.id] ?? null;
    const { shown, missing } = runFor(told);
    const lacking = missing ? lackingWords(own.words, missing) : "";
    state.shown = shown;
    card.draw({ card: told, number: state.card + 1, total: own.cards.length, texts: own, facts: shown.facts, chosen, lacking });
    drawDots(own.cards);
    progress.textContent = plainText(own.words.answered, { done: Object.keys(state.run.answers).length, count: own.cards.length });
    const isLast = state.card === own.cards.length - 1;
    back.disabled = state.card === 0;
    next.textContent = isLast ? own.words.onward : own.words.next;
    next.disabled = isLast && !decodeHostOfPage();
    root.classList.toggle("is-asking", chosen === null);
    root.dataset.card = told.id;
    const words = { ...own, run: nameOf(own.words, shown.run) };
    stage.draw({ told, shown, words, isAnswered: chosen !== null, isLecture: lecture.isOn() });
  }

  // The run that a card is told with: the reader's, unless it lacks something or its drafter is not the card's.
  function runFor(told) {
    const run = [state.run, recorded, ...others].find((each) => canTell(each, told));
    const { missing } = state.run !== recorded && isOfDrafter(state.run, told) ? state.run.tell(told) : {};
    return { shown: { run, facts: run.tell(told).facts }, missing };
  }

  function lackingWords(words, missing) {
    const why = plainText(words["need_" + missing], { name: nameOf(words, state.run) });
    return plainText(words.lacking, { why });
  }

  function drawDots(cards) {
    dots.replaceChildren(...cards.map((each, i) => html("li", {}, html("button", {
      type: "button", "aria-label": `${i + 1}: ${each.title}`, "aria-current": i === state.card ? "step" : null, title: each.title,
      class: each.id in state.run.answers ? "is-answered" : null, onclick: () => go(i) }, i + 1))));
  }

  function tryInDecode() {
    if (lecture.isOn()) lecture.toggle();
    openInDecode(state.shown.run.trace, state.shown.facts.index);
  }

  // The speeds of all tabs have changed: this machine was measured, or the reader went back to the recorded ones.
  function renew(newer) {
    Object.assign(records, newer);
    for (const run of new Set([recorded, state.run, ...others])) run.tell = makeTeller(run.trace, records);
    draw();
  }

  // The figures of the reader's own model and card: the server is asked, and its answer comes through `expect`.
  function ask(what) {
    asked = JSON.stringify(what);
    host.dispatchEvent(new CustomEvent("ask"));
  }

  function expect(text) {
    records.expected = JSON.parse(text);
    draw();
    root.querySelector(".learn-yourform button")?.focus({ preventScroll: true });
  }

  return { root, state, takeRun, takeRecording, renew, expect, asked: () => asked };
}

// The page's language if there is a text in it, else the first.
const languageOf = (texts) => (LANGUAGE.code in texts ? LANGUAGE.code : Object.keys(texts)[0]);
const isOfDrafter = (run, card) => !card.run || run.trace.config.drafter.name === card.run;
const canTell = (run, card) => isOfDrafter(run, card) && !unfitReason(run.trace) && !run.tell(card).missing;
