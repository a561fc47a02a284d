// Puts the parts together: one store, one scene per frame, from which every part draws.

// Mask, cache and reason of a live run are drawn after its text and tree, in their own frame. Drawing takes time from
// the engine, so they get at most this share of it.
const REST_SHARE = 0.12;
const MOST_REST_MS = 500; // between two drawings of them

// `lecture`: whether the view has its own lecture mode; `whole`: whether its tree is always seen as a whole.
function mountDecodeView(host, styleText, { lecture = true, whole = false } = {}) {
  installStyle(styleText);
  let parts = null;
  const store = makeStore((scene, changed) => parts.draw(scene, changed));
  const uid = "mdv" + Math.random().toString(36).slice(2, 10); // several views may stand on one page
  const builders = []; // builders of what others added: they add it again to a view in another language

  function receiveAndTell(text) {
    const before = store.state.live;
    receive(store, text);
    if (store.state.live !== before) host.dispatchEvent(new CustomEvent(before ? "ended" : "begin"));
  }

  const view = { receive: receiveAndTell, store, state: store.state, root: null, onBuild };

  function onBuild(builder) {
    builders.push(builder);
    builder(view);
  }

  function build() {
    parts = buildParts(host, store, uid, { lecture, whole });
    view.root = parts.root;
    for (const builder of builders) builder(view);
  }

  listenToEvents(host, store);
  build();
  LANGUAGE.listen(() => {
    if (!host.isConnected) return false;
    build();
    store.set({ playing: false });
    store.redraw();
  });
  return (host.decodeView = view);
}

// All that is drawn, in the current language.
function buildParts(host, store, uid, { lecture, whole }) {
  const strip = makeStrip(store);
  const phases = makePhasePanel(store);
  const transport = makeTransport(store, phases);
  const tree = makeTree(store, whole);
  const mask = makeMask(store);
  const kv = makeKvStrip(store);
  const inspector = makeInspector(store);
  const counters = makeCounters();
  const worth = makeWorth();
  const badges = html("div", { class: "mdv-badges" });
  const banner = makeBanner(() => restore(host, store, scene.config), () => host.dispatchEvent(new CustomEvent("again")));
  const empty = emptyState();
  const former = html("p", { class: "mdv-former", role: "status" });
  const grid = html("div", { class: "mdv-grid" }, strip.card, transport.card, phases.card, banner.card,
    tree.card, inspector.card, mask.card, kv.card, counters.card, worth.card);
  const pager = makePager(grid, [[say`Tree`, tree.card], [say`Phases`, phases.card], [say`Why?`, inspector.card], [say`Mask`, mask.card],
    [say`KV cache`, kv.card], [say`So far`, counters.card], [say`The whole run`, worth.card]]);
  // Stands for tree, mask and reason of a step whose details are not here.
  const away = html("p", { class: "mdv-away", role: "status", hidden: true });
  tree.card.querySelector("header").after(away);
  const root = html("div", { class: "mdv is-empty", tabindex: "0", role: "region", "aria-label": say`Decoding, step by step` }, empty, badges, former, pager, grid);
  if (lecture) {
    const help = makeHelp(root);
    const lectures = makeLecture(root, { narrowest: STAGE_WIDTH, lines: STAGE_LINES, least: 1 });
    badges.before(lectures.button, help.button);
    transport.card.querySelector(".mdv-row").append(lectures.exit);
    root.append(help.sheet);
  }
  const flights = makeFlights(root, { maskRow: mask.rowPlace });
  let scene = null;
  let ink = null; // colours of the theme for the canvases
  let missed = new Set(); // changes since the last step that was drawn with its details
  let left = new Set(); // changes that mask, cache and reason have not drawn
  let rested = { at: -MOST_REST_MS, cost: 0 }; // when that was drawn, and how long it took
  let waiting = false;
  host.replaceChildren(root);
  listenToKeys(root, store, { transport, phases }, () => scene, lecture);
  watchTheme(root, () => {
    ink = null;
    store.redraw();
  });

  function draw(next, changed) {
    const drafter = next.trace ? next.trace.config.drafter.name : "";
    if (root.dataset.drafter !== drafter) {
      root.dataset.drafter = drafter; // its accepted guesses have their own colour
      ink = null;
    }
    ink ??= readInks(root);
    if (!scene || ["trace", "settings", "made"].some((name) => changed.has(name))) {
      const { made, settings } = next.state;
      host.dispatchEvent(new CustomEvent("notes", { detail: notesOf(made, settings ?? {}, next.hypothetical) }));
    }
    flights.before(scene, next, changed);
    scene = Object.assign(next, { uid, ink });
    root.classList.toggle("is-empty", !scene.trace);
    root.classList.toggle("is-waiting", Boolean(scene.trace) && !scene.step && !scene.brief);
    if (!scene.brief) root.classList.toggle("is-hypothetical", Boolean(scene.hypothetical));
    root.classList.toggle("is-live", scene.state.live);
    former.textContent = formerWords(scene.state);
    root.classList.toggle("is-former", former.textContent !== "");
    root.dataset.step = scene.step || scene.brief ? scene.index : "";
    if (!scene.brief) root.dataset.phase = scene.phase || "whole";
    tellAway();
    if (!scene.trace) return;
    store.windows.look(scene.index);
    if (!scene.brief) for (const name of missed) changed.add(name);
    missed = scene.brief ? new Set([...missed, ...changed]) : new Set();
    if (!onlyLights(changed)) {
      drawBadges(badges, scene);
      for (const part of [transport, counters, worth]) part.draw(scene);
      if (!scene.brief) banner.draw(scene);
    }
    const afterwards = []; // scrolling reads the layout, so it waits until everything is drawn
    strip.draw(scene, changed, afterwards);
    if (!scene.brief) drawDetails(changed, afterwards); // otherwise the old ones stay until those of this step have come
    for (const act of afterwards) act();
    flights.after(scene);
  }

  function drawDetails(changed, afterwards) {
    for (const part of [phases, tree]) part.draw(scene, changed, afterwards);
    for (const name of changed) left.add(name);
    if (mayWait(scene.state, changed)) restSoon();
    else drawRest(afterwards);
  }

  function tellAway() {
    const { lost } = scene.state;
    root.dataset.details = !scene.brief ? "here" : lost ? "lost" : "away";
    away.hidden = !scene.brief;
    if (scene.brief) away.textContent = lost || say`The details of step ${scene.index + 1} are on their way …`;
  }

  const mayWait = ({ live, follow }, changed) => live && follow && [...changed].every((name) => STREAMED.includes(name));

  function restSoon() {
    if (waiting) return;
    waiting = true;
    const pause = Math.min(MOST_REST_MS, rested.cost / REST_SHARE);
    setTimeout(() => requestAnimationFrame(() => {
      waiting = false;
      if (!left.size || !root.isConnected || scene.brief) return; // drawn meanwhile, or with the details that are on their way
      const afterwards = [];
      drawRest(afterwards);
      for (const act of afterwards) act();
    }), Math.max(0, rested.at + pause - performance.now()));
  }

  function drawRest(afterwards) {
    const at = performance.now();
    const changed = left;
    left = new Set();
    for (const part of [mask, kv, inspector]) part.draw(scene, changed, afterwards);
    rested = { at, cost: performance.now() - at };
  }

  return { root, draw };
}

// Back to the settings that the run was judged by, here and in the page's controls.
function restore(host, store, config) {
  const own = Object.fromEntries(JUDGING.map((name) => [name, config[name] ?? store.state.settings[name]]));
  store.set({ settings: { ...store.state.settings, ...own } });
  host.dispatchEvent(new CustomEvent("restore", { detail: own }));
}

function emptyState() {
  return html("div", { class: "mdv-empty" },
    html("b", {}, say`Nothing decoded yet`),
    html("p", {}, say`Choose an example or write a prompt and run it. Every step then appears here: the tree of guesses, what each guess may look at, and why it was kept or thrown away.`));
}

function makeBanner(undo, again) {
  const words = html("p", { "data-role": "whatif" });
  const back = html("button", { type: "button", "data-act": "recorded", onclick: undo }, say`Back to the recorded verdict`);
  const rerun = html("button", { type: "button", "data-act": "again", onclick: again }, say`Run again with these`);
  const card = html("section", { class: "mdv-banner mdv-area-banner", hidden: true, role: "status" },
    html("b", {}, say`What if`), words, html("div", {}, rerun, back));
  function draw(scene) {
    card.hidden = !scene.hypothetical;
    rerun.hidden = scene.state.settings?.mode === "chat"; // a reply is not made again
    if (scene.hypothetical) words.textContent = describeWhatIf(scene) + " "
      + say`Only this step is judged again; the text and the later steps stay as recorded, though a real run might have gone another way.`;
  }
  return { card, draw };
}

function drawBadges(box, { state, trace }) {
  const { model, output } = trace;
  const config = settingsOf(trace.config);
  const words = [];
  if (state.live) words.push(["live", say`decoding now`]);
  else if (state.note) words.push([state.failure ? "failure" : "note", LANGUAGE.tell(state.note)]);
  // Before the words about the model: where there is little room, the last words are cut.
  if (output?.finish_reason) words.push(["end", say`finished: ${say(ENDINGS[output.finish_reason] ?? output.finish_reason)}`]);
  words.push(["", [model.base, model.dtype, model.device].join(" · ")]); // not the drafters loaded along with the one that ran
  if (model.context) words.push(["", model.extend === "window" ? say`context ${model.context} in a window of ${model.window}` : say`context ${model.context} by YaRN`]);
  words.push(["", say(methodOf(config.method).title)]);
  if (trace.config.drafter.settings.tree === "auto" && trace.config.tree) words.push(["", say`tree auto: ${trace.config.tree.length + 1} nodes`]);
  if (dynamicNodes(trace)) words.push(["", config.method === "medusa" ? say`dynamic tree of ${dynamicNodes(trace)} nodes` : say`dynamic tree of ${dynamicNodes(trace)} nodes, and copies`]);
  words.push(["", ruleName(config)]);
  if (penalises(config)) words.push(["", say`penalty ${setting(config.penalty)} on the last ${config.penalty_window} tokens`]);
  for (const each of truncationOf(config)) words.push(["", each]);
  if (config.ignore_eos) words.push(["", say`goes on after the end of the text`]);
  box.replaceChildren(...words.map(([kind, text]) => html("span", { class: kind ? "is-" + kind : null }, text)));
}

// Why a run came to its end, by the engine's word for it.
const ENDINGS = { eos: phrase("the model ended the text"), length: phrase("token limit reached"), stop: phrase("stop string reached"), context: phrase("the context is full") };

function ruleName({ acceptance, temperature, epsilon, delta }) {
  const heat = isKnown(temperature) ? `, T = ${temperature}` : "";
  if (acceptance === "typical" && temperature <= 0) return say`typical acceptance at T = 0: greedy`;
  if (acceptance === "typical") return say`typical acceptance, ε = ${epsilon}, δ = ${delta}${heat}`;
  const sampling = { match: say`exact sampling`, nucleus: say`nucleus acceptance`, rejection: say`rejection sampling` }[acceptance];
  if (sampling && temperature === 0) return say`greedy, the model’s own choice`;
  return (sampling ?? acceptance) + heat;
}

// Events from the page around the view: "settings" {temperature, epsilon, …}, what its controls hold now;
// "worths", what recorded runs are worth by their names, when the speeds of all tabs have changed;
// "asked", the same when a run is asked for, with what is "fixed" for that run whatever they hold; "anew" when the conversation is put away. They are dispatched on the view or
// on the component's element around it (caught on their way down).
function listenToEvents(host, store) {
  const on = (name, act) => listenWhile(host, name, ({ target, detail }) => target.contains(host) && act(detail), { capture: true });
  on("settings", (detail) => store.set({ settings: detail }));
  on("asked", ({ fixed, ...held }) => store.set({ settings: { ...store.state.settings, ...held }, asked: { ...held, ...fixed }, failure: "" }));
  on("worths", ({ worths }) => worths && store.state.run in worths && store.set({ beside: worths[store.state.run] }));
  on("anew", () => store.set({ putAway: [store.state.made, store.state.asked] }));
}

// The canvases read their colours when they are painted: paint again when the theme changes.
function watchTheme(root, changed) {
  const observer = new MutationObserver(() => (root.isConnected ? changed() : observer.disconnect()));
  observer.observe(document.body, { attributes: true, attributeFilter: ["class"] });
}
