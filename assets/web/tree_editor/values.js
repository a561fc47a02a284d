// What a tree promises, and what can be added to it. A node is a list of ranks from 0, one per head; the root is [].
// The formulas are those of medusa_core/trees/search.py. Pure.

const keyOf = (node) => node.join(".");
const isBelow = (node, ancestor) => ancestor.every((rank, head) => node[head] === rank);

// How likely a node and all before it are right, if heads were right independently: what it adds to a step's tokens.
const nodeValue = (rows, node) => node.reduce((share, rank, head) => share * rows[head][rank], 1);

// Expected tokens per step; the root is the one that is certain.
const expectedLength = (rows, nodes) => nodes.reduce((sum, node) => sum + nodeValue(rows, node), 1);

const subtreeOf = (nodes, top) => nodes.filter((node) => isBelow(node, top));

// By depth, then by ranks, as the engine numbers them.
function inOrder(nodes) {
  return [...nodes].sort((a, b) => a.length - b.length || (a.map((rank, head) => rank - b[head]).find((difference) => difference !== 0) ?? 0));
}

// The lowest rank that does not follow `node` yet, as a node; null where no head is left or it has no more guesses.
function nextGuess(rows, nodes, node) {
  const there = new Set(nodes.filter((other) => other.length === node.length + 1 && isBelow(other, node)).map((other) => other[node.length]));
  const rank = (rows[node.length] || []).findIndex((_, each) => !there.has(each));
  return rank < 0 ? null : [...node, rank];
}

// Every node that could be added next, the one that gains the most first; of equals the shallower one.
function additions(rows, nodes) {
  const found = [[], ...nodes].map((node) => nextGuess(rows, nodes, node)).filter(Boolean);
  return found.map((node) => ({ node, gain: nodeValue(rows, node) })).sort((a, b) => b.gain - a.gain || a.node.length - b.node.length);
}

// A node in words, as everywhere on the page: heads and guesses from 1.
const nodeName = (node) => (node.length ? say`head ${node.length}, guess ${node.at(-1) + 1}` : say`the root`);
const signed = (value) => (value < 0 ? "−" : "+") + probability(Math.abs(value));
