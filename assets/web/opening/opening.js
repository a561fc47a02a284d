// The opening: a first visit begins with it, once; any key or click ends it, a button of the view plays it again.

const OPENING_KEPT = "medusa-opening"; // in the browser's storage, once it has been seen
const OPENING_FRAMES = 8; // per second of its film

function mountOpening(view, { hash = "" } = {}) {
  const { trace, beside } = view.state; // the recorded run that the page came with
  if (!trace) return;
  let sheet = null;
  view.onBuild(({ root }) => {
    sheet = makeOpening(root, trace, beside);
    root.append(sheet.dialog);
    const again = html("button", { type: "button", class: "lecture-button", "data-act": "opening", onclick: () => sheet.play() }, say`Opening`);
    root.querySelector(".mdv-shareopen").before(again);
  });
  if (!hash && !calm() && isNew()) sheet.play();
}

// Where nothing can be stored, it is unknown whether it has been seen.
const isNew = () => !readStored(OPENING_KEPT) && writeStored(OPENING_KEPT, "seen");

function makeOpening(root, trace, beside) {
  const frame = html("div", { class: "mdv-show" });
  const said = html("p", { class: "mdv-showsaid", role: "status" });
  const button = (act, words, onclick) => html("button", { type: "button", "data-act": act, onclick }, words);
  const dialog = html("dialog", { class: "mdv-opening", "aria-label": say`Opening` }, frame,
    html("div", { class: "mdv-showrow" }, button("opening-end", say`Begin`, () => dialog.close()), button("opening-again", say`Once more`, () => play()),
      button("opening-film", say`Save as a film (GIF)`, save), said, html("span", { class: "mdv-showhint" }, say`any key or click ends it`)));
  let show = null;
  let handle = 0;
  let work = null;

  dialog.addEventListener("keydown", (event) => {
    event.stopPropagation();
    const pressed = event.target.closest("button") && ["Enter", " ", "Tab"].includes(event.key);
    if (pressed || ["Tab", "Shift", "Control", "Alt", "Meta"].includes(event.key)) return;
    event.preventDefault();
    dialog.close();
  });
  dialog.addEventListener("click", ({ target }) => target.closest("button") || dialog.close());
  dialog.addEventListener("close", () => {
    cancelAnimationFrame(handle);
    work?.abort();
  });

  function play() {
    if (!dialog.open) dialog.showModal();
    const tall = window.innerWidth < window.innerHeight;
    show = openingPicture(trace, beside, tall);
    frame.replaceChildren(show.picture);
    said.textContent = "";
    cancelAnimationFrame(handle);
    if (calm()) return show.paint(show.end);
    const start = performance.now();
    const next = () => {
      const time = (performance.now() - start) / 1000;
      dialog.dataset.time = Math.min(time, show.end).toFixed(1);
      show.paint(Math.min(time, show.end));
      if (time < show.end && dialog.open) handle = requestAnimationFrame(next);
    };
    next();
  }

  async function save() {
    if (work) return;
    work = new AbortController();
    try {
      const blob = await openingFilm(root, trace, beside, (done, all) => { said.textContent = say`frame ${done} of ${all}`; }, work.signal);
      saveFile("medusa-opening.gif", blob);
      said.textContent = say`Saved as ${"medusa-opening.gif"}.`;
    } catch (error) {
      if (!work.signal.aborted) said.textContent = say`That did not work: ${error.message}`;
    } finally {
      work = null;
    }
  }

  return { dialog, play };
}

// The opening as an animated GIF, made of the same frames as on the screen.
async function openingFilm(root, trace, beside, told, signal) {
  const show = openingPicture(trace, beside, false);
  const frames = Math.ceil(show.end * OPENING_FRAMES);
  return withFilmStage(root, show, signal, async ({ gif, shoot }) => {
    for (let i = 0; i <= frames; i++) {
      show.paint(i / OPENING_FRAMES);
      await shoot(show.picture, i === frames ? 3000 : 1000 / OPENING_FRAMES);
      told(i, frames);
    }
    return gif.finished();
  });
}
