// Texts in the reader's language. English is in the code; a file of assets/language holds another language, by the
// English texts, with {0}, {1} for the values. All scripts of a page share one `medusaLanguage`.

const LANGUAGE = (window.medusaLanguage ??= makeLanguage());
const { say } = LANGUAGE;
const phrase = (text) => text; // marks an English text that is said later

function makeLanguage() {
  const KEPT = "medusa-language";
  const DOT = " · ";
  const KIND = /^[A-Z]{3}$/; // MHA, GQA, MQA
  const AFTER_STOP = /([。：；！？]) /g; // English sentences are joined by a space, Chinese ones by nothing
  const NUMBER = /\d+(?:[.,]\d+)*%?/g;
  const tables = new Map([["en", { name: "English", texts: new Map() }]]);
  const keys = new WeakMap(); // keys by a template's strings, the same object at every call
  const listeners = new Set();
  let chosen = readStored(KEPT);
  let code = "en";

  // What was chosen if there is a table of it, else the first of the browser's languages that has one.
  function settle() {
    const asked = [chosen, ...(navigator.languages || [navigator.language])].filter(Boolean).map((tag) => String(tag).toLowerCase());
    const found = asked.map((tag) => [...tables.keys()].find((known) => tag === known || tag.startsWith(known + "-"))).find(Boolean) || "en";
    if (found === code) return;
    code = found;
    for (const listener of [...listeners]) if (listener() === false) listeners.delete(listener);
  }

  // A language with its name and some of its texts: {"section": {English: its own}}.
  function add(tag, name, sections) {
    const table = tables.get(tag) || { name, texts: new Map() };
    for (const texts of Object.values(sections)) for (const [english, own] of Object.entries(texts)) table.texts.set(english, own);
    tables.set(tag, table);
    settle();
  }

  // `tag` of a language, or null for the browser's.
  function choose(tag) {
    chosen = tag;
    writeStored(KEPT, tag);
    settle();
  }

  // The text of this language, or undefined where English is shown.
  const lookup = (english) => tables.get(code).texts.get(english);

  function keyOf(strings) {
    let key = keys.get(strings);
    if (key === undefined) keys.set(strings, (key = strings.reduce((text, part, i) => `${text}{${i - 1}}${part}`)));
    return key;
  }

  // say`Step ${1} of ${9}`, or say("Step {0} of {1}", 1, 9) for a text that is kept in a variable.
  function say(text, ...values) {
    const english = typeof text === "string" ? text : keyOf(text);
    return (lookup(english) ?? english).replace(/\{(\d)\}/g, (place, i) => (i in values ? String(values[i]) : place));
  }

  // An English text that may have numbers in it: a table may hold it with {0}, {1} in their places. Undefined where
  // English is shown.
  function find(english) {
    const whole = lookup(english);
    if (whole !== undefined) return whole;
    const numbers = [];
    const found = lookup(english.replace(NUMBER, (number) => `{${numbers.push(number) - 1}}`));
    return found && numbers.length ? found.replace(/\{(\d)\}/g, (_, i) => numbers[i]) : undefined;
  }

  // A list with commas whose parts are all known: a name or a sentence may have commas too, and stays whole.
  function listed(words) {
    const parts = words.split(", ").map((part) => find(part) ?? (KIND.test(part) ? part : ""));
    return parts.every(Boolean) ? parts.join(", ") : words;
  }

  // What the server sent: a text, parts of one with dots between them, or {"english", "text", "values"}
  // (ui/records/words.py).
  function tell(words) {
    if (typeof words === "string") return find(words) ?? words.split(DOT).map((part) => find(part) ?? listed(part)).join(DOT);
    if (typeof words !== "object" || words === null) return String(words ?? "");
    if (words.english !== undefined && /[a-z]{2}/i.test(words.text) && lookup(words.text) === undefined) return words.english;
    return say(words.text, ...words.values.map(tell)).replace(AFTER_STOP, "$1");
  }

  return {
    say, tell, find, lookup, add, choose,
    get code() { return code; },
    get chosen() { return chosen; },
    get offered() { return [...tables].map(([tag, { name }]) => [tag, name]); },
    // `listener` is called after each change, until it returns false.
    listen: (listener) => listeners.add(listener),
  };
}

// What the browser keeps under a name, or null: a private window or a frame may have no storage.
function readStored(name, storage = "localStorage") {
  try {
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}

// Keeps a text, or nothing for null. False where there is no room or no storage.
function writeStored(name, text, storage = "localStorage") {
  try {
    if (text === null) window[storage].removeItem(name);
    else window[storage].setItem(name, text);
    return true;
  } catch {
    return false;
  }
}

// The value of a JSON text, or null for any other text.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
