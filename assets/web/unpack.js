// The compact form of a trace (written down in medusa_core/trace/packed.py) as the records that the view draws. Pure.

const TABLES = ["tokens", "origins", "shapes", "reasons"];
const PACKED_VERSION = 3;
const PARTS = 10_000; // parts of 1: the unit of numbers in "after"

const emptyTables = () => Object.fromEntries(TABLES.map((name) => [name, []]));

// A whole trace of any version that the server hands out, or one without steps.
function unpackedTrace(trace) {
  if (!trace || trace.schema_version !== PACKED_VERSION) return trace;
  const { tokens, origins, shapes, reasons, ...own } = trace;
  const tables = addTables(emptyTables(), trace);
  return { ...own, schema_version: 2, steps: trace.steps.map((step, index) => unpackedStep(step, index, tables)) };
}

// Adds the new entries to the tables; an origin becomes one record for all nodes that have it.
function addTables(tables, news) {
  tables.tokens.push(...news.tokens);
  tables.origins.push(...news.origins.map(([by, head, rank, label, note, back = null]) => ({ by, head, rank, label, note, back })));
  tables.shapes.push(...news.shapes.map((shape) => ({ ...shape, depths: depthsOf(shape.parents) })));
  tables.reasons.push(...news.reasons);
  return tables;
}

function depthsOf(parents) {
  const depths = [];
  for (const parent of parents) depths.push(parent < 0 ? 0 : depths[parent] + 1);
  return depths;
}

function unpackedStep(step, index, tables) {
  const { parents, origins, depths } = tables.shapes[step.shape];
  const [entropy, threshold] = [valuesOfNodes(parents, step.entropy), valuesOfNodes(parents, step.threshold)];
  const token = (place) => ({ token_id: tables.tokens[place][0], text: tables.tokens[place][1] });
  const nodes = parents.map((parent, id) => ({
    id, parent: parent < 0 ? null : parent, depth: depths[id], ...token(step.tokens[id]), origin: tables.origins[origins[id]],
    draft_p: step.draft_p[id], p: step.p[id], entropy: entropy[id], threshold: threshold[id], passes: step.passes[id] === "1",
    accepted: false, reason: tables.reasons[step.reasons[id]],
  }));
  for (const id of step.path) nodes[id].accepted = true;
  const [propose, verify, accept, commit, total] = step.ms;
  return {
    index, cache_length: step.length, nodes, path: step.path, emitted: step.path.slice(0, step.emitted).map((id) => nodes[id].token_id),
    bonus: step.bonus === null ? null : token(step.bonus), ms: { propose, verify, accept, commit, total }, after: unpackedAfter(step.after, tables.tokens),
    ...(isKnown(step.drafter_rows) ? { drafter_rows: step.drafter_rows } : {}),
  };
}

function unpackedAfter({ nodes, tokens, heights, log_z, entropy, penalised = [] }, known) {
  const own = new Map(penalised.map(([i, place, copies]) => [i, { token_id: known[place][0], text: known[place][1], copies }]));
  const row = (values, i) => values.slice((i * values.length) / nodes.length, ((i + 1) * values.length) / nodes.length);
  return nodes.map((node, i) => {
    const places = row(tokens, i);
    return {
      node, token_ids: places.map((place) => known[place][0]), texts: places.map((place) => known[place][1]),
      p: row(heights, i).map((height) => Number(Math.exp(-height / PARTS).toPrecision(5))),
      log_z: row(log_z, i).map((value) => value / PARTS), entropy: row(entropy, i).map((value) => value / PARTS),
      ...(own.has(i) ? { penalised: own.get(i) } : {}),
    };
  });
}

// One value per node from one per parent, in the order of their first children; or the values as they are.
function valuesOfNodes(parents, values) {
  if (values.length === parents.length) return values;
  if (values.length === 0) return parents.map(() => null);
  const places = new Map();
  return parents.map((parent) => {
    if (parent < 0) return null;
    if (!places.has(parent)) places.set(parent, places.size);
    return values[places.get(parent)];
  });
}
