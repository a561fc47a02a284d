// ← → for cards, digits for choices, G for the glossary: while the tour or its tab has the focus, or nothing has.
function listenToCardKeys(root, { go, choose, glossary }) {
  const actions = { ArrowLeft: () => go(-1), ArrowRight: () => go(1), g: () => glossary.toggle(), G: () => glossary.toggle() };
  listenWhile(root, "keydown", (event) => {
    const { target, key } = event;
    if (hasModifier(event) || event.defaultPrevented || !root.offsetParent && !root.classList.contains("is-lecture")) return;
    // A click on the tab leaves the focus there, where these keys mean nothing else.
    const idle = isIdle(target) || target.matches("[role=tab][aria-selected=true]");
    if (!idle && (!root.contains(target) || target.closest(".mdv") || target.matches("input, textarea, select"))) return;
    if (key === "Escape" && glossary.close()) return event.preventDefault();
    const action = /^[1-4]$/.test(key) ? () => choose(Number(key) - 1) : actions[key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
