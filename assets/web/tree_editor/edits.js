// What an edit makes of a tree, or why there is none, and the way back. Pure.

// {nodes, at, gain, words} with the node added below `parent`, or {refused}.
function withGuess(tree, parent) {
  const { rows, nodes, most } = tree;
  const node = nextGuess(rows, nodes, parent);
  if (parent.length === rows.length) return { refused: say`No guess can follow one of head ${rows.length}, the last head.` };
  if (!node) return { refused: say`Head ${parent.length + 1} offers ${plural(rows[parent.length].length, "guess", "guesses")} here and none is left.` };
  if (nodes.length + 1 >= most) return { refused: say`The tree has ${nodes.length + 1} nodes and the limit here is ${most}: remove one first.` };
  const gain = nodeValue(rows, node);
  return { nodes: inOrder([...nodes, node]), at: parent, added: node, gain, words: say`Added ${nodeName(node)}: ${signed(gain)} tokens per step.` };
}

// The same without `node` and all nodes that follow it.
function withoutNode(tree, node) {
  if (!node.length) return { refused: say`The root is the model’s own token: it cannot be removed.` };
  const gone = subtreeOf(tree.nodes, node);
  if (!gone.length) return { refused: say`This guess is not in the tree, so there is nothing to remove.` };
  const gain = -gone.reduce((sum, each) => sum + nodeValue(tree.rows, each), 0);
  return { nodes: tree.nodes.filter((each) => !gone.includes(each)), at: node.slice(0, -1), gain,
    words: gone.length > 1
      ? say`Removed ${nodeName(node)} with the ${plural(gone.length - 1, "guess", "guesses")} after it: ${signed(gain)} tokens per step.`
      : say`Removed ${nodeName(node)}: ${signed(gain)} tokens per step.` };
}

// Trees before and after the present one; each as {nodes, at}.
function makeHistory() {
  let [past, future] = [[], []];
  const move = (from, to, now) => {
    const there = from.pop();
    if (there) to.push(now);
    return there || null;
  };
  return {
    did: (before) => { past.push(before); future = []; },
    undo: (now) => move(past, future, now),
    redo: (now) => move(future, past, now),
    forget: () => { [past, future] = [[], []]; },
    get canUndo() { return past.length > 0; },
    get canRedo() { return future.length > 0; },
  };
}
