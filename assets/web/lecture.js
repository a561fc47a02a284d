// Lecture mode of one part of the page: full screen, large type, and what is not needed there put away. The button
// or the key L turns it on and off; Escape and a button on the screen end it.

const LINES = 36; // of text that the height of the screen has room for
const LEAST_ZOOM = 1.1;
const STAGE_LINES = 55; // lines of the linked view; its tree and mask take most of them
const STAGE_WIDTH = 1370; // in its own pixels, so that tree and mask stand side by side

// `onChange` hears when it begins and ends; `type` is the size in pixels of the part's running text, `narrowest` the
// width in its own pixels that it needs to have its pieces side by side.
function makeLecture(root, { onChange = () => {}, type = 14, narrowest = 1000, lines = LINES, least = LEAST_ZOOM } = {}) {
  const button = html("button", { type: "button", class: "lecture-button", "data-act": "lecture", "aria-pressed": "false",
    title: say`Large type, full screen (L); Escape ends it`, onclick: toggle }, say`Lecture mode`);
  const exit = html("button", { type: "button", class: "lecture-exit", "data-act": "lecture-exit", title: say`Ends it, as Escape does`, onclick: leave }, say`Leave lecture mode`);
  const isOn = () => root.classList.contains("is-lecture");
  let full = false;

  function show(on) {
    grow();
    root.classList.toggle("is-lecture", on);
    button.setAttribute("aria-pressed", String(on));
    onChange();
  }

  // The type grows with the screen, so that the last row of any room can read it; but a narrow screen must not
  // end up with a few words a line.
  function grow() {
    const zoom = Math.max(least, Math.min(window.innerHeight / lines / type, window.innerWidth / narrowest));
    root.style.setProperty("--lecture-zoom", zoom);
    root.style.setProperty("--lecture-height", window.innerHeight / zoom + "px");
  }

  // If the browser refuses full screen, as inside a frame, the part fills the window instead.
  function enter() {
    show(true);
    root.focus({ preventScroll: true });
    if (root.requestFullscreen) root.requestFullscreen().catch(() => {});
  }

  function leave() {
    show(false);
    if (document.fullscreenElement === root) document.exitFullscreen();
  }

  function toggle() {
    if (isOn()) leave();
    else enter();
  }

  function onKey(event) {
    if (hasModifier(event) || root.querySelector("dialog[open]")) return; // a dialog takes the keys
    if (event.key === "Escape" && isOn()) {
      event.stopPropagation();
      return leave();
    }
    // A click on the tab leaves the focus there, and the key then applies to the part that the tab shows.
    const idle = event.target === document.body || event.target.matches?.("[role=tab][aria-selected=true]");
    const meant = isOn() || root.contains(event.target) || (idle && root.offsetParent);
    if (event.key.toLowerCase() === "l" && meant && !isWriting(event.target)) toggle();
  }

  listenWhile(root, "resize", () => isOn() && grow(), { target: window });
  listenWhile(root, "keydown", onKey, { capture: true });
  listenWhile(root, "fullscreenchange", () => {
    const before = full;
    full = document.fullscreenElement === root;
    if (before && !full && isOn()) show(false); // the browser’s own Escape
  });
  return { button, exit, toggle, isOn };
}
