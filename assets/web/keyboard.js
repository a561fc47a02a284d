// Keys of the view. They work while it has the focus; some also work while nothing has the focus and the view is in the
// window, so that nobody has to click first; in a view inside something with its own keys (`alone` is false), they
// work only under the pointer.

const MOVES = [" ", "ArrowLeft", "ArrowRight", "Home", "End", ",", ".", "Escape"]; // keys that need no tree
const IDLE_KEYS = [" ", "ArrowLeft", "ArrowRight", ",", ".", "Escape"];

function listenToKeys(root, store, { transport, phases }, sceneNow, alone) {
  const { state } = store;
  const actions = {
    " ": () => transport.toggle(),
    ArrowLeft: (event) => (event.shiftKey ? movePhase(-1) : store.jump(state.index - 1)),
    ArrowRight: (event) => (event.shiftKey ? movePhase(1) : store.jump(state.index + 1)),
    ",": () => movePhase(-1),
    ".": () => movePhase(1),
    Home: () => store.jump(0),
    End: () => store.jump(Infinity),
    ArrowUp: () => walk(-1),
    ArrowDown: () => walk(1),
    Enter: () => store.set({ node: sceneNow().explained, pinned: !state.pinned }),
    // Releases first the chosen node, then the phase.
    Escape: () => store.set(state.node === null ? { phase: null, hover: null, cell: null } : { node: null, pinned: false, hover: null, cell: null }),
  };

  function movePhase(direction) {
    store.set({ playing: false });
    phases.move(direction);
  }

  function walk(direction) {
    const order = drawingOrder(sceneNow());
    const at = order.indexOf(state.node ?? sceneNow().explained);
    const next = state.node === null ? at : Math.max(0, Math.min(order.length - 1, at + direction));
    store.set({ node: order[next], hover: null, cell: null });
  }

  function concerns(event) {
    const { target } = event;
    if (hasModifier(event) || event.defaultPrevented) return false;
    if (!root.contains(target) && !(isIdle(target) && (alone ? isInWindow(root) : root.matches(":hover")) && IDLE_KEYS.includes(event.key))) return false;
    if (target.matches("select, textarea, [contenteditable]")) return false;
    if (target.matches("input")) return target.type === "range" && [" ", "Enter", "Escape"].includes(event.key);
    return !(target.matches("button, summary") && [" ", "Enter"].includes(event.key));
  }

  listenWhile(root, "keydown", (event) => {
    const action = actions[event.key];
    if (!action || !concerns(event) || !sceneNow() || !(sceneNow().step || (sceneNow().brief && MOVES.includes(event.key)))) return;
    event.preventDefault();
    action(event);
  });
}

function isInWindow(root) {
  const { top, bottom, width } = root.getBoundingClientRect();
  return width > 0 && bottom > 0 && top < window.innerHeight;
}
