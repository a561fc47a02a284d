// What is to be said beside a control: that it counts for nothing, or only for the next run. Pure.

const NEXT = "for the next run";

// By the name of a setting, "" for nothing. `made`: the settings that the shown run was made with, `settings`: those
// of the controls now, `hypothetical`: those that the shown step is judged by instead, if it is.
function notesOf(made, settings, hypothetical) {
  const notes = {};
  for (const name of Object.keys(settings || {})) {
    const applied = !made || !(name in made) || sameSetting(name, made, settings);
    notes[name] = applied || (hypothetical && JUDGING.includes(name)) ? "" : NEXT;
  }
  const idle = idleBar(settings || {});
  for (const name of ["epsilon", "delta"]) if (idle && name in notes) notes[name] = idle;
  return notes;
}

function sameSetting(name, made, settings) {
  if (name === "budget" && settings.tree !== "node budget") return true;
  const [a, b] = [made[name], settings[name]];
  return typeof a === "number" && typeof b === "number" ? near(a, b) : a === b;
}

// Why ε and δ count for nothing with these settings, or "".
function idleBar(settings) {
  if (settings.acceptance !== undefined && settings.acceptance !== "typical") return "counts for nothing: only the rule “typical” uses it";
  return settings.temperature <= 0 ? "counts for nothing at temperature 0: the most likely token is taken" : "";
}
