// A link to a recorded run, or to prompt and settings of a run, at the step on screen. Pure; the server reads it
// (ui/records/outside.py), and gives `defaults`: the values of settings that the link does not name.

const RECORDED = "recorded-"; // prefix of recorded runs' names (ui/tabs/shown_runs.py)
const UNNAMED = ["heads", "budget", "tree", "mode", "method", "copies"]; // only for this page, or carried otherwise

// The text after "#run=" in the link.
function linkParts({ run, index, made, trace }, defaults) {
  const step = index > 0 ? { step: index + 1 } : {};
  if (run.startsWith(RECORDED)) return { recorded: run.slice(RECORDED.length), ...step };
  const { tree, budget } = made;
  const prompt = made.prompt ?? trace.prompt.text; // a chat has no prompt of its own: the text that its messages became
  const method = wholeMethod(made.method, made.copies);
  const others = Object.values(METHODS).flatMap(({ settings }) => settings);
  const counts = (name) => !others.includes(name) || methodOf(method).settings.includes(name);
  const parts = {};
  for (const [name, value] of Object.entries(made)) {
    const known = !UNNAMED.includes(name) && name !== "prompt" && isKnown(value);
    if (known && counts(name) && value !== defaults[name]) parts[name] = value;
  }
  if (method && method !== defaults.method) parts.method = method;
  if (counts("tree") && tree && tree !== "yours" && tree !== defaults.tree) parts.tree = tree;
  if (isBudgeted(parts.tree)) parts.budget = budget;
  return { prompt, ...parts, ...step };
}

// What a link leaves out, in words.
function linkLimits({ run, note, index, trace }) {
  const at = index > 0 ? say`It opens at step ${index + 1}.` + " " : "";
  if (run.startsWith(RECORDED)) return say`It carries the recorded run.` + " " + at + say`It does not carry what you tried out with the sliders.`;
  const stopped = endedByStop(trace) ? " " + say(STOP_LEFT_OUT) : "";
  const rest = say`It does not carry the model, its heads or a tree of your own.` + stopped;
  if (isRecording({ note })) return say`It carries prompt and settings of the run, not the file: send the trace along to show this very run.` + " " + at + rest;
  return say`It carries prompt and settings: whoever opens it presses Run.` + " " + at + rest;
}
