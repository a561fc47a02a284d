// The state of one view, and the messages that change it. Knows nothing about drawing.

const STREAMED = ["index", "follow", "revision"]; // state that the steps of a live run change
const LIVE_MS = 100; // between two drawings of a live run that is being followed: drawing takes time from the engine
const POINTING = ["hover", "cell", "node", "pinned"];
const onlyLights = (changed) => [...changed].every((name) => POINTING.includes(name));

function makeStore(draw) {
  const state = {
    trace: null, packed: null, tables: null, run: null, note: "", failure: "", live: false,
    index: 0, follow: true, node: null, pinned: false, hover: null, cell: null, phase: null, unfolded: false,
    key: null, bytes: 0, lost: "", // a run with steps on the server: its name there, its approximate size, why details are missing
    settings: null, asked: null, made: null, beside: null, putAway: [], labels: "tokens", playing: false, speed: 1, revision: 0,
  };
  const windows = makeWindows({ state, set, redraw });
  let changed = new Set();
  let drawnAt = -LIVE_MS;
  let timer = null;

  // Changes of one frame are drawn together, so that a fast stream never queues up drawings. A tab in the background
  // has no frames, so nothing is drawn there.
  function set(patch) {
    for (const [key, value] of Object.entries(patch)) {
      if (state[key] === value) continue;
      state[key] = value;
      const streamed = STREAMED.includes(key) && state.live && state.follow;
      if (changed.size === 0 || (timer !== null && !streamed)) schedule(streamed ? drawnAt + LIVE_MS - performance.now() : 0);
      changed.add(key);
    }
  }

  function schedule(wait) {
    clearTimeout(timer);
    timer = null;
    if (wait <= 0) requestAnimationFrame(flush);
    else timer = setTimeout(schedule, wait, 0);
  }

  function flush() {
    drawnAt = performance.now();
    const keys = changed;
    changed = new Set();
    draw(sceneOf(state), keys);
  }

  function goto(index) {
    const last = state.trace.steps.length - 1;
    const next = Math.max(0, Math.min(last, index));
    if (next === state.index) return set({ follow: next === last });
    const keep = state.pinned && state.node < sizeOf(state.trace.steps[next]);
    windows.moved(next);
    set({ index: next, follow: next === last, hover: null, cell: null, ...(keep ? {} : { node: null, pinned: false }) });
  }

  // A move that the reader makes.
  function jump(index) {
    set({ playing: false });
    goto(index);
  }

  function redraw() {
    set({ revision: state.revision + 1 });
  }

  return { state, set, goto, jump, redraw, windows };
}

// What the drawings need, derived from the state once a frame.
function sceneOf(state) {
  const { trace, index } = state;
  const made = trace && trace.steps[index];
  if (!made) return { state, trace, step: null };
  const config = settingsOf(trace.config);
  if (isBrief(made)) return { state, trace, config, steps: trace.steps, step: null, brief: made, index, lit: null };
  const recorded = recordedVerdict(made, cutsOf(trace, index));
  const hypothetical = settleWhatIf(config, state.settings, canReheat(trace, made));
  const ruling = rulingOf(hypothetical || config);
  const step = hypothetical && ruling === "typical" ? reheated(trace, made, heatOf(config), hypothetical.temperature) : made;
  const verdict = !hypothetical ? recorded : ruling === "greedy" ? greedyVerdict(step) : typicalVerdict(step, hypothetical.epsilon, hypothetical.delta);
  const inTree = (node) => (node !== null && node < step.nodes.length ? node : null); // it may belong to the step shown before
  const lit = inTree(state.hover ?? state.node);
  const explained = (state.pinned ? inTree(state.node) : lit) ?? verdict.path.at(-1);
  const family = new Set(lit === null ? [] : lineage(recorded.parents, lit));
  const phase = phaseIn(step, state.phase);
  return { state, trace, config, steps: trace.steps, step, index, recorded, hypothetical, ruling, verdict, lit, family, explained, phase, stage: STAGE[phase] ?? PHASE_ORDER.length };
}

// Apply what the server sent (the format is written down in ui/records/messages.py). A message to be confirmed is
// confirmed once it is drawn, or soon after if the browser draws nothing, as in a background tab.
function receive(store, text) {
  if (!text) return;
  const message = JSON.parse(text);
  if (message.kind !== "numbered") return apply(store, message);
  apply(store, message.message, message.run);
  store.state.bytes += text.length;
  const confirm = () => {
    clearTimeout(timer);
    cancelAnimationFrame(frame);
    if (window.medusaChannel) window.medusaChannel.drawn(message.run, message.number);
  };
  const timer = setTimeout(confirm, 300);
  const frame = requestAnimationFrame(confirm); // after the store's own, which draws
}

function apply(store, message, key = null) {
  if (message.kind === "several") return message.messages.forEach((each) => apply(store, each, key));
  const { state } = store;
  const fresh = { run: message.run, index: 0, node: null, pinned: false, hover: null, cell: null, playing: false, phase: null,
    note: "", failure: "", beside: null, key, bytes: 0, lost: "" };
  if (message.kind === "trace") {
    const own = message.settings || null; // the page also sets its controls to them
    const trace = unpackedTrace(message.trace);
    const index = Math.min(Math.max(0, trace.steps.length - 1), message.at === "turning" ? turningStep(trace) : message.at || 0);
    store.set({ ...fresh, index, trace, packed: message.trace, note: message.note || "", live: false, follow: false, beside: message.beside || null, key: null });
    store.set({ made: own, settings: own ? { ...state.settings, ...own } : state.settings });
  } else if (message.kind === "begin") {
    const head = { ...message.trace, output: null };
    const packed = { ...head, schema_version: PACKED_VERSION, ...emptyTables(), steps: [] };
    store.set({ ...fresh, trace: head, packed, tables: emptyTables(), made: state.asked, live: true, follow: true });
  } else if (message.kind === "steps" && state.run === message.run) {
    appendSteps(store, message);
  } else if (message.kind === "end" && state.run === message.run) {
    state.packed.output = state.trace.output = message.output;
    store.set({ live: false, beside: message.beside || null });
  } else if (message.kind === "broken" && state.live) {
    store.set({ note: phrase("not finished"), failure: message.words, live: false, playing: false });
  }
  store.redraw();
}

// Steps of a live run, with what they add to its tables.
function appendSteps(store, message) {
  const { state } = store;
  const { steps } = state.trace;
  if (message.first !== steps.length) return; // already known, or what they refer to is not known here
  addTables(state.tables, message);
  for (const name of TABLES) state.packed[name].push(...message[name]);
  for (const step of message.steps) steps.push(unpackedStep(step, steps.length, state.tables));
  if (state.packed.steps) state.packed.steps.push(...message.steps);
  store.windows.grew(message.first);
  if (state.follow && steps.length) store.goto(steps.length - 1);
}
