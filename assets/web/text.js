// Token texts and numbers as people read them. Pure.

const GLYPHS = { "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽", "\u200b": "␣" };

// Visible form of a token: blanks at the ends and control characters become signs.
function visible(text, tokenId) {
  if (text === "") return tokenId === undefined ? "∅" : "#" + tokenId;
  const ends = text.replace(/^ +| +$/g, (blanks) => "␣".repeat(blanks.length));
  return ends.replace(/[\u0000-\u001f\u007f-\u009f\u00a0\u200b]/g, (sign) => GLYPHS[sign] || "·");
}

const quoted = (node) => "“" + visible(node.text, node.token_id) + "”";

// Split the visible form into runs of plain text and of signs, so that the signs can be drawn paler.
function runs(shown) {
  const parts = [];
  for (const char of shown) {
    const sign = "␣⏎⇥␍⍽·".includes(char);
    if (parts.length && parts.at(-1).sign === sign) parts.at(-1).text += char;
    else parts.push({ text: char, sign });
  }
  return parts;
}

const ruler = { context: null, known: new Map() }; // the same tokens are measured at every step

function widthOf(text, font) {
  const key = font + text;
  const before = ruler.known.get(key);
  if (before !== undefined) return before;
  ruler.context ??= document.createElement("canvas").getContext("2d");
  ruler.context.font = font;
  const { width } = ruler.context.measureText(text);
  if (ruler.known.size > 20000) ruler.known.clear();
  ruler.known.set(key, width);
  return width;
}

function clip(text, pixels, font) {
  if (widthOf(text, font) <= pixels) return text;
  const chars = [...text];
  while (chars.length > 1 && widthOf(chars.join("") + "…", font) > pixels) chars.pop();
  return chars.join("") + "…";
}

// A probability: two decimals where these suffice, else two significant digits. Below 1 it never reads as 1.
function probability(value) {
  if (!isKnown(value)) return "–";
  if (value === 0 || value >= 0.0995) return decimals(value, 8);
  return inDigits(value, 2);
}

function decimals(value, most) {
  const places = Array.from({ length: most - 1 }, (_, i) => i + 2);
  return value.toFixed(value < 1 ? places.find((each) => Number(value.toFixed(each)) < 1) ?? 2 : 2);
}

function inDigits(value, digits) {
  if (value === 0 || value >= 0.000995) return value.toPrecision(digits);
  const [shown, power] = value.toExponential(digits - 1).split("e");
  const raised = [...String(-Number(power))].map((d) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(d)]).join("");
  return shown.replace(/\.0+$/, "") + "·10⁻" + raised;
}

// The short form on a node of the tree, and a setting as it was set.
const shortP = (value) => (!isKnown(value) ? "–" : value < 0.00995 ? "<.01" : value < 1 && value >= 0.9995 ? ">.999" : decimals(value, 3));
const setting = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(3))) : "–");

// Two numbers to be compared in a sentence: the fewest digits, but at least two, that compare as the numbers do.
function pairOf(a, b) {
  if (probability(a) !== probability(b) || a === b) return [probability(a), probability(b)];
  for (let digits = 3; digits < 12; digits++) {
    const pair = [inDigits(a, digits), inDigits(b, digits)];
    if (pair[0] !== pair[1]) return pair;
  }
  return [String(a), String(b)];
}

// Never "-0.00": a number that rounds to zero has no sign.
const decimal = (value, digits = 2) => (isKnown(value) ? value.toFixed(digits).replace(/^-(?=0(\.0*)?$)/, "") : "–");
// Other languages have a text only for the plural, with and without its number.
const noun = (count, word, many = word + "s") => LANGUAGE.lookup(many) ?? (count === 1 ? word : many);
const plural = (count, word, many = word + "s") => (LANGUAGE.lookup("{0} " + many) ? say("{0} " + many, count) : count + " " + noun(count, word, many));

const nameOf = (origin) => say(methodOf(origin.by).title);

// Who proposed a node, long and short.
function proposer({ origin }) {
  if (isKnown(origin.head)) return isKnown(origin.rank) ? say`Head ${origin.head}’s guess ${origin.rank + 1}` : say`Head ${origin.head}’s guess`;
  const by = nameOf(origin);
  return isKnown(origin.rank) ? say`Guess ${origin.rank + 1} by ${by},` : say`A guess by ${by},`;
}

function originTag({ origin }) {
  if (!origin.by) return say`base`;
  if (!isKnown(origin.head)) return origin.label ? nameOf(origin) + " " + origin.label : nameOf(origin);
  return isKnown(origin.rank) ? say`head ${origin.head}, guess ${origin.rank + 1}` : say`head ${origin.head}`;
}

// What is known of a drafter (METHODS: medusa_core/trace/replay/view.py), or made up for an unknown one.
const methodOf = (name) => METHODS[name] || { title: name || "", mark: (name || "?")[0], weights: false, sequential: false, settings: [] };

// Whether a run of this method has guesses at all; plain decoding has none, and so no mark for them.
const drafts = (name) => methodOf(name).mark !== "";

// The origin as it fits on a node, which stands below the name of its head.
function nodeTag({ origin }) {
  if (isKnown(origin.head) && isKnown(origin.rank)) return say`guess ${origin.rank + 1}`;
  if (!origin.by || isKnown(origin.head)) return originTag({ origin });
  return [methodOf(origin.by).mark, origin.label].filter(Boolean).join(" ");
}

// A trace's settings in one list: those of the run, along with the acceptance rule's own.
const settingsOf = (config) => ({
  ...RUN_SETTINGS, // a trace leaves most of them out at their defaults
  ...config, ...config.acceptance.settings,
  method: config.drafter.name, acceptance: config.acceptance.name,
});
