// What is shown next to a card: its picture, and the parts of the linked view that it is about.

const areaOf = (part) => /mdv-area-(\w+)/.exec(part.className)[1];

function makeStage(view, viewHost, records, ask) {
  const picture = html("section", { class: "learn-picture", tabindex: "0" });
  const source = html("p", { class: "learn-source" });
  const node = html("section", { class: "learn-stage" }, picture, source, viewHost);
  let runs = 0;
  let last = null; // the run in the view

  // `shown`: {run, facts} of the card `told`; `words`: the texts, and in `run` what the run is called.
  function draw({ told, shown, words, isAnswered, isLecture }) {
    const { run, facts } = shown;
    const drawing = PICTURES[told.picture];
    const drawn = drawing ? drawing({ step: run.trace.steps[facts.index], trace: run.trace, facts, records, ask, say: sayer(words.pictures) }) : [];
    picture.replaceChildren(...drawn.filter(Boolean));
    picture.hidden = picture.childNodes.length === 0;
    const about = picture.querySelector(".is-named");
    if (about) picture.scrollLeft = about.offsetLeft - picture.clientWidth / 2; // a row is wider than a phone
    const turned = Boolean(told.turn && isAnswered); // to the next step
    const seen = { ...facts, step: turned ? facts.next_step : facts.step };
    source.textContent = plainText(words.words.shown, { name: words.run }) + ". " + plainText(told.end ? words.words.whole_run : words.words.this_step, seen);
    source.hidden = !told.needs;
    if (last !== run) apply(view.store, { kind: "trace", run: "learn" + ++runs, trace: run.trace, note: words.run });
    last = run;
    drive(told, shown, isAnswered, turned);
    const { parts, after = parts } = (isLecture && told.lecture) || told;
    place(isAnswered ? after : parts, told.mark);
  }

  // Step, node and phase of the view that the card is about.
  function drive(told, { run, facts }, isAnswered, turned) {
    const { store } = view;
    const pick = (isAnswered && told.answer) || told.pick;
    store.goto(told.end ? run.trace.steps.length - 1 : facts.index + (turned ? 1 : 0));
    if (pick && !(pick + "_id" in facts)) throw new Error(`no node is called ${pick}`);
    const node = turned ? 0 : pick ? facts[pick + "_id"] : null;
    const phase = (isAnswered ? told.phase_after : told.phase) ?? null; // verdicts are drawn from the phase on that makes them
    store.set({ node, phase, pinned: false, hover: null, cell: null, playing: false });
    viewHost.classList.toggle("is-veiled", Boolean(told.veil) && (!isAnswered || Boolean(told.veil_after)));
  }

  // Drawn again, since a hidden part could not scroll to what it is about.
  function place(parts, marked) {
    viewHost.hidden = parts.length === 0;
    for (const part of viewHost.querySelectorAll(".mdv-grid > *")) {
      const area = areaOf(part);
      part.classList.toggle("learn-away", !parts.includes(area));
      part.classList.toggle("learn-marked", area === marked && parts.length > 1);
    }
    view.store.redraw();
  }

  // A term's place on the page, even where the card does not show it.
  function showPart(area) {
    const wanted = viewHost.querySelector(".mdv-area-" + area);
    if (!wanted) return;
    const shown = [...viewHost.querySelectorAll(".mdv-grid > :not(.learn-away)")].map(areaOf);
    place([...new Set([...(viewHost.hidden ? [] : shown), area])], area);
    viewHost.classList.remove("is-veiled");
    wanted.scrollIntoView({ block: "nearest" });
  }

  return { node, picture, draw, showPart };
}

// Words of a picture with facts in them; `say.nodes` keeps tokens as they are drawn elsewhere.
function sayer(words) {
  const say = (name, facts = {}) => plainText(words[name], facts);
  say.nodes = (name, facts) => sentence(words[name], facts, (_, shown) => shown);
  return say;
}
