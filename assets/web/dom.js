// Small builders for HTML and SVG nodes. Model text only ever passes through text nodes.

const SVG_NS = "http://www.w3.org/2000/svg";
const isKnown = (value) => value !== null && value !== undefined;
const isGiven = (value) => isKnown(value) && value !== false;

// Attributes and children that are null, undefined or false are left out.
function fill(node, attributes = {}, children = []) {
  for (const [name, value] of Object.entries(attributes)) {
    if (!isGiven(value)) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter(isGiven));
  return node;
}

const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG_NS, tag), attributes, children);

function icon(path, size = 16) {
  const shape = svg("path", { d: path, fill: "currentColor" });
  return svg("svg", { viewBox: "0 0 16 16", width: size, height: size, "aria-hidden": "true" }, shape);
}

const tableHead = (names) => html("thead", {}, html("tr", {}, ...names.map((name) => html("th", { scope: "col" }, name))));

// Title line of a card: a heading, a quiet explanation, and tools at the right.
function cardHead(title, hint, ...tools) {
  const words = html("div", { class: "mdv-title" }, html("h3", {}, title), html("span", {}, hint));
  return html("header", { class: "mdv-cardhead" }, words, html("div", { class: "mdv-tools" }, ...tools));
}

// The inner width of a node, kept up to date without asking the browser to lay the page out.
function widthKept(node, changed) {
  const kept = { width: 0 };
  new ResizeObserver(([entry]) => {
    kept.width = entry.contentRect.width;
    changed();
  }).observe(node);
  return kept;
}

const INKS = ["accept", "select", "tick", "prefix", "prefix-fill", "halo-dark", "ink", "ink-soft", "cell", "cell-empty"];

// The theme's colours for the canvases, read from the style sheet in one go.
function readInks(node) {
  const style = getComputedStyle(node);
  const inks = Object.fromEntries(INKS.map((name) => [name, style.getPropertyValue("--mdv-" + name).trim()]));
  return (name) => inks[name];
}

// Scroll `box` (never the page) just enough for the rectangle to be seen. Without `glide` it moves at once: the next
// step of a live run would cut a glide short.
function reveal(box, left, top, right, bottom, margin = 16, glide = true) {
  const placeFor = (start, end, now, size) => (start < now ? start - margin : end > now + size ? Math.min(start - margin, end + margin - size) : now);
  const place = { top: placeFor(top, bottom, box.scrollTop, box.clientHeight), left: placeFor(left, right, box.scrollLeft, box.clientWidth) };
  if (place.top !== box.scrollTop || place.left !== box.scrollLeft) box.scrollTo({ ...place, behavior: glide && !calm() ? "smooth" : "auto" });
}

// Hears an event of the document, or of another `target`, for as long as `part` is on the page.
function listenWhile(part, name, act, { target = document, ...options } = {}) {
  const life = new AbortController();
  target.addEventListener(name, (event) => (part.isConnected ? act(event) : life.abort()), { ...options, signal: life.signal });
}

// Whether the text is in the clipboard now. A frame or an unencrypted address may not write to it directly:
// there `field` is copied.
async function toClipboard(text, field) {
  field.value = text;
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    field.select();
    return document.execCommand("copy");
  }
}

const hasModifier = (event) => event.ctrlKey || event.metaKey || event.altKey;
const isIdle = (target) => target === document.body || target === document.documentElement; // nothing has the focus
const isWriting = (target) => target.matches?.("input:not([type=range]), textarea, select");

const calm = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

// The rules live in the document once, however many views there are.
function installStyle(text, id = "mdv-style") {
  let style = document.getElementById(id);
  if (!style) document.head.append((style = html("style", { id })));
  if (style.textContent !== text) style.textContent = text;
}

// A raised number next to digits would be read as one of them: there only colour and line mark a guess.
const besideDigits = (text, next = "") => /\d\s*$/.test(text) || /^\s*\d/.test(next);
