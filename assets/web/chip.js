// One node of the tree as a chip: verdict, token, which guess it is, and its number with its name. What a chip shows
// follows the phase: the head's own q before the forward, the model's p after it, the verdict once judged.

const AIRY = { width: 112, height: 38, gap: 8, pitch: 42, token: 15, least: 1, lines: 2 };
const DENSE = { width: 196, height: 26, gap: 18, pitch: 31, token: 13, least: 1, lines: 1 };
const SLIM = { width: 47, height: 36, gap: 4, pitch: 42, token: 12, least: 0.6, lines: 2, slim: true }; // for a phone, which then shows all columns
const SMALL = "12px system-ui, sans-serif"; // as .small in view.css, for measuring
const MARKS = { root: "", accepted: "✓", cut: "✂", rejected: "✕", orphan: "–", spare: "○", untried: "·" };
const VERDICTS = {
  root: phrase("root, always kept"), accepted: phrase("accepted"), cut: phrase("accepted"), rejected: phrase("rejected"),
  orphan: phrase("passes, but an ancestor was rejected"), spare: phrase("passes, but not on the longest path"),
  untried: phrase("not tried"),
};

const verdictWords = ({ kinds, cuts }, i) => say(VERDICTS[kinds[i]]) + (cuts.has(i) ? say`, ${cuts.get(i)}` : "");

const isPlacing = ({ stage }) => stage === STAGE.layout || stage === STAGE.mask;

// The number on a chip, with its name.
function chipNumber(scene, node, position) {
  if (isPlacing(scene)) return say`pos ${position}`;
  if (node.id === 0) return "";
  return scene.stage < STAGE.verify ? "q " + shortP(node.draft_p) : "p " + shortP(node.p);
}

// What the numbers on the chips of this phase are.
const numberHint = (scene) => (isPlacing(scene) ? phrase("n: the node’s number; pos: the token’s place in the text")
  : scene.stage < STAGE.verify ? phrase("q: how likely its drafter finds a guess") : phrase("p: how likely the model itself finds a guess"));

function chipTag(scene, node) {
  if (isPlacing(scene)) return say`n ${node.id}`; // “node 12” does not fit next to “pos 137”
  return node.id === 0 ? say`base model` : nodeTag(node);
}

// The same where its word has no room.
function shortTag(scene, { origin }) {
  if (isPlacing(scene)) return "";
  return isKnown(origin.head) && isKnown(origin.rank) ? "#" + (origin.rank + 1) : origin.label ?? "";
}

// The chip of a node: that of the previous step, changed where it differs, since new parts cost the browser a layout.
function chipOf(scene, plan, i, group = emptyChip(plan, i)) {
  const { step, verdict, index, stage } = scene;
  const { style } = plan;
  const node = step.nodes[i];
  const judged = stage >= STAGE.accept;
  const kind = judged || i === 0 ? verdict.kinds[i] : "open";
  const label = `${visible(node.text, node.token_id)}, ${originTag(node)}, p ${i === 0 ? "" : shortP(node.p)}, ${verdictWords(verdict, i)}`;
  give(group, { class: `mdv-node is-${kind}${judged && verdict.dead[i] ? " dead" : ""}`, id: `${scene.uid}-s${index}n${i}`,
    "aria-level": node.depth + 1, "aria-label": label, transform: `translate(${plan.x(node.depth)},${plan.y(plan.rowOf.get(i))})` });
  chipTexts(scene, style, node, MARKS[kind]).forEach((each, place) => writeText(group.texts[place], each));
  return group;
}

function emptyChip({ style }, i) {
  const group = svg("g", { "data-node": i, role: "treeitem" });
  group.texts = Array.from({ length: 4 }, () => svg("text", {}));
  group.append(svg("g", { class: "mdv-chipbody", style: `--i:${i}` }, // moves while a phase is played
    svg("rect", { class: "halo", x: -4, y: -4, width: style.width + 8, height: style.height + 8, rx: 10 }),
    i === 0 && svg("rect", { class: "ring", x: -3, y: -3, width: style.width + 6, height: style.height + 6, rx: 9 }),
    svg("rect", { class: "chip", width: style.width, height: style.height, rx: 7 }), ...group.texts));
  return group;
}

// Sets the attributes that differ from those given before; null takes one away.
function give(node, attributes) {
  const given = (node.given ??= {});
  for (const [name, value] of Object.entries(attributes)) {
    if (given[name] === value) continue;
    given[name] = value;
    if (value === null) node.removeAttribute(name);
    else node.setAttribute(name, value);
  }
}

function writeText(node, { words, ...attributes }) {
  give(node, attributes);
  if (node.words === words) return;
  node.words = words;
  if (attributes.class === "token") node.replaceChildren(...signed(words));
  else node.textContent = words;
}

function chipTexts(scene, style, node, mark) {
  if (style.slim) return slimTexts(scene, style, node, mark);
  const number = chipNumber(scene, node, scene.step.cache_length + node.depth);
  const airy = style.lines === 2;
  const [indent, middle] = [mark ? 22 : 9, airy ? 16 : 17];
  const right = style.width - 7;
  const beforeNumber = right - (number ? widthOf(number, SMALL) + 4 : 0); // right end of the room for the origin
  const left = airy ? 8 : indent + 40; // a dense chip has the token's beginning before it
  const tagRoom = beforeNumber - left;
  const tag = [chipTag(scene, node), shortTag(scene, node)].find((each) => widthOf(each, SMALL) <= tagRoom) ?? "";
  const tagEnd = airy ? left : beforeNumber;
  const room = airy ? right + 2 - indent : tagEnd - widthOf(tag, SMALL) - 8 - indent;
  const low = airy ? 31 : 17;
  return [
    { class: "mark", x: 12, y: middle, "text-anchor": "middle", words: mark || "" },
    { class: "token", x: indent, y: middle, "font-size": style.token, words: clip(visible(node.text, node.token_id), room, tokenFont(style.token)) },
    { class: "small", x: tagEnd, y: low, "text-anchor": airy ? null : "end", words: tag },
    { class: "small num", x: right, y: low, "text-anchor": "end", words: number },
  ];
}

// The token above, only its mark and the number below: the columns name the heads.
function slimTexts(scene, style, node, mark) {
  const [number] = chipNumber(scene, node, scene.step.cache_length + node.depth).replace(/\b0(?=\.)/, "").match(/[<>]?[.\d]+/) || [""];
  return [
    { class: "mark", x: 9, y: 29, "text-anchor": "middle", words: mark || "" },
    { class: "token", x: style.width / 2, y: 14, "text-anchor": "middle", "font-size": style.token, words: clip(visible(node.text, node.token_id), style.width - 4, tokenFont(style.token)) },
    { class: "small", x: 0, y: 29, "text-anchor": null, words: "" },
    { class: "small num", x: style.width - 4, y: 29, "text-anchor": "end", words: number },
  ];
}

const tokenFont = (size) => `600 ${size}px ui-monospace, monospace`;

// Token text with paler blanks; textContent is the visible form.
const signed = (shown) => runs(shown).map((part) => svg("tspan", { class: part.sign ? "sign" : null }, part.text));

function bonusOf({ step, stage, config }, plan) {
  const { bonus, style } = plan;
  if (!bonus || stage < STAGE.next) return [];
  const d = edgePath(plan, plan.depths[plan.end], plan.rowOf.get(plan.end), bonus.depth, bonus.row);
  const group = svg("g", { class: "mdv-bonus", transform: `translate(${plan.x(bonus.depth)},${plan.y(bonus.row)})` },
    svg("title", {}, say`The model’s own next token after the accepted path. It becomes the root of the next step.`));
  const body = svg("g", { class: "mdv-chipbody" }, svg("rect", { class: "outer", x: -3, y: -3, width: style.width + 6, height: style.height + 6, rx: 10 }),
    svg("rect", { width: style.width, height: style.height, rx: 7 }));
  const airy = style.lines === 2;
  const label = style.slim ? "" : !drafts(config.method) ? say`next token` : airy ? say`bonus: next root` : say`next root`;
  const left = style.slim ? 3 : 9;
  const room = airy ? style.width - 2 * left : style.width - 28 - widthOf(label, SMALL);
  const words = clip(visible(step.bonus.text, step.bonus.token_id), room, tokenFont(style.token));
  body.append(svg("text", { class: "token", x: left, y: airy ? 16 : 17, "font-size": style.token }, ...signed(words)),
    svg("text", { class: "small", x: airy ? left : style.width - 8, y: airy ? 31 : 17, "text-anchor": airy ? null : "end" }, label));
  group.append(body);
  return [svg("path", { class: "mdv-bonusedge", d }), group];
}

// What is folded away next to a node: a button to draw it all.
function foldOf(plan, fold, row, act) {
  const { style } = plan;
  const words = say`+${fold.hidden.length} more`;
  return svg("g", { class: "mdv-fold", role: "button", tabindex: "-1", "aria-label": say`Show ${fold.hidden.length} folded nodes`, onclick: act,
    transform: `translate(${plan.x(plan.depths[fold.parent] + 1)},${plan.y(row)})` },
    svg("rect", { width: style.width, height: 26, rx: 13 }),
    svg("text", { class: "small", x: style.width / 2, y: 17, "text-anchor": "middle" }, words));
}
