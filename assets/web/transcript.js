// The transcript of a chat (messages: ui/transcript.py). Words only ever pass through text nodes.

const NAMES = { user: "You", assistant: "Model" };
const NEAR = 40; // pixels from the end that still count as reading along

function mountTranscript(host) {
  const list = html("div", { class: "talk", role: "log", "aria-label": "Conversation", tabindex: "0" });
  const legend = html("p", { class: "talk-legend" }, html("span", { class: "talk-drafted" }, "underlined"),
    ": guessed ahead and accepted");
  const empty = html("p", { class: "talk-empty" },
    "Nothing said yet. Write a message or choose an example; the view then shows each step of the reply.");
  let run = null;
  let words = null; // where the reply that is being made is written
  host.replaceChildren(empty, list, legend);
  show({ run, live: false, turns: [] });

  function receive(text) {
    if (!text) return;
    apply(JSON.parse(text));
  }

  function apply(message) {
    if (message.kind === "several") message.messages.forEach(apply);
    else if (message.kind === "show") show(message);
    else if (message.run === run && words) grow(message.pieces);
  }

  function show({ run: name, live, turns }) {
    const unread = turns.filter((turn) => !turn.read).length;
    const rows = turns.map(row);
    if (unread) rows.splice(unread, 0, html("div", { class: "talk-gap" }, "The context is full: the model no longer reads what is above."));
    if (live) rows.push(row({ role: "assistant", pieces: [], read: true, figures: "" }));
    list.replaceChildren(...rows);
    list.setAttribute("aria-busy", String(live));
    run = name;
    words = live ? rows[rows.length - 1].querySelector(".talk-words") : null;
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

  return { receive };
}

function row({ role, pieces, read, figures }) {
  const words = html("div", { class: "talk-words" });
  write(words, pieces);
  return html("div", { class: `talk-turn from-${role}${read ? "" : " is-unread"}` },
    html("b", { class: "talk-name" }, NAMES[role]), words, figures && html("div", { class: "talk-figures" }, figures));
}

function write(words, pieces) {
  for (const { text, drafted } of pieces) {
    // What a reply begins with parts it from the question before, which its own box does here.
    const shown = words.textContent ? text : text.trimStart();
    words.append(drafted ? html("span", { class: "talk-drafted" }, shown) : shown);
  }
}

const transcript = mountTranscript(element.querySelector(".talk-host"));
watch("value", () => transcript.receive(props.value));
transcript.receive(props.value);
