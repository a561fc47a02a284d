// The threshold of typical acceptance as a curve over the entropy, with every guess of the step as a point on the
// plane of entropy and p: what lies above the curve passes.

const CURVE = { width: 340, height: 172, left: 40, right: 8, top: 8, bottom: 34, least: 0.001 };

function barCurve(scene, i) {
  const { step, verdict } = scene;
  const { epsilon, delta } = scene.hypothetical || scene.config;
  const points = step.nodes.filter((node) => node.id > 0 && isKnown(node.p) && isKnown(node.entropy));
  if (scene.ruling !== "typical" || !points.length) return null;
  const widest = Math.max(2, ...points.map((node) => node.entropy)) * 1.05;
  const x = (entropy) => CURVE.left + (Math.max(0, entropy) / widest) * (CURVE.width - CURVE.left - CURVE.right);
  // p on a logarithmic scale: guesses differ by powers of ten.
  const span = CURVE.height - CURVE.top - CURVE.bottom;
  const y = (p) => CURVE.top + (Math.log(Math.max(p, CURVE.least)) / Math.log(CURVE.least)) * span;
  const knee = Math.max(0, Math.log(delta / epsilon)); // the entropy at which δ·e^−H falls below ε
  const entropies = [0, ...Array.from({ length: 33 }, (_, k) => (widest * k) / 32), Math.min(knee, widest)].sort((a, b) => a - b);
  const line = entropies.map((entropy, k) => `${k ? "L" : "M"}${x(entropy)},${y(typicalBar(epsilon, delta, entropy))}`).join("");
  const floor = CURVE.height - CURVE.bottom;
  const marks = points.map((node) => pointOf(node.id, verdict.passes[node.id], x(node.entropy), y(node.p)));
  const self = points.find((node) => node.id === i);
  if (self) marks.push(svg("circle", { class: "chosen", cx: x(self.entropy), cy: y(self.p), r: 9 }));
  const passing = points.filter((node) => verdict.passes[node.id]).length;
  const picture = svg("svg", { class: "mdv-curve", viewBox: `0 0 ${CURVE.width} ${CURVE.height}`, role: "img",
    "aria-label": say`The bar over the entropy: ${passing} of ${points.length} guesses lie above it.` },
    svg("path", { class: "above", d: `${line}L${x(widest)},${CURVE.top}L${x(0)},${CURVE.top}Z` }), ...axes(x, y, widest, floor),
    svg("path", { class: "line", d: line }), ...marks);
  return html("figure", { class: "mdv-curvefig", "data-role": "curve" },
    html("figcaption", { class: "mdv-barhead" }, say`The bar`, " ", html("b", {}, "min(ε, δ·e^−H)"), " ",
      say`with ε = ${setting(epsilon)}, δ = ${setting(delta)}: a guess above the line passes. H is the model’s entropy: far right it is undecided, so less is asked.`), picture);
}

function axes(x, y, widest, floor) {
  const ticks = [1, 0.1, 0.01, 0.001].map((p) => svg("g", {},
    svg("path", { class: "grid", d: `M${CURVE.left},${y(p)}H${CURVE.width - CURVE.right}` }),
    svg("text", { x: CURVE.left - 5, y: y(p) + 4, "text-anchor": "end" }, p === CURVE.least ? "≤.001" : String(p).replace("0.", "."))));
  const whole = Array.from({ length: Math.floor(widest) + 1 }, (_, h) => svg("text", { x: x(h), y: floor + 14, "text-anchor": "middle" }, h));
  return [...ticks, ...whole, svg("text", { x: CURVE.left, y: CURVE.height - 5 }, say`entropy H, nats`),
    svg("text", { x: CURVE.left + 4, y: CURVE.top + 12 }, "p")];
}

// Shape says what colour says: a disc passes, a cross does not. One element per point: there may be hundreds.
const pointOf = (node, passes, x, y) => (passes
  ? svg("circle", { class: "mdv-dotnode disc", "data-node": node, cx: x, cy: y, r: 5 })
  : svg("path", { class: "mdv-dotnode cross", "data-node": node, d: `M${x - 4},${y - 4}l8,8m-8,0l8,-8` }));
