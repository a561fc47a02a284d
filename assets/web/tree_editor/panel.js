// What is shown next to the tree: its figures, the chosen node with its two buttons, and what the last edit did.

function makeEditorPanel(uid, act) {
  const numbers = html("div", { class: "mdv-numbers" });
  const against = html("p", {});
  const last = html("p", { class: "tree-edit-last", role: "status" });
  const name = html("b", {});
  const about = html("p", {});
  const add = html("button", { type: "button", "data-act": "add", onclick: act.add });
  const remove = html("button", { type: "button", "data-act": "remove", onclick: act.remove });
  const keys = html("p", { class: "tree-edit-keys", id: uid + "-keys" }, say`Keys in the tree: arrows move, Enter or + adds, Delete removes, Z undoes, Shift+Z redoes.`);
  const chosen = html("div", { class: "tree-edit-chosen" }, name, about, html("div", { class: "tree-edit-buttons" }, add, remove));
  const part = html("div", { class: "tree-edit-panel" }, numbers, against, last, chosen, keys);

  function draw(state, item) {
    const length = expectedLength(state.rows, state.nodes);
    const size = state.nodes.length + 1;
    const depth = Math.max(0, ...state.nodes.map((node) => node.length));
    const figures = [["length", decimal(length), say`tokens per step expected`], ["nodes", size, say`${noun(size, "node")} with the root, at most ${state.most}`],
      ["depth", depth, say`deep, of ${plural(state.rows.length, "head")}`], ["gain", state.gain === null ? "–" : signed(state.gain), say`by the last edit`]];
    numbers.replaceChildren(...figures.map(([role, value, words]) => html("div", { "data-figure": role }, html("b", {}, value), html("span", {}, words))));
    against.textContent = [againstBest(state, length, size), speedWords(state, length, size)].filter(Boolean).join(" ");
    last.textContent = state.words;
    drawChosen(state, item);
  }

  function drawChosen(state, item) {
    const parent = item.ghost ? item.node.slice(0, -1) : item.node;
    const next = nextGuess(state.rows, state.nodes, parent);
    const gone = item.ghost ? [] : subtreeOf(state.nodes, item.node);
    name.textContent = capital(item.ghost ? say`${nodeName(item.node)}: not in the tree` : nodeName(item.node));
    about.textContent = aboutNode(state, item);
    add.textContent = next ? say`Add guess ${next.at(-1) + 1} of head ${next.length} (${signed(nodeValue(state.rows, next))})` : say`No guess can follow`;
    remove.hidden = item.depth === 0 || item.ghost;
    remove.textContent = say`Remove ${plural(gone.length, "node")} (${signed(-gone.reduce((sum, node) => sum + nodeValue(state.rows, node), 0))})`;
    add.classList.toggle("is-idle", !next);
    if (remove.hidden && document.activeElement === remove) add.focus(); // a hidden button has no focus
  }

  return { part, draw };
}

function againstBest({ best }, length, size) {
  const most = best[size - 1];
  if (most === undefined || size === 1) return "";
  return most - length < 0.00005 ? say`No tree of ${size} nodes has more.` : say`The best tree of ${size} nodes has ${decimal(most)}.`;
}

// Where steps were timed on this machine.
function speedWords({ stepMs }, length, size) {
  const ms = stepMs[size];
  return ms ? say`At ${decimal(ms)} ms a step that is ${Math.round((1000 * length) / ms).toLocaleString("en")} tokens/s.` : "";
}

function aboutNode({ rows }, { node, ghost, gain, best }) {
  if (!node.length) return say`The token the model has already chosen: always kept, so every step makes at least this one.`;
  const alone = rows[node.length - 1][node.at(-1)];
  const chance = node.length === 1 ? say`Right at ${percent(alone)} of the positions` : say`Right at ${percent(alone)} of the positions, together with all before it at ${percent(gain)}`;
  const worth = ghost ? say`${chance}: that is what it would add to a step.` : say`${chance}: that is what it adds to a step.`;
  return best ? `${worth} ${say`No other guess would gain more.`}` : worth;
}

const percent = (share) => (share >= 0.0995 ? (100 * share).toFixed(0) : share === 0 ? "0" : (100 * share).toPrecision(2)) + " %";
const capital = (text) => text[0].toUpperCase() + text.slice(1);
