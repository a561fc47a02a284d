// This visit's comparisons, newest first: a list from which one is shown again. Kept only in this tab of the browser.

const MOST_KEPT = 8;
const SHELF = "medusa-races-1"; // with the version of the messages
const PROMPT_LETTERS = 48;

// `open(message)` shows one. The recorded race is the last in the list, and is not kept.
function buildGallery(open) {
  const list = html("ol", { class: "race-kept" });
  const root = html("section", { class: "race-gallery", "aria-label": say`Comparisons of this visit`, hidden: true }, html("h3", {}, say`This visit’s comparisons`), list);
  const kept = readShelf();
  let recorded = null;
  let current = null;

  function draw() {
    const all = recorded ? [...kept, recorded] : kept;
    root.hidden = all.every((message) => message === current); // only the one that is shown
    list.replaceChildren(...all.map((message) => html("li", {}, buildEntry(message, message === current, () => open(message)))));
  }
  // `fresh` for one that has just been measured; null while none is shown.
  function show(message, fresh) {
    current = message;
    if (!message) return draw();
    if (message.recorded) recorded = message;
    else if (fresh) {
      kept.unshift(message);
      kept.length = Math.min(kept.length, MOST_KEPT);
      writeStored(SHELF, JSON.stringify(kept), "sessionStorage"); // without room the list lasts until the page is left
    }
    draw();
  }
  return { root, show };
}

function buildEntry(message, current, open) {
  const tables = message.lanes.map(timetable);
  const result = comparison(tables, message.baseline);
  const letters = [...oneLine(promptOf(message))];
  const begin = letters.slice(0, PROMPT_LETTERS).join("") + (letters.length > PROMPT_LETTERS ? "…" : "");
  const names = `${tables[0].name} ÷ ${tables[1].name}${message.recorded ? " " + say`(recorded)` : ""}`;
  return html("button", { type: "button", class: "race-entry", "aria-current": current ? "true" : null, onclick: open },
    html("b", {}, names), html("span", { class: "race-entry-prompt" }, begin), html("span", { class: "race-entry-speed" }, result ? middleWords(result.speedup, "×") : "–"));
}

function readShelf() {
  const found = parsed(readStored(SHELF, "sessionStorage"));
  return Array.isArray(found) ? found.filter((one) => one && one.kind === "race" && Array.isArray(one.lanes)).slice(0, MOST_KEPT) : [];
}
