// Why one node was kept or not: a sentence, what else the model would have said there, the bar, and its numbers.

function makeInspector(store) {
  const head = html("div", { class: "mdv-whyhead" });
  // One lasting element, so that screen readers announce its changes.
  const sentence = html("p", { class: "mdv-sentence", "data-role": "why", role: "status", "aria-live": "polite" });
  const evidence = html("div", { class: "mdv-evidence" });
  const body = html("div", { class: "mdv-why" }, head, sentence, evidence);
  const card = html("section", { class: "mdv-card mdv-area-why", tabindex: "0", "aria-label": say`Why` },
    cardHead(say`Why?`, say`choose a node: point at it, tap it, or ↑ ↓ and Enter`), body);
  linkNodes(store, body);

  function draw(scene) {
    body.hidden = !scene.step;
    if (!scene.step) return;
    const i = scene.explained;
    const { step, verdict, state } = scene;
    const node = step.nodes[i];
    const badge = html("span", { class: "mdv-badge is-" + verdict.kinds[i], "data-role": "verdict" },
      (scene.hypothetical ? say`what if: ${verdictWords(verdict, i)}` : verdictWords(verdict, i)));
    const name = html("code", { class: "mdv-bigtoken" }, ...signSpans(visible(node.text, node.token_id), "mdv-sign"));
    head.replaceChildren(...[name, badge, state.pinned && state.node === i && html("span", { class: "mdv-pin" }, say`pinned · Esc unpins it`)].filter(Boolean));
    sentence.setAttribute("aria-live", state.playing || (state.live && state.follow) ? "off" : "polite");
    const words = explainNode(scene, i);
    if (sentence.textContent !== words) sentence.textContent = words;
    evidence.replaceChildren(...[alternativesTable(scene, i), barCurve(scene, i), facts(scene, i)].filter(Boolean));
  }

  return { card, draw };
}

// The visible form of a token, its signs with their own class.
const signSpans = (shown, className) => runs(shown).map(({ text, sign }) => html("span", { class: sign ? className : null }, text));

function facts(scene, i) {
  const { step } = scene;
  const node = step.nodes[i];
  const items = [[say`node`, i], [say`position`, step.cache_length + node.depth], [say`cache slot`, step.cache_length + i],
    [say`token id`, node.token_id], [say`proposed by`, i === 0 ? say`base model` : originTag(node)]];
  if (isKnown(node.draft_p)) items.push([isKnown(node.origin.head) ? say`head’s own q` : say`drafter’s own q`, probability(node.draft_p)]);
  if (node.origin.note) items.push([say`found`, LANGUAGE.tell(node.origin.note) + (isKnown(node.origin.back) ? " " + say`(outlined in the text)` : "")]);
  if (i > 0 && isKnown(node.entropy)) items.push([say`entropy H`, say`${decimal(node.entropy)} nats`]);
  return html("dl", { class: "mdv-facts" }, ...items.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value))));
}
