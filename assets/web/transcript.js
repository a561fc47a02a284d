// The transcript of a chat (messages: ui/records/messages.py). Words only ever pass through text nodes.

const NAMES = { user: phrase("You"), assistant: phrase("Model") };
const NEAR = 40; // pixels from the end that still count as reading along

// `before`: what a transcript in another language has shown, to be shown again.
function mountTranscript(host, before = []) {
  let told = []; // the conversation as it was last shown, and what has been added since
  const list = html("div", { class: "talk", role: "log", "aria-label": say`Conversation`, tabindex: "0" });
  const legend = html("p", { class: "talk-legend" }, html("span", { class: "talk-drafted" }, say`underlined`),
    say`: guessed ahead and accepted`);
  const empty = html("p", { class: "talk-empty" },
    say`Nothing said yet. Write a message or choose an example; the view then shows each step of the reply.`);
  let run = null;
  let words = null; // where the reply that is being made is written
  host.replaceChildren(empty, list, legend);
  show({ run, live: false, turns: [] });
  before.forEach(apply);

  function receive(text) {
    if (text) apply(JSON.parse(text));
  }

  function apply(message) {
    if (message.kind === "several") return message.messages.forEach(apply);
    if (message.kind === "show") {
      told = [message];
      show(message);
    } else if (message.run === run && words) {
      told.push(message);
      grow(message.pieces);
    }
  }

  function show({ run: name, live, turns }) {
    const unread = turns.filter((turn) => !turn.read).length;
    const rows = turns.map(row);
    if (unread) rows.splice(unread, 0, html("div", { class: "talk-gap" }, say`The context is full: the model no longer reads what is above.`));
    if (live) rows.push(row({ role: "assistant", pieces: [], read: true, figures: "" }));
    list.replaceChildren(...rows);
    list.setAttribute("aria-busy", String(live));
    run = name;
    words = live ? rows.at(-1).querySelector(".talk-words") : null;
    if (live) words.classList.add("is-live");
    empty.hidden = rows.length > 0;
    list.hidden = rows.length === 0;
    follow(true);
  }

  function grow(pieces) {
    const along = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR;
    write(words, pieces);
    follow(along);
  }

  function follow(along) {
    legend.hidden = !list.querySelector(".talk-drafted");
    if (along) list.scrollTop = list.scrollHeight;
  }

  return { receive, told: () => told };
}

function row({ role, pieces, read, figures }) {
  const words = html("div", { class: "talk-words" });
  write(words, pieces);
  return html("div", { class: `talk-turn from-${role}${read ? "" : " is-unread"}` },
    html("b", { class: "talk-name" }, say(NAMES[role])), words, figures && html("div", { class: "talk-figures" }, LANGUAGE.tell(figures)));
}

function write(words, pieces) {
  for (const { text, drafted } of pieces) {
    // A reply's leading blanks separate it from the question, which its own box does here.
    const shown = words.begun ? text : text.trimStart();
    words.begun ||= shown !== "";
    words.append(drafted ? html("span", { class: "talk-drafted" }, shown) : shown);
  }
}

let transcript = mountTranscript(element.querySelector(".talk-host"));
LANGUAGE.listen(() => {
  if (!element.isConnected) return false;
  transcript = mountTranscript(element.querySelector(".talk-host"), transcript.told());
});
watch("value", () => transcript.receive(props.value));
transcript.receive(props.value);
