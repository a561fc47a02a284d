// The side-by-side replay: lanes of recorded runs on one clock, from the measured milliseconds of their steps.
// Runs inside a gr.HTML (`element`, `props`, `watch` come from gradio). Knows nothing about server or model.

const SPEEDS = [1 / 128, 1 / 64, 1 / 32, 1 / 16, 0.125, 0.25, 0.5, 1, 2, 4];
const LONG_ENOUGH = 4; // the least seconds of a replay, if the slowest speed allows
const PLAY = "M4 2l10 6-10 6z";
const PAUSE = "M4 2h3v12H4zM9 2h3v12H9z";

// The highest speed, up to the measured one, that can still be followed.
const paceFor = (span) => SPEEDS.findLast((value) => value <= 1 && span / value >= LONG_ENOUGH) || SPEEDS[0];

let chosenSpeed = null; // by the visitor; it holds for the next races as well

function buildPlayer(message) {
  const tables = message.lanes.map(timetable);
  const span = Math.max(1e-6, ...tables.map((table) => table.end));
  const stops = [...new Set(tables.flatMap((table) => table.steps.map((step) => step.end)))].sort((a, b) => a - b);
  const verdict = message.verdict;
  const differs = verdict?.comparable && !verdict.equal ? verdict.index : null;
  const lanes = tables.map((table, i) => buildLane(table, span, i < 2 ? differs : null));
  const state = { now: 0, playing: false, speed: chosenSpeed || paceFor(span), frame: 0, stamp: 0 };

  const play = html("button", { class: "race-play", type: "button", title: say`Space`, onclick: () => toggle() }, say`Play`);
  const restart = html("button", { type: "button", onclick: () => { seek(0); start(); } }, say`↺ Restart`);
  const scrub = html("input", { class: "race-scrub", type: "range", min: 0, max: 1000, value: 0, "aria-label": say`Moment of the replay` });
  const clock = html("output", { class: "race-clock" });
  const speeds = SPEEDS.map((value) => html("option", { value, selected: value === state.speed }, value < 1 ? `1/${1 / value}×` : `${value}×`));
  const speed = html("select", { class: "race-speed", "aria-label": say`Replay speed` }, speeds);
  const bar = html("div", { class: "race-bar" }, play, restart, scrub, clock, speed);
  const grid = html("div", { class: "race-lanes" }, lanes.map((lane) => lane.root));
  const root = html("div", { class: message.recorded ? "race-player recorded" : "race-player" },
    message.recorded && html("p", { class: "race-recorded" }, recordedWords(message.recorded)), bar, grid,
    buildKey((tables.find((table) => drafts(table.drafter)) ?? tables[0]).drafter), buildSummary(tables, message));

  scrub.addEventListener("input", () => { stop(); seek((span * scrub.value) / 1000); });
  speed.addEventListener("change", () => { state.speed = chosenSpeed = Number(speed.value); });

  function seek(now) {
    state.now = Math.max(0, Math.min(span, now));
    for (const lane of lanes) lane.draw(state.now);
    scrub.value = Math.round((1000 * state.now) / span);
    scrub.setAttribute("aria-valuetext", say`${seconds(state.now)} of ${seconds(span)}`);
    clock.textContent = `${seconds(state.now)} / ${seconds(span)}`;
  }
  function tick(stamp) {
    if (!state.playing || !root.isConnected) return stop();
    seek(state.now + (state.speed * Math.min(250, stamp - state.stamp)) / 1000);
    state.stamp = stamp;
    if (state.now >= span) return stop();
    state.frame = requestAnimationFrame(tick);
  }
  function start() {
    if (state.now >= span) seek(0);
    cancelAnimationFrame(state.frame);
    state.playing = true;
    face(PAUSE, say`Pause`);
    state.stamp = performance.now();
    state.frame = requestAnimationFrame(tick);
  }
  function stop() {
    state.playing = false;
    cancelAnimationFrame(state.frame);
    face(PLAY, say`Play`);
  }
  const face = (path, word) => play.replaceChildren(icon(path, 13), word);
  const toggle = () => (state.playing ? stop() : start());
  // The next or previous moment at which any lane finished a step.
  function hop(direction) {
    stop();
    seek(direction > 0 ? stops.find((moment) => moment > state.now + 1e-6) ?? span : stops.findLast((moment) => moment < state.now - 1e-6) ?? 0);
  }
  face(PLAY, say`Play`);
  return { root, seek, start, stop, toggle, hop, end: () => seek(span), now: () => state.now };
}

// The lanes before anything has run: who will continue the prompt, and what to press.
function buildReady(prompt, names) {
  const lanes = names.map(([name, drafter]) => buildLane(timetable({ name, drafter, runs: [], trace: { prompt: { text: prompt }, steps: [] } }), 1, null));
  const words = html("p", { class: "race-recorded" }, say`About to start: press Compare, and both lanes continue this prompt, timed on this machine.`);
  for (const lane of lanes) lane.draw(0);
  return html("div", { class: "race-ready" }, words, html("div", { class: "race-lanes" }, lanes.map((lane) => lane.root)));
}

// ---- the component -------------------------------------------------------------------------------------------

const status = html("p", { class: "race-status", role: "status" });
const stage = html("div", { class: "race-stage" });
const view = html("div", { class: "race-view", tabindex: "0", role: "region" });
let gallery = null;
element.querySelector(".race-host").append(view);
dressView();
let player = null;
let seen = null;
let current = null; // the race that is shown, null while the lanes wait
let last = null; // the race shown last
let settings = {}; // values of the tab's controls
let said = ""; // the status, as the server sent it

// All that does not come with a message, in the current language.
function dressView() {
  gallery = buildGallery((message) => {
    element.dataset.prompt = promptOf(message); // gradio passes no event data to a script
    last = message;
    show(message, false);
    trigger("take");
  });
  view.replaceChildren(status, stage, gallery.root);
  view.setAttribute("aria-label", say`Side-by-side replay. Space plays, left and right arrow go from step to step.`);
  status.dataset.below = say`Below is the previous comparison.`;
  status.dataset.recorded = say`Below is the recorded race.`;
}

LANGUAGE.listen(() => {
  if (!view.isConnected) return false;
  dressView();
  status.textContent = LANGUAGE.tell(said);
  if (current) show(current, false, player.now());
  else wait();
});

function receive(value) {
  if (!value || value === seen) return;
  seen = value;
  const message = JSON.parse(value);
  if (message.kind === "status") {
    player?.stop();
    status.textContent = LANGUAGE.tell((said = message.text));
    view.classList.toggle("busy", Boolean(message.busy));
    view.classList.toggle("former", Boolean(player)); // the view below shows no result of this comparison
  } else if (message.kind === "race") {
    view.classList.remove("busy");
    last = message;
    show(message, true);
    if (message.recorded) settle();
    else if (view.getBoundingClientRect().top > innerHeight / 2) view.scrollIntoView({ behavior: calm() ? "auto" : "smooth" }); // a phone has it below the settings
  }
}

// The lanes show the race of the prompt beside them, or are about to start with it.
function settle() {
  if (settings.prompt === undefined || view.classList.contains("busy")) return;
  if (!last || oneLine(promptOf(last)) !== oneLine(settings.prompt || "")) wait();
  else if (current !== last) show(last, false, 0);
}

function wait() {
  if (settings.prompt === undefined) return;
  player?.stop();
  player = current = null;
  view.classList.remove("former");
  stage.replaceChildren(buildReady(settings.prompt || "", laneTitles(settings)));
  gallery.show(null, false);
}

// Replays a race; `fresh` for one that has just come, not from the list of earlier ones; `at` a moment of it if it
// is not to be played.
function show(message, fresh, at = null) {
  player?.stop();
  if (!view.classList.contains("busy")) {
    status.textContent = said = "";
    view.classList.remove("former");
  }
  player = buildPlayer((current = message));
  stage.replaceChildren(player.root);
  gallery.show(message, fresh);
  if (at !== null) player.seek(at);
  else if (message.recorded && fresh) player.seek(0); // about to start
  else if (calm()) player.end();
  else { player.seek(0); player.start(); }
}

view.addEventListener("keydown", (event) => {
  if (!player || hasModifier(event)) return;
  const tag = event.target.tagName;
  if (event.key === " " && tag !== "BUTTON" && tag !== "SELECT") player.toggle();
  else if (event.key === "ArrowRight" && tag !== "SELECT") player.hop(1);
  else if (event.key === "ArrowLeft" && tag !== "SELECT") player.hop(-1);
  else return;
  event.preventDefault();
});
// What the tab's controls hold (ui/components/events.py), now and from now on.
const writeNotes = noteWriter(element);
function hold(detail) {
  writeNotes(laneNotes(detail));
  settings = detail;
  settle();
}
const block = element.closest(".block"); // the part that the page tells
block.addEventListener("settings", ({ detail }) => hold(detail));
const held = window.medusaSettings?.[block.id];
if (held) hold(held);
watch("value", () => receive(props.value));
receive(props.value);
