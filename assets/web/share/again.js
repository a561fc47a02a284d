// A run as a command line and as a Python program that make it again. Pure; every text is quoted, since a prompt or a
// trace from elsewhere may hold anything.

const NAME = /^[a-z][a-z0-9_]*$/; // a setting's name: a keyword of Python, and a flag with hyphens
const TREE_NAME = /^(cartesian-\d+(x\d+)*|dynamic-\d+|[a-z][a-z0-9_]*)$/;
const NO_NAMES = ["auto", "default", "given"]; // of trees: what they stand for differs from machine to machine
const TREE_FILE = "medusa-tree.json";
// Characters that change how the text around them is shown, or are not shown at all.
const UNSEEN = /[\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

const endedByStop = ({ output }) => output?.finish_reason === "stop";
const STOP_LEFT_OUT = phrase("It does not carry the stop string that ended the run.");

// What ended a run at a stop string: that and what its last token has behind it, which no earlier place of the text holds.
// A trace does not hold the stop strings themselves. Null where its tokens do not spell its text one by one.
function stopTextOf(trace) {
  if (!endedByStop(trace)) return null;
  const { steps, output } = trace;
  const text = textOf({ steps });
  return text.startsWith(output.text) && text.slice(output.text.length) || null;
}

const hex = (number, digits) => number.toString(16).padStart(digits, "0");

// A string of Python. JSON's escapes are Python's.
const pythonText = (text) => JSON.stringify(text).replace(UNSEEN, (sign) => "\\u" + hex(sign.charCodeAt(0), 4));

// One word of bash and zsh: bare where it is plain, in '…' where that is enough, otherwise in $'…' with escapes.
function shellText(text) {
  if (/^[A-Za-z0-9_./:=@%+,-]+$/.test(text)) return text;
  if (!/[\u0000-\u001f]/.test(text) && text.search(UNSEEN) < 0) return "'" + text.replaceAll("'", "'\\''") + "'";
  const bytes = (sign) => [...new TextEncoder().encode(sign)].map((byte) => "\\x" + hex(byte, 2)).join("");
  const escaped = text.replace(/[\\']/g, "\\$&").replaceAll("\n", "\\n").replaceAll("\t", "\\t");
  return "$'" + escaped.replace(/[\u0000-\u001f]/g, bytes).replace(UNSEEN, bytes) + "'";
}

// What makes the run again: what to load, the settings by name, the tree. `typed` is the text that the prompt was
// written as, where it is known; token ids are the same prompt for every run.
function recipeOf(trace, typed) {
  const { model, config, prompt } = trace;
  const settings = { method: config.drafter.name, acceptance: config.acceptance.name };
  for (const name of Object.keys(RUN_SETTINGS)) if (name in config) settings[name] = config[name];
  for (const own of [config.drafter.settings, config.acceptance.settings]) {
    for (const [name, value] of Object.entries(own)) if (NAME.test(name)) settings[name] = value;
  }
  const stop = stopTextOf(trace);
  if (stop !== null) settings.stop = stop;
  const named = TREE_NAME.test(settings.tree || "") && !NO_NAMES.includes(settings.tree);
  if (!named) delete settings.tree;
  const load = {};
  // Without heads the weights of the run's drafter are the model's own, which "none" would omit.
  const heads = model.heads ?? (methodOf(config.drafter.name).weights ? undefined : "none");
  if (model.base !== "embedded") load.model = model.base;
  if (heads !== undefined && (model.base !== "embedded" || heads !== "embedded")) load.heads = heads;
  if (Number.isInteger(model.context) && ["yarn", "window"].includes(model.extend)) Object.assign(load, { context: model.context, extend: model.extend });
  if (["float32", "bfloat16", "float16"].includes(model.dtype)) load.dtype = model.dtype;
  if (["cpu", "cuda", "mps"].includes(model.device)) load.device = model.device;
  return { load, settings, tree: named ? null : config.tree, ids: prompt.token_ids, typed: typed ?? null, text: prompt.text };
}

function asPython({ load, settings, tree, ids, typed, text }) {
  const literal = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : typeof value === "string" ? pythonText(value) : String(value));
  const { model, ...options } = load;
  const loading = [...(model === undefined ? [] : [literal(model)]), ...Object.entries(options).map(([name, value]) => `${name}=${literal(value)}`)];
  const lines = ["from medusa_core import generate, load"];
  if (tree) lines.push("from medusa_core.trees.tree import Topology");
  lines.push("", `engine = load(${loading.join(", ")})`);
  if (typed === null) lines.push("# these token ids are " + pythonText(text));
  lines.push(`prompt = ${typed === null ? JSON.stringify(ids) : pythonText(typed)}`, "result = generate(", "    engine,", "    prompt,");
  for (const [name, value] of Object.entries(settings)) lines.push(`    ${name}=${literal(value)},`);
  if (tree) lines.push(`    tree=Topology.from_choices(${JSON.stringify(tree)}),`);
  lines.push("    trace=True,", ")", "print(result.text)");
  return lines.join("\n") + "\n";
}

function asCommand({ load, settings, tree, ids, typed }) {
  const flag = (name) => "--" + name.replaceAll("_", "-");
  const words = ["python", "-m", "medusa_core", "generate"];
  for (const [name, value] of [...Object.entries(load), ...Object.entries(settings)]) {
    if (typeof value === "boolean") words.push(flag(value ? name : "no_" + name));
    else words.push(`${flag(name)}=${shellText(String(value))}`); // with "=": a value may begin with a hyphen
  }
  if (tree) words.push(`${flag("tree")}=${TREE_FILE}`);
  // "-" stands for the standard input, and no word of a command can hold the character 0.
  if (typed === null || typed === "-" || typed.includes("\0")) words.push(`--prompt-ids=${ids.join(",")}`);
  else words.push("--", shellText(typed));
  const before = tree ? `printf %s ${shellText(JSON.stringify(tree))} > ${TREE_FILE} && ` : "";
  return before + words.join(" ") + "\n";
}
