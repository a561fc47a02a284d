// The glossary: all terms in a list that unfolds, and the note on one term that a link in a card opens.

function makeGlossary({ onSeen }) {
  const list = html("dl", { class: "learn-terms" });
  const summary = html("summary", {});
  const box = html("details", { class: "learn-glossary" }, summary, list);
  const note = html("aside", { class: "learn-note", role: "status", "aria-live": "polite", hidden: true });
  let opener = null;
  let texts = null;

  function draw(newTexts) {
    texts = newTexts;
    summary.textContent = texts.words.glossary;
    list.replaceChildren(...texts.glossary.flatMap((entry) => [html("dt", {}, entry.term), html("dd", {}, ...meaning(entry))]));
    close();
  }

  function meaning(entry) {
    const where = texts.words.seen.replace("{where}", entry.where);
    const seen = entry.part ? html("button", { type: "button", class: "learn-seen", onclick: () => onSeen(entry.part) }, where) : html("span", { class: "learn-seen" }, where);
    return [...sentence(entry.text, {}, link), " ", seen];
  }

  function link(id, shown) {
    const entry = texts.glossary.find((each) => each.id === id);
    if (!entry) throw new Error(`no term is called ${id}`);
    return html("button", { type: "button", class: "learn-term", "data-term": id, onclick: (event) => open(entry, event.currentTarget) }, shown);
  }

  function open(entry, from) {
    opener = from;
    const shut = html("button", { type: "button", class: "learn-close", "aria-label": texts.words.close, onclick: close }, "✕");
    note.replaceChildren(html("b", {}, entry.term), ": ", ...meaning(entry), shut);
    note.hidden = false;
  }

  function close() {
    if (note.hidden) return false;
    note.hidden = true;
    if (opener?.isConnected) opener.focus();
    opener = null;
    return true;
  }

  function toggle() {
    box.open = !box.open;
    if (box.open) summary.focus();
  }

  return { box, note, draw, link, close, toggle };
}
