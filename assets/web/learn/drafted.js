// What the cards on other drafters take from a step of such a drafter's run. Pure.

// Two siblings after which the next level guesses different tokens.
function factsOfFed({ nodes }) {
  const firstChild = (id) => nodes.find((node) => node.parent === id && isKnown(node.origin.head) && isFirst(node));
  const pairs = nodes.slice(1).filter((node) => isKnown(node.origin.head)).map((node) => [node, firstChild(node.id)]).filter(([, child]) => child);
  for (const [a, next] of pairs) {
    const other = pairs.find(([b, its]) => b.parent === a.parent && b.id > a.id && its.token_id !== next.token_id);
    if (!other) continue;
    const [b, its] = other;
    return { fed_a: named(a), fed_a_next: named(next), fed_b: named(b), fed_b_next: named(its), fed_head: next.origin.head };
  }
  return null;
}

function factsOfDraft({ nodes }) {
  const levels = Math.max(...nodes.map((node) => node.depth));
  return levels > 1 && nodes.length > levels + 1 ? { drafted: nodes.length - 1, levels } : null;
}

// A chain of copied guesses of which the model keeps some and refuses some.
function factsOfCopied(step) {
  const copied = step.nodes.filter((node) => isKnown(node.origin.back));
  const kept = copied.filter((node) => node.accepted);
  if (!kept.length || kept.length === copied.length) return null;
  const [first] = copied;
  return { copied: copied.length, copied_kept: kept.length, copied_back: first.origin.back, copied_text: namedLine(step, kept.map((node) => node.id)) };
}

// A place after which the text had gone on in two ways: both are in the draft, and one of them was kept.
function factsOfFork(step) {
  const copied = step.nodes.filter((node) => isKnown(node.origin.back));
  for (const a of copied) {
    const b = copied.find((node) => node.parent === a.parent && node.id > a.id && node.accepted !== a.accepted);
    if (!b) continue;
    const kept = copied.filter((node) => node.accepted);
    return { fork: named(step.nodes[a.parent]), fork_a: named(a), fork_b: named(b), fork_kept: named(a.accepted ? a : b), fork_count: copied.length,
      fork_keeps: kept.length, fork_text: namedLine(step, kept.map((node) => node.id)) };
  }
  return null;
}

function factsOfPart(step) {
  const seen = step.drafter_rows ? countSeen(step) : step.cache_length;
  return seen < step.cache_length ? { seen_rows: seen } : null;
}
