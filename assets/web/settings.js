// The note next to a control: that it has no effect, or only on the next run.

// By the name of a setting, "" for nothing. `made`: the settings that the shown run was made with, `settings`: those
// of the controls now, `hypothetical`: those that the shown step is judged by instead, if it is.
function notesOf(made, settings, hypothetical) {
  const notes = {};
  for (const name of Object.keys(settings)) {
    const applied = !made || !(name in made) || sameSetting(name, made, settings);
    notes[name] = applied || (hypothetical && JUDGING.includes(name)) ? "" : say`for the next run`;
  }
  for (const [name, words] of Object.entries(idleSettings(settings))) if (words && name in notes) notes[name] = words;
  return notes;
}

// Writes notes next to the controls of the tab that holds `part`; also next to those that come later, as a folded
// part of the page has no controls yet.
function noteWriter(part) {
  const desk = part.closest(".desk") ?? document;
  let notes = {};
  const write = () => {
    for (const [name, words] of Object.entries(notes)) {
      for (const control of desk.querySelectorAll(`.setting-${name}`)) {
        let line = control.querySelector(".setting-note");
        if (!words) {
          if (line) line.remove();
          delete control.dataset.note;
          continue;
        }
        if (!line) control.append(line = html("p", { class: "setting-note" }));
        if (line.textContent !== "→ " + words) line.textContent = "→ " + words; // the observer sees this, too
        control.dataset.note = words;
      }
    }
  };
  const side = desk.querySelector(".side");
  if (side) new MutationObserver(write).observe(side, { childList: true, subtree: true });
  return (next) => {
    notes = next;
    write();
  };
}

const isBudgeted = (tree) => ["node budget", "dynamic"].includes(tree);

function sameSetting(name, made, settings) {
  if (name === "budget" && !isBudgeted(settings.tree)) return true;
  const [a, b] = [made[name], settings[name]];
  return typeof a === "number" && typeof b === "number" ? near(a, b) : a === b;
}

// The name of a method whose drafter also copies from the text, if it has weights to join.
const wholeMethod = (name, copies) => (copies && METHODS[`${name}+lookup`] ? `${name}+lookup` : name);

// Why settings have no effect given the others, by name; "" where they have one.
function idleSettings(settings) {
  const bar = idleBar(settings);
  const idle = { epsilon: bar, delta: bar };
  if (Number(settings.penalty) === 1) idle.penalty_window = say`counts for nothing: the penalty is 1`;
  if (Number(settings.penalty_window) === 0) idle.penalty = say`counts for nothing: the window is 0`;
  if (settings.temperature <= 0) idle.top_k = idle.top_p = idle.min_p = say`counts for nothing at temperature 0: the most likely token is taken`;
  if (settings.mode === "chat") idle.ignore_eos = say`counts for nothing in a chat: a reply ends with the model’s turn`;
  const method = METHODS[settings.method];
  if (method && !method.settings.includes("tree")) idle.tree = idle.budget = say`counts for nothing with this method`;
  if (method && !method.weights) idle.copies = say`counts for nothing with this method`;
  if (method && !method.weights) idle.heads = say`their guesses count for nothing with this method`;
  return idle;
}

// Why ε and δ have no effect with these settings and what would change that, in one sentence, or "".
function idleBar({ acceptance, temperature, method }) {
  if (!drafts(method)) return say`ε and δ have no effect: this method guesses nothing`;
  const greedy = temperature <= 0;
  if (acceptance === undefined || acceptance === "typical") return greedy ? say`ε and δ have no effect at temperature 0 (greedy matching): raise it` : "";
  return greedy ? say`ε and δ have no effect: choose the rule “typical” and T > 0` : say`ε and δ have no effect: choose the rule “typical”`;
}

// Which run the view still shows although it is not that of the chosen mode, or "". A run's `mode` is that of
// Watch when it was asked for; a recorded run, which has none, is a text's.
function formerWords({ made, settings, putAway }) {
  const mode = made?.mode || "complete";
  const next = settings?.mode === "complete" ? say`run the prompt to see its own` : say`send a message to see the reply’s`;
  if (mode === "chat" && putAway.includes(made)) return say`These are the steps of the previous conversation: ${next}.`;
  if (!settings?.mode || settings.mode === mode) return "";
  return mode === "chat" ? say`These are the steps of the chat’s last reply: ${next}.` : say`These are the steps of a text, not of this conversation: ${next}.`;
}
