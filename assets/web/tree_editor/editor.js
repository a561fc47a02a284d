// The tree editor: one state, drawn after each change; tells the page around it about every tree made here.

const WHY_LIKELIEST = [
  phrase("A guess adds to a step the chance that it and all before it are right, so the most likely guess that is not yet there (★) gains the most."),
  phrase("No guess is likelier than the one it follows, so always taking the ★ gives the best tree of every size."),
];
const MOVES = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End"];

// `edited(nodes)` is called with each tree made here. `before` is the editor that this one replaces,
// in another language.
function mountTreeEditor(host, edited, before = null) {
  installStyle(DECODE_VIEW_STYLE);
  installStyle(TREE_EDITOR_STYLE, "tree-edit-style");
  const uid = "edit" + Math.random().toString(36).slice(2, 10);
  const state = before ? { ...before.state, words: "" } : { id: null, rows: [], best: [], stepMs: {}, most: 0, nodes: [], at: [], gain: null, words: "", allGhosts: false };
  const history = before ? before.history : makeHistory();
  const tool = (name, label, title, onclick) => html("button", { type: "button", "data-act": name, title, onclick }, label);
  const ghosts = tool("ghosts", "", say`Show every guess that could be added next, or only the likeliest`, () => change({ allGhosts: !state.allGhosts }));
  const likeliest = tool("best", say`add ★`, say`Add the guess that gains the most`, () => addLikeliest());
  const [undo, redo] = [tool("undo", say`↶ undo`, say`Undo the last edit`, () => goBack("undo")), tool("redo", say`redo ↷`, say`Redo the last edit`, () => goBack("redo"))];
  const picture = makeEditorPicture(uid, { choose: (item) => change({ at: item.node }), add: (parent) => apply(withGuess(state, parent)), remove: (node) => apply(withoutNode(state, node)) });
  const panel = makeEditorPanel(uid, { add: () => addAt(chosen()), remove: () => apply(withoutNode(state, state.at)) });
  const root = html("section", { class: "mdv tree-edit", "aria-label": say`Tree editor` }, html("div", { class: "mdv-card" },
    cardHead(say`Candidate tree`, say`+ what a guess adds to the tokens of a step; click a dashed one to add it, × to remove`, ghosts, likeliest, undo, redo),
    html("p", { class: "tree-edit-why" }, WHY_LIKELIEST.map((text) => say(text)).join(" ")), html("div", { class: "tree-edit-grid" }, picture.box, panel.part)));
  let plan = null;
  host.replaceChildren(root);
  root.addEventListener("keydown", onKey);

  const chosen = () => plan.items.find((item) => item.key === keyOf(state.at)) || plan.items[0];
  const addAt = (item) => apply(withGuess(state, item.ghost ? item.node.slice(0, -1) : item.node), item.ghost);

  function draw() {
    plan = planEditor(state);
    picture.draw(plan, chosen());
    panel.draw(state, chosen());
    // Not disabled, which would take the focus away from who has just pressed it.
    for (const [button, can] of [[undo, history.canUndo], [redo, history.canRedo]]) button.setAttribute("aria-disabled", String(!can));
    ghosts.hidden = !plan.large;
    ghosts.textContent = state.allGhosts ? say`fold` : say`+${plan.hidden} guesses`;
  }

  function change(patch) {
    Object.assign(state, patch);
    draw();
    picture.show(chosen());
  }

  // An edit, or the words for why it cannot be. With `follow` the new node is the chosen one.
  function apply(edit, follow = false) {
    if (edit.refused) return change({ words: edit.refused });
    history.did({ nodes: state.nodes, at: state.at });
    change({ nodes: edit.nodes, at: follow ? edit.added : edit.at, gain: edit.gain, words: edit.words });
    edited(state.nodes);
  }

  function addLikeliest() {
    const [first] = additions(state.rows, state.nodes);
    if (first) apply(withGuess(state, first.node.slice(0, -1)), true);
    else change({ words: say`Every guess of every head is in the tree.` });
  }

  function goBack(way) {
    const there = history[way]({ nodes: state.nodes, at: state.at });
    if (!there) return change({ words: way === "undo" ? say`There is nothing to undo.` : say`There is nothing to redo.` });
    const gain = expectedLength(state.rows, there.nodes) - expectedLength(state.rows, state.nodes);
    change({ ...there, gain, words: way === "undo" ? say`Undone: ${signed(gain)} tokens per step.` : say`Redone: ${signed(gain)} tokens per step.` });
    edited(state.nodes);
  }

  function onKey(event) {
    const named = event.key.toLowerCase();
    const command = event.ctrlKey || event.metaKey;
    if (event.altKey || (command && named !== "z" && named !== "y")) return;
    const inTree = event.target === picture.picture; // elsewhere the buttons have keys of their own
    if (!inTree && named !== "z" && named !== "y") return;
    if (MOVES.includes(event.key)) change({ at: neighbour(plan.items, chosen(), event.key).node });
    else if (["enter", "+", "="].includes(named)) addAt(chosen());
    else if (["delete", "backspace", "-"].includes(named)) apply(withoutNode(state, state.at));
    else if (named === "z") goBack(event.shiftKey ? "redo" : "undo");
    else if (named === "y") goBack("redo");
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // {id, rows, best, step_ms, most, choices}: a tree with another id is shown in place of what was edited. False if
  // the message is about an earlier tree than the shown one.
  function receive(message) {
    const differ = (a, b) => JSON.stringify(a) !== JSON.stringify(b);
    const nodes = inOrder(message.choices);
    const otherHeads = differ(message.rows, state.rows);
    const fresh = message.id !== state.id && differ(nodes, state.nodes);
    if (otherHeads) history.forget();
    else if (fresh) history.did({ nodes: state.nodes, at: state.at });
    Object.assign(state, { id: message.id, rows: message.rows, best: message.best, stepMs: message.step_ms, most: message.most });
    if (otherHeads || fresh) Object.assign(state, { nodes, at: [], gain: null, words: "" });
    draw();
    if (fresh) picture.box.scrollTo(0, 0);
    return !differ(nodes, state.nodes);
  }

  if (before) draw();
  return (host.treeEditor = { receive, state, history, nodes: () => state.nodes });
}
