// Sentences of the cards as nodes: {fact}, [[term]] or [[term|shown]], $formula$. Tokens only pass through text nodes.

const PIECES = /(\{\w+\}|\[\[[^\]]+\]\]|\$\w+\$)/;

// `link(id, shown)` makes the link of a term.
function sentence(text, facts, link) {
  return text.split(PIECES).filter(Boolean).flatMap((piece) => {
    if (piece.startsWith("[[")) {
      const [id, shown = id] = piece.slice(2, -2).split("|");
      return link(id, shown);
    }
    if (piece.startsWith("$")) return formula(piece.slice(1, -1), facts);
    if (/^\{\w+\}$/.test(piece)) return factNodes(facts[piece.slice(1, -1)], piece);
    return piece;
  });
}

// Several tokens are a list, and each has its own box.
const factNodes = (value, piece) => [value].flat().flatMap((one, i) => (i ? [" ", factNode(one, piece)] : factNode(one, piece)));

function factNode(value, piece) {
  if (value === undefined) throw new Error(`no fact is called ${piece}`);
  if (!value.token) return String(value);
  return html("code", { class: "learn-token" }, ...signSpans(value.token, "learn-sign"));
}

// The same as plain text, for labels.
const plainText = (text, facts) => html("span", {}, ...sentence(text, facts, (_, shown) => shown)).textContent;

// Texts and questions may say when they apply: {"when": fact}.
const meant = (parts, facts) => parts.filter(({ when }) => !when || facts[when]);
const textOf = (part) => (typeof part === "string" ? part : part.text);

// The question of a card for this run: its choices in order, without duplicates, and which is right.
function questionOf(card, facts) {
  const ask = meant(card.ask, facts)[0];
  const right = plainText(ask.choices[ask.right], facts);
  const shown = ask.choices.map((text) => ({ text, plain: plainText(text, facts) }));
  const choices = shown.filter((choice, i) => (choice.plain === right ? i === ask.right : shown.findIndex((other) => other.plain === choice.plain) === i));
  if (ask.order === "number") choices.sort((a, b) => parseFloat(a.plain) - parseFloat(b.plain));
  return { ...ask, choices, right: choices.findIndex((choice) => choice.plain === right) };
}
