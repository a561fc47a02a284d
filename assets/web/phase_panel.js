// The phases of the shown step: a row of buttons, and for the chosen one its words, shapes, time and picture.

function makePhasePanel(store) {
  const { state } = store;
  const buttons = new Map(PHASE_ORDER.map((name) => [name, phaseButton(name, () => choose(name))]));
  const whole = html("button", { type: "button", class: "mdv-wholestep", onclick: () => store.set({ phase: null }) }, say`Whole step`);
  const row = html("div", { class: "mdv-phases", role: "group", "aria-label": say`Phases of this step` }, whole, ...buttons.values());
  const words = html("p", { class: "mdv-phasewords", "data-role": "phase", role: "status" });
  const shapes = html("p", { class: "mdv-shapes", "data-role": "shapes" });
  const picture = html("div", { class: "mdv-phasepic" });
  const body = [html("div", { class: "mdv-phasetold" }, words, shapes), picture];
  const head = html("div", { class: "mdv-phasehead" }, html("h3", {}, say`Inside this step`), html("span", { class: "mdv-phasehint" }, say`tap a phase`), row);
  const card = html("section", { class: "mdv-card mdv-area-phases", "aria-label": say`Inside this step` }, head, ...body);
  // The picture is as wide, but hidden at first: the drawing must not move once guesses fly to it.
  const room = widthKept(head, () => latest?.step && latest.phase && paint(latest));
  let latest = null;
  linkNodes(store, picture);

  function choose(name) {
    store.set({ playing: false, phase: state.phase === name ? null : name, hover: null });
  }

  // The next or the previous phase, across the border of the step; `playing` is left as it is.
  function move(direction) {
    const { trace: { steps }, index, phase } = state;
    const own = phasesOf(steps[index]);
    const beside = phase === null ? own[0] : own[own.indexOf(phaseIn(steps[index], phase)) + direction];
    if (beside) return store.set({ phase: beside });
    const next = steps[index + direction];
    if (!next) return;
    store.goto(index + direction);
    store.set({ phase: phasesOf(next).at(direction > 0 ? 0 : -1) });
  }

  const atEnd = () => {
    const { steps } = state.trace;
    const own = phasesOf(steps[state.index]);
    return state.index === steps.length - 1 && phaseIn(steps[state.index], state.phase) === own.at(-1);
  };

  function paint(shown) {
    const scene = asJudged(shown);
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
    if (!scene.step) {
      for (const part of body) part.hidden = true; // otherwise the words of the previous run stay
      return;
    }
    if (!onlyLights(changed)) {
      const own = phasesOf(scene.step);
      for (const [name, button] of buttons) {
        button.hidden = !own.includes(name);
        button.setAttribute("aria-pressed", String(name === scene.phase));
      }
      whole.setAttribute("aria-pressed", String(scene.phase === null));
      for (const part of body) part.hidden = scene.phase === null;
      if (scene.phase) paint(scene);
    }
    for (const part of picture.querySelectorAll("[data-node]")) part.classList.toggle("lit", Number(part.dataset.node) === scene.lit);
  }

  return { card, draw, move, atEnd };
}

function phaseButton(name, onclick) {
  const label = say(PHASE_TITLES[name]);
  return html("button", { type: "button", class: "mdv-phase", "data-phase": name, onclick, title: say`${label} (. and , step through the phases)` },
    html("i", { class: "mdv-dot phase-" + TIMED_BY[name], "aria-hidden": "true" }), label);
}

function phasePicture(scene, phase, room) {
  if (phase === "propose") return [draftingPicture(scene)];
  if (!ROW_PHASES.includes(phase)) return [];
  return [html("div", { class: "mdv-kvbox", tabindex: "0", role: "group", "aria-label": say`Slots of the cache, scrolls sideways` },
    kvPicture(scene, room, STAGE[phase]))];
}
