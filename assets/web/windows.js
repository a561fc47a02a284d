// The details of a long run's steps: those of a few windows are kept here, and the others fetched from the server
// (ui/serving/page_routes.py) when a reader comes to them. A run without a server keeps everything.

const WINDOW = 128; // steps, as medusa_core/trace/run_record.py
const MOST_WINDOWS = 6; // kept: around the shown step, the newest, and the most recently viewed
const AHEAD = 24; // steps before a window's border at which its neighbour is fetched
const PAUSE_MS = 60; // between two requests: only the last one of a quick scrub counts

const windowOf = (index) => Math.floor(index / WINDOW);

// Whether a run has more steps than are kept in detail.
const isWindowed = ({ key, trace }) => Boolean(key && trace && trace.steps.length > MOST_WINDOWS * WINDOW);

const NO_ANSWER = phrase("The server does not answer, so the details are not here: look at another step to ask again.");

// What the server keeps of a run; an error's words are those it sent, for the reader.
const ofServer = (work) => work.catch((error) => { throw new Error(LANGUAGE.tell(error.message || NO_ANSWER)); });

// Gives the `steps`, of which the first is number `first` of the run, the details of a window.
function fillIn(steps, first, number, found, tables) {
  found.forEach((step, i) => {
    const index = number * WINDOW + i;
    const known = steps[index - first];
    if (known && isBrief(known)) steps[index - first] = unpackedStep(step, index, tables);
  });
}

function makeWindows(store) {
  const { state } = store;
  let kept = { trace: null, order: [] }; // windows with details, the most recently used at the end
  let asked = null; // {number, trace, life}: the request that is under way
  let failed = null; // the window that could not be fetched; it is requested again only when the reader comes back to it
  let lastAsked = -PAUSE_MS;

  function use(number) {
    if (kept.trace !== state.trace) kept = { trace: state.trace, order: [] };
    kept.order = [...kept.order.filter((each) => each !== number), number];
  }

  // Steps from `from` on have come.
  function grew(from) {
    for (let number = windowOf(from); number <= windowOf(state.trace.steps.length - 1); number++) use(number);
    dropOthers();
  }

  function moved(index) {
    if (!state.key) return;
    const number = windowOf(index);
    if (failed !== number) failed = null;
    if (!isBrief(state.trace.steps[index])) use(number);
  }

  function dropOthers() {
    if (!isWindowed(state)) return;
    const { steps } = state.trace;
    const needed = new Set([state.index, state.index - AHEAD, state.index + AHEAD, steps.length - 1].map(windowOf));
    const spare = kept.order.filter((number) => !needed.has(number)).slice(0, Math.max(0, kept.order.length - MOST_WINDOWS));
    for (const number of spare) {
      const end = Math.min(steps.length, (number + 1) * WINDOW);
      for (let i = number * WINDOW; i < end; i++) steps[i] = briefOf(steps[i]);
    }
    kept.order = kept.order.filter((number) => !spare.includes(number));
    state.packed.steps = null; // the server has the whole run
  }

  // Fetch what the shown step needs or, if nothing, its neighbours before they are needed.
  function look(index) {
    if (!isWindowed(state)) return;
    const { steps } = state.trace;
    const places = [index, index + AHEAD, index - AHEAD].filter((place) => steps[place]);
    const missing = places.find((place) => isBrief(steps[place]));
    if (missing === undefined || (missing !== index && asked)) return;
    want(windowOf(missing));
  }

  function want(number) {
    if (number === failed || (asked && asked.number === number && asked.trace === state.trace)) return;
    if (asked) asked.life.abort();
    asked = { number, trace: state.trace, key: state.key, life: new AbortController() };
    const wait = Math.max(0, lastAsked + PAUSE_MS - performance.now());
    lastAsked = performance.now() + wait;
    const request = asked;
    setTimeout(() => load(request), wait);
  }

  async function load(request) {
    if (request !== asked) return;
    const { key, number, trace, life } = request;
    let [found, lost] = [null, ""];
    try {
      found = await ofServer(window.medusaChannel.steps(key, number, life.signal));
    } catch (error) {
      lost = error.message;
    }
    if (request !== asked) return;
    asked = null;
    if (lost) {
      failed = number;
    } else {
      if (trace !== state.trace) return;
      fillIn(trace.steps, 0, number, found, state.tables);
      use(number);
      dropOthers();
    }
    store.set({ lost });
    store.redraw();
  }

  // Steps with their details, for readers of several; the view keeps none that it does not already hold.
  async function detailed(first, last) {
    const { trace, key, tables } = state;
    const steps = trace.steps.slice(first, last + 1);
    for (let number = windowOf(first); number <= windowOf(last); number++) {
      if (!steps.some((step) => isBrief(step) && windowOf(step.index) === number)) continue;
      fillIn(steps, first, number, await ofServer(window.medusaChannel.steps(key, number)), tables);
    }
    return steps;
  }

  return { grew, moved, look, detailed };
}
