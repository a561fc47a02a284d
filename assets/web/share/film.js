// The film of a run: some of its steps, phase by phase, as an animated GIF. Made in the browser; nothing is sent.

const MOST_FILM_BYTES = 4_000_000;
const MOST_FILM_STEPS = 256; // steps with details to fetch; a film of that many is far too large

// Draws and encodes the steps from `first` to `last`. `told({frame, frames, bytes})` is called for each frame; `signal`
// (of an AbortController) ends it. Resolves with {blob, frames, last}: `last` is an earlier step if the film has
// reached `most` bytes.
async function makeFilm(root, trace, first, last, told, signal, most = MOST_FILM_BYTES) {
  const indices = Array.from({ length: last - first + 1 }, (_, i) => first + i);
  const shots = indices.flatMap((index) => filmPhases(trace.steps[index]).map(([phase, ms]) => ({ index, phase, ms })));
  const size = filmSize(indices.map((index) => filmScene(trace, index, filmPhases(trace.steps[index]).at(-1)[0])));
  return withFilmStage(root, size, signal, async ({ stage, gif, shoot }) => {
    let ended = first;
    for (const [frame, { index, phase, ms }] of shots.entries()) {
      if (index > ended && gif.size() > most) return { blob: gif.finished(), frames: frame, last: ended };
      ended = index;
      stage.dataset.phase = phase; // the page's rules for the phases hold for the film too
      await shoot(filmFrame(filmScene(trace, index, phase), size), ms);
      told({ frame: frame + 1, frames: shots.length, bytes: gif.size() });
    }
    return { blob: gif.finished(), frames: shots.length, last };
  });
}

// What `make` returns, which draws a GIF's frames: `shoot(picture, ms)` puts a picture on the stage and adds it.
async function withFilmStage(root, { width, height }, signal, make) {
  const stage = html("div", { class: "mdv mdv-filmstage", "aria-hidden": "true", "data-drafter": root.dataset.drafter });
  const gif = makeGif(width, height);
  const pen = html("canvas", { width, height }).getContext("2d", { willReadFrequently: true });
  async function shoot(picture, ms) {
    if (picture.parentNode !== stage) stage.replaceChildren(picture);
    const ground = getComputedStyle(stage).getPropertyValue("--mdv-card").trim();
    pen.drawImage(await loaded(standalone(width, height, ground, ...[...picture.children].map(styledCopy))), 0, 0);
    await new Promise((done) => setTimeout(done)); // lets the page be drawn and Cancel be pressed
    signal.throwIfAborted();
    gif.add(pen.getImageData(0, 0, width, height).data, ms);
  }
  root.parentElement.append(stage); // where the page's rules and theme apply
  try {
    return await make({ stage, gif, shoot });
  } finally {
    stage.remove();
  }
}

// The part of the Share menu that asks for a film: which steps, how far it is, and Cancel.
function filmControls(view, report) {
  const { root, state } = view;
  const number = (label) => html("input", { type: "number", min: 1, step: 1, "aria-label": label });
  const [from, to] = [number(say`First step of the film`), number(say`Last step of the film`)];
  const bar = html("progress", { max: 1, value: 0, "aria-label": say`Film` });
  const count = html("span", {});
  const cancel = html("button", { type: "button", "data-share": "film-cancel", onclick: () => work?.abort() }, say`Cancel`);
  const under = html("div", { class: "mdv-filmwork", hidden: true }, bar, count, cancel);
  const range = html("span", { class: "mdv-filmrange" }, say`steps`, " ", from, ` ${say`to`} `, to);
  let work = null;
  let known = null;

  // A run that has just come on screen begins with its first steps.
  function refresh() {
    const { trace } = state;
    const total = trace ? trace.steps.length : 0;
    if (trace !== known) [from.value, to.value, known] = [1, 8, trace];
    from.max = to.max = total;
    if (total && Number(to.value) > total) to.value = total;
  }

  async function make() {
    if (work) return;
    const { trace } = state;
    const total = trace.steps.length;
    const inside = (text, least) => Math.max(least, Math.min(total, Math.round(Number(text)) || least));
    const first = inside(from.value, 1);
    const last = Math.min(inside(to.value, first), first + MOST_FILM_STEPS - 1);
    work = new AbortController();
    under.hidden = false;
    report(say`Making the film …`);
    try {
      const steps = trace.steps.slice(0, last); // a run that still goes on grows meanwhile
      steps.splice(first - 1, last, ...(await view.store.windows.detailed(first - 1, last - 1)));
      const film = await makeFilm(root, { ...trace, steps }, first - 1, last - 1, tell, work.signal);
      const name = `medusa-steps-${first}-${film.last + 1}.gif`;
      saveFile(name, film.blob);
      const cut = film.last + 1 < last ? " " + say`It ends at step ${film.last + 1}: a film may have about ${megabytes(MOST_FILM_BYTES)} MB.` : "";
      report(say`Saved as ${name}: ${film.frames} frames, ${megabytes(film.blob.size)} MB.` + cut);
    } catch (error) {
      if (!work.signal.aborted) throw error;
      report(say`The film was cancelled.`);
    } finally {
      work = null;
      under.hidden = true;
    }
  }

  function tell({ frame, frames, bytes }) {
    bar.value = frame / frames;
    count.textContent = say`frame ${frame} of ${frames}, ${megabytes(bytes)} MB`;
  }

  return { make, refresh, range, under };
}

const megabytes = (bytes) => (bytes / 1e6).toFixed(bytes < 1e5 ? 2 : 1);
