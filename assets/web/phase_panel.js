// The phases of the shown step: a row of buttons, and for the chosen one its words, shapes, time and picture.

function makePhasePanel(store) {
  const { state } = store;
  const buttons = new Map(PHASE_ORDER.map((name) => [name, phaseButton(name, () => choose(name))]));
  const whole = html("button", { type: "button", class: "mdv-wholestep", onclick: () => store.set({ phase: null }) }, say`Whole step`);
  const row = html("div", { class: "mdv-phases", role: "group", "aria-label": say`Phases of this step` }, whole, ...buttons.values());
  const words = html("p", { class: "mdv-phasewords", "data-role": "phase", role: "status" });
  const shapes = html("p", { class: "mdv-shapes", "data-role": "shapes" });
  const picture = html("div", { class: "mdv-phasepic" });
  const told = html("div", { class: "mdv-phasetold" }, words, shapes);
  const body = [told, picture];
  const head = html("div", { class: "mdv-phasehead" }, html("h3", {}, say`Inside this step`), row);
  const card = html("section", { class: "mdv-card mdv-area-phases", "aria-label": say`Inside this step` }, head, ...body);
  // The picture is as wide, but hidden at first: what is drawn is not to move once guesses fly to it.
  const room = widthKept(head, () => latest && latest.step && latest.phase && paint(latest));
  let latest = null;
  linkNodes(store, picture);

  function choose(name) {
    store.set({ playing: false, phase: state.phase === name ? null : name, hover: null });
  }

  // The next or the previous phase, over the border of the step; `playing` is left as it is.
  function move(direction) {
    const { steps } = state.trace;
    const own = phasesOf(steps[state.index]);
    const at = own.indexOf(phaseIn(steps[state.index], state.phase));
    if (state.phase === null) return store.set({ phase: own[0] });
    if (own[at + direction]) return store.set({ phase: own[at + direction] });
    const next = state.index + direction;
    if (!steps[next]) return;
    const there = phasesOf(steps[next]);
    store.goto(next);
    store.set({ phase: direction > 0 ? there[0] : there[there.length - 1] });
  }

  const atEnd = () => {
    const { steps } = state.trace;
    const own = phasesOf(steps[state.index]);
    return state.index === steps.length - 1 && phaseIn(steps[state.index], state.phase) === own[own.length - 1];
  };

  function paint(scene) {
    const { phase } = scene;
    words.setAttribute("aria-live", state.playing ? "off" : "polite");
    const title = say(PHASE_TITLES[phase]);
    words.replaceChildren(html("b", {}, `${phasesOf(scene.step).indexOf(phase) + 1} · ${title}. `), PHASE_WORDS[phase](scene));
    const time = timeWords(scene.step, phase, isRecording(scene.state));
    shapes.replaceChildren(...shapesOf(scene, phase).map(([name, shape]) => html("span", {}, name + " ", html("code", {}, shape))),
      time && html("span", { class: "mdv-phasetime" }, html("i", { class: "mdv-dot phase-" + TIMED_BY[phase] }), time));
    picture.replaceChildren(...phasePicture(scene, phase, room.width));
    picture.hidden = !picture.childNodes.length;
  }

  function draw(scene, changed) {
    latest = scene;
    if (!scene.step) return;
    if (![...changed].every((name) => POINTING.includes(name))) {
      const own = phasesOf(scene.step);
      for (const [name, button] of buttons) {
        button.hidden = !own.includes(name);
        button.setAttribute("aria-pressed", String(name === scene.phase));
        button.classList.toggle("done", scene.phase !== null && STAGE[name] < STAGE[scene.phase]);
      }
      whole.setAttribute("aria-pressed", String(scene.phase === null));
      for (const part of body) part.hidden = scene.phase === null;
      if (scene.phase) paint(scene);
    }
    for (const part of picture.querySelectorAll("[data-node]")) part.classList.toggle("lit", Number(part.dataset.node) === scene.lit);
  }

  return { card, head, draw, move, atEnd };
}

function phaseButton(name, onclick) {
  const label = say(PHASE_TITLES[name]);
  return html("button", { type: "button", class: "mdv-phase", "data-phase": name, onclick, title: say`${label} (. and , step through the phases)` },
    html("i", { class: "mdv-dot phase-" + TIMED_BY[name], "aria-hidden": "true" }), label);
}

function phasePicture(scene, phase, room) {
  if (phase === "propose") return [headsPicture(scene)];
  if (phase === "layout" || phase === "verify" || phase === "keep") return [html("div", { class: "mdv-kvbox", tabindex: "0", role: "group", "aria-label": say`Slots of the cache, scrolls sideways` }, kvPicture(scene, room, STAGE[phase]))];
  return [];
}

// The paper's first figure: one hidden state into every head, and what each of them guesses.
function headsPicture({ step }) {
  const heads = headsOf(step);
  if (!heads) return html("span", {});
  const columns = Array.from({ length: heads }, (_, i) => {
    const guesses = guessesOf(step, i + 1);
    const most = Math.max(...guesses.map((node) => node.draft_p ?? 0), 1e-9);
    const rows = guesses.slice(0, 4).map((node) => html("div", { class: "mdv-guess", "data-node": node.id, style: `--i:${i * 4 + (node.origin.rank ?? 0)}` },
      html("span", { class: "mdv-barname" }, visible(node.text, node.token_id)),
      html("span", { class: "mdv-track" }, html("span", { class: "mdv-fill", style: `width:${(100 * (node.draft_p ?? 0)) / most}%` })),
      html("span", { class: "mdv-num" }, "q " + shortP(node.draft_p))));
    const more = guesses.length > 4 ? html("div", { class: "mdv-more" }, say`+${guesses.length - 4} more`) : null;
    return html("div", { class: "mdv-head" }, html("b", {}, say`head ${i + 1}`), html("span", { class: "mdv-foretells" }, foretells(step, guesses, i + 1)), ...rows, more);
  });
  return html("div", { class: "mdv-headspic", tabindex: "0", role: "group", "aria-label": say`Guesses of the heads, scrolls sideways` },
    html("div", { class: "mdv-hidden" }, html("b", {}, say`hidden state`), html("span", {}, say`one vector, read at the last kept token`),
      isSequential(step) ? html("span", {}, say`every head also reads the tokens before its guess`) : null),
    html("span", { class: "mdv-into", "aria-hidden": "true" }, "→"), ...columns);
}

// Which token a head guesses; of heads that read the path, after which one, since the others have other guesses.
function foretells(step, guesses, head) {
  if (head === 1) return say`next token after the root`;
  if (!isSequential(step) || !guesses.length) return say`token ${head} after the root`;
  const path = lineage(step.nodes.map((node) => node.parent ?? -1), guesses[0].parent).reverse();
  return say`token ${head}, after ${"“" + visible(path.map((id) => step.nodes[id].text).join("")) + "”"}`;
}

// The different guesses of one head that are in the tree, the best first; each by its first node. Of heads that
// read the path, those after one path: that of the first node.
function guessesOf(step, head) {
  const found = new Map();
  const first = step.nodes.find((node) => node.origin.head === head);
  const rivals = isSequential(step) && first ? step.nodes.filter((node) => node.parent === first.parent) : step.nodes;
  for (const node of rivals) if (node.origin.head === head && !found.has(node.origin.rank)) found.set(node.origin.rank, node);
  return [...found.values()].sort((a, b) => (a.origin.rank ?? 0) - (b.origin.rank ?? 0));
}
