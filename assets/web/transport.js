// Moving through the steps: buttons, a scrubber over bars of accepted length, speed, playback.

const STEP_MS = 900; // at speed 1
const PHASE_MS = 2400; // time to read a sentence
const AWAITING_MS = 50; // between checks whether a step's details have come
const THUMB = 18; // width of the scrubber's thumb in view.css
const LEAST_PITCH = 2.2; // pixels from one bar to the next
const ICONS = {
  first: "M3 3h2v10H3zM13 3v10L6 8z", prev: "M11 3v10L4 8z", play: "M4 2.5v11L13.5 8z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z", next: "M5 3v10l7-5z", last: "M11 3h2v10h-2zM3 3v10l7-5z",
};

function makeTransport(store, phases) {
  const { state } = store;
  const control = (name, label, onclick) =>
    html("button", { type: "button", class: "mdv-control", "data-act": name, "aria-label": label, title: label, onclick }, icon(ICONS[name]));
  const lastIndex = () => state.trace.steps.length - 1;
  const play = control("play", say`Play (space)`, () => toggle());
  const buttons = [
    control("first", say`First step (Home)`, () => store.jump(0)), control("prev", say`Previous step (←)`, () => store.jump(state.index - 1)), play,
    control("next", say`Next step (→)`, () => store.jump(state.index + 1)), control("last", say`Last step (End)`, () => store.jump(Infinity)),
  ];
  const ticks = html("canvas", { class: "mdv-ticks", "aria-hidden": "true" });
  const range = html("input", { type: "range", class: "mdv-range", min: 0, max: 0, step: 1, "aria-label": say`Step` });
  const speed = html("select", { class: "mdv-speed", "aria-label": say`Playback speed` },
    ...[0.25, 0.5, 1, 2, 4, 8].map((value) => html("option", { value, selected: value === 1 }, value + "×")));
  const counter = html("span", { class: "mdv-counter", "data-role": "counter" });
  const summary = html("p", { class: "mdv-summary", role: "status", "aria-live": "polite", "data-role": "summary" });
  const reason = html("p", { class: "mdv-failure", role: "alert", hidden: true, "data-role": "failure" });
  const scrub = html("div", { class: "mdv-scrub" }, ticks, range);
  const card = html("section", { class: "mdv-card mdv-area-transport", "aria-label": say`Steps` },
    html("div", { class: "mdv-row" }, html("div", { class: "mdv-controls" }, ...buttons), scrub, counter, speed), summary, reason);
  let timer = null;
  let latest = null;

  range.addEventListener("input", () => store.jump(Number(range.value)));
  speed.addEventListener("change", () => store.set({ speed: Number(speed.value) }));
  const room = widthKept(scrub, () => latest && (latest.step || latest.brief) && paintTicks(latest));

  function toggle() {
    if (!state.trace || lastIndex() < 0) return;
    if (!state.playing && atEnd()) store.goto(0);
    store.set({ playing: !state.playing });
  }

  function advance() {
    timer = null;
    if (!state.playing || !state.trace || !card.isConnected) return;
    if (isBrief(state.trace.steps[state.index]) && !state.lost) {
      timer = setTimeout(advance, AWAITING_MS); // waits for its tree
      return;
    }
    if (state.phase) phases.move(1);
    else if (state.index < lastIndex()) store.goto(state.index + 1);
    if (atEnd()) store.set({ playing: false });
    else timer = setTimeout(advance, pace());
  }

  // While a phase is shown, phases are played instead of steps.
  const atEnd = () => (state.phase ? phases.atEnd() : state.index >= lastIndex());
  const pace = () => (state.phase ? PHASE_MS : STEP_MS) / state.speed;

  function draw(scene) {
    latest = scene;
    const total = scene.trace.steps.length;
    const { playing, index, live, follow } = scene.state;
    const shown = scene.step || scene.brief;
    if (playing && timer === null) timer = setTimeout(advance, pace());
    if (!playing) {
      clearTimeout(timer);
      timer = null;
    }
    play.replaceChildren(icon(ICONS[playing ? "pause" : "play"]));
    play.setAttribute("aria-label", playing ? say`Pause (space)` : say`Play (space)`);
    range.max = Math.max(0, total - 1);
    range.value = index;
    range.disabled = total < 2;
    counter.classList.toggle("is-long", total > 999);
    counter.replaceChildren(html("b", {}, total ? index + 1 : 0), ` / ${total}`);
    // A screen reader announces single moves, not every step of a playback.
    summary.setAttribute("aria-live", playing || (live && follow) ? "off" : "polite");
    const { asked, made, failure } = scene.state;
    const ended = !live && !failure && asked && made === asked && total > 1 && index === total - 1; // a live run leaves its reader at its end
    if (shown) summary.textContent = (ended ? say`Done: ◀ goes back.` + " " : "") + summarise(scene);
    else summary.textContent = live ? say`Waiting for the first step …` : failure ? say`No step was made.` : say`This run has no steps.`;
    reason.textContent = LANGUAGE.tell(failure);
    reason.hidden = !failure;
    for (const button of buttons) button.disabled = total === 0;
    if (shown) {
      range.setAttribute("aria-valuetext", say`step ${index + 1} of ${total}, ${plural(shown.emitted.length, "token")} kept`);
      paintTicks(scene);
    } else {
      range.removeAttribute("aria-valuetext");
      ticks.width = 0; // clears the previous run's bars from the canvas
    }
  }

  function paintTicks({ steps, index, ink }) {
    const [width, height] = [room.width, 34];
    if (width < 20) return;
    const pen = blank(ticks, { width, height });
    const { tokens, most } = sumsOf({ steps });
    // In a long run a bar stands for several steps and is as high as their mean.
    const together = Math.max(1, Math.ceil(steps.length / Math.max(1, Math.floor((width - THUMB) / LEAST_PITCH))));
    const pitch = ((width - THUMB) * together) / Math.max(1, steps.length - 1);
    const bar = Math.max(1.5, Math.min(14, pitch * 0.66));
    scrub.title = together === 1 ? say`Height = tokens kept by the step` : say`Height = mean of the tokens kept by ${together} steps`;
    for (let i = 0; i < steps.length; i += together) {
      const end = Math.min(steps.length, i + together);
      const mean = (tokens[end] - tokens[i]) / (end - i);
      const tall = Math.max(3, (mean / Math.max(2, most)) * (height - 4));
      const x = steps.length === 1 ? width / 2 : THUMB / 2 + (i / together) * pitch;
      const name = i <= index && index < end ? "select" : i < index ? "accept" : "tick";
      pen.fillStyle = ink(name);
      pen.beginPath();
      pen.roundRect(x - bar / 2, height - tall, bar, tall, Math.min(2, bar / 3));
      pen.fill();
    }
  }

  return { card, draw, toggle };
}
