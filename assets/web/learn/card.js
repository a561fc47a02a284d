// One card: title, text, formula, the question to predict, and its answer once the reader has chosen.

function makeCard({ onAnswer, onAgain, onTry, link }) {
  const title = html("h3", { tabindex: "-1", class: "learn-title" });
  const count = html("p", { class: "learn-count" });
  const body = html("div", { class: "learn-body" });
  const ask = html("fieldset", { class: "learn-ask" });
  const answer = html("div", { class: "learn-answer", role: "status", "aria-live": "polite" });
  const node = html("div", { class: "learn-words" }, count, title, body, ask, answer);

  // `chosen` is the index of the reader's choice, or null; `lacking` says why a run other than the reader's is shown.
  function draw({ card, number, total, texts, facts, chosen, lacking }) {
    const { words } = texts;
    const question = questionOf(card, facts);
    count.textContent = plainText(words.card, { number, count: total });
    title.textContent = card.title;
    body.replaceChildren(lacking ? html("p", { class: "learn-lacking" }, lacking) : "", ...meant(card.body, facts).map((part) => html("p", { class: "learn-text" }, ...sentence(textOf(part), facts, link))),
      card.formula ? html("p", { class: "learn-formula", tabindex: "0" }, formula(card.formula, facts)) : "");
    const choices = question.choices.map((choice, i) => html("button", {
      type: "button", class: "learn-choice" + markOf(i, question, chosen), "data-choice": i, "aria-pressed": chosen === null ? null : String(i === chosen),
      "aria-disabled": chosen === null ? null : "true", onclick: () => onAnswer(i),
    }, html("kbd", { "aria-hidden": "true" }, i + 1), html("span", {}, ...sentence(choice.text, facts, link)),
    chosen !== null && i === question.right ? html("span", { class: "learn-tick" }, "✓") : null));
    ask.replaceChildren(html("legend", {}, html("b", {}, words.predict + ": "), ...sentence(question.text, facts, link)), ...choices);
    drawAnswer(card, question, words, facts, chosen);
    return question;
  }

  function drawAnswer(card, question, words, facts, chosen) {
    if (chosen === null) return answer.replaceChildren();
    const right = chosen === question.right;
    const verdict = right ? words.right : plainText(words.wrong, { choice: question.choices[question.right].plain });
    answer.replaceChildren(html("p", {}, html("b", {}, verdict), " ", ...sentence(question.because, facts, link)),
      html("div", { class: "learn-after" }, html("button", { type: "button", class: "learn-link", onclick: onAgain }, words.again),
        card.try && decodeHostOfPage() ? html("button", { type: "button", class: "learn-link learn-try", onclick: onTry }, words.try) : null));
  }

  return { node, title, answer, draw };
}

function markOf(i, question, chosen) {
  if (chosen === null) return "";
  if (i === question.right) return " is-right";
  return i === chosen ? " is-wrong" : "";
}
