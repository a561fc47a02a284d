// Pictures of the cards on memory: what the cache saves, the roofline, attention in tiles and a cache in pages. Their
// numbers are the server's (ui/tabs/learn_computed.py).

const TOKENS_DRAWN = 8; // tokens of the drawn text
const grid = (className, cells) => html("div", { class: "learn-grid " + className, "aria-hidden": "true" }, ...cells);
const squares = (kindOf) => Array.from({ length: TOKENS_DRAWN * TOKENS_DRAWN }, (_, i) => html("i", { class: kindOf(Math.floor(i / TOKENS_DRAWN), i % TOKENS_DRAWN) }));

// The passes that write eight tokens, one a line: what each computes, with and without a cache.
function cachePassesPicture({ facts, say }) {
  const pass = (again) => squares((line, place) => (place > line ? "" : place === line || again ? "is-computed" : "is-held"));
  const side = (name, again, work, kind = "") => bit("learn-side" + kind, html("h4", {}, say(name)), grid("is-passes", pass(again)), html("p", {}, say(work, facts)));
  return [bit("learn-sides", side("without_cache", true, "without_work"), side("with_cache", false, "with_work", " learn-secret")),
    keyRow(["computed", "held"], (kind) => say("key_" + kind)), html("p", { class: "learn-caption" }, say("passes_axes"))];
}

const ROOF = { width: 640, height: 300, left: 74, right: 18, top: 22, bottom: 50 };

// The roofline on two logarithmic axes, with three steps under it.
function rooflinePicture({ facts, records, say }) {
  const { bandwidth, peak, ridge, points } = records.computed.roofline;
  const [low, high] = [points[0].intensity / 3, Math.max(ridge, points.at(-1).intensity) * 3];
  const [bottom, top] = [bandwidth * low, peak * 2.4];
  const share = (value, from, to) => Math.log(value / from) / Math.log(to / from);
  const x = (value) => ROOF.left + share(value, low, high) * (ROOF.width - ROOF.left - ROOF.right);
  const y = (value) => ROOF.height - ROOF.bottom - share(value, bottom, top) * (ROOF.height - ROOF.top - ROOF.bottom);
  const words = (className, left, above, text, anchor = "start") => svg("text", { class: className, x: left, y: above, "text-anchor": anchor }, text);
  const dots = points.map(({ tokens, intensity, speed }, i) => svg("g", { class: i ? "learn-secret" : null }, svg("circle", { class: "dot", cx: x(intensity), cy: y(speed), r: 6 }),
    words("name", x(intensity) + (i ? -10 : 12), y(speed) + (i ? -12 : 5), say(["roof_plain", "roof_tree", "roof_prompt"][i], { tokens }), i ? "end" : "start")));
  return [html("figure", { class: "learn-roofline", tabindex: "0" }, svg("svg", { viewBox: `0 0 ${ROOF.width} ${ROOF.height}`, role: "img", "aria-label": say("roof_label", facts) },
    svg("path", { class: "memory", d: `M${x(low)},${y(bottom)}L${x(ridge)},${y(peak)}V${ROOF.height - ROOF.bottom}H${x(low)}Z` }),
    svg("path", { class: "arithmetic", d: `M${x(ridge)},${y(peak)}H${x(high)}V${ROOF.height - ROOF.bottom}H${x(ridge)}Z` }),
    svg("path", { class: "roof", d: `M${x(low)},${y(bottom)}L${x(ridge)},${y(peak)}H${x(high)}` }),
    svg("path", { class: "ridge", d: `M${x(ridge)},${y(peak)}V${ROOF.height - ROOF.bottom}` }),
    words("region", (x(low) + x(ridge)) / 2 + 40, ROOF.height - ROOF.bottom - 12, say("roof_memory"), "middle"),
    words("region", (x(ridge) + x(high)) / 2, ROOF.height - ROOF.bottom - 12, say("roof_arithmetic"), "middle"),
    words("small", x(ridge) + 6, ROOF.height - ROOF.bottom - 32, say("roof_ridge", facts)),
    words("small", x(high), y(peak) - 8, facts.hw_peak, "end"),
    ...[1, 10, 100, 1000].filter((mark) => mark > low && mark < high).map((mark) => words("small", x(mark), ROOF.height - ROOF.bottom + 16, mark, "middle")),
    words("axis", (ROOF.left + ROOF.width) / 2, ROOF.height - 8, say("roof_x"), "middle"),
    svg("text", { class: "axis", "text-anchor": "middle", transform: `translate(16 ${(ROOF.height - ROOF.bottom + ROOF.top) / 2}) rotate(-90)` }, say("roof_y")), ...dots)),
  html("p", { class: "learn-caption" }, say("roof_read", facts))];
}

// Two ideas against waiting for memory: scores made in tiles, and a cache handed out in pages.
function tilesPicture({ facts, records, say }) {
  const tiles = squares((row, column) => (column > row ? "" : row >> 1 === 2 && column >> 1 === 1 ? "is-now" : row >> 1 < 2 || (row >> 1 === 2 && column >> 1 < 1) ? "is-done" : "is-waiting"));
  const scores = bit("learn-side", html("h4", {}, say("tiles_title")), grid("is-tiles", tiles), html("p", { class: "learn-secret" }, say("tiles_words", facts)));
  return [bit("learn-sides", scores, pagesPart(facts, records.computed.paging, say)), keyRow(["now", "done", "used", "reserved"], (kind) => say("key_" + kind))];
}

// Three texts in a reserved cache, and the same texts in pages.
function pagesPart(facts, { texts, reserved, page }, say) {
  const strip = (length) => bit("learn-reserve", html("i", { class: "is-used", style: `width:${(100 * length) / reserved}%` }));
  const most = 24; // pages drawn; each stands for many
  const total = texts.reduce((sum, length) => sum + Math.ceil(length / page), 0);
  const shares = texts.map((length) => Math.round((most * Math.ceil(length / page)) / total));
  const owners = shares.flatMap((count, text) => Array.from({ length: count }, () => text));
  const mixed = owners.map((_, i) => owners[(i * 7) % owners.length]); // wherever a page was free
  return bit("learn-side", html("h4", {}, say("pages_title")), ...texts.map(strip), html("p", {}, say("reserved_words", facts)),
    bit("learn-pages", ...mixed.map((text) => html("i", { class: "of-" + text }, text + 1))), html("p", {}, say("paged_words", facts)));
}
