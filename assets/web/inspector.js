// Why one node was kept or not: a sentence, its rivals at the same place, the bar it had to clear, and its numbers.

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
    const name = html("code", { class: "mdv-bigtoken" });
    for (const part of runs(visible(node.text, node.token_id))) name.append(html("span", { class: part.sign ? "mdv-sign" : null }, part.text));
    head.replaceChildren(...[name, badge, state.pinned && state.node === i && html("span", { class: "mdv-pin" }, say`pinned · Esc frees it`)].filter(Boolean));
    sentence.setAttribute("aria-live", state.playing || (state.live && state.follow) ? "off" : "polite");
    const words = explainNode(scene, i);
    if (sentence.textContent !== words) sentence.textContent = words;
    const numbers = i === 0 ? null : alternativesTable(scene, i) || bars(scene, i);
    evidence.replaceChildren(...[numbers, barCurve(scene, i), facts(scene, i)].filter(Boolean));
  }

  return { card, draw };
}

// p of the node and of its rivals (same parent) on one scale, with the bar they had to clear: for traces that do not
// hold what else the model would have said.
function bars(scene, i) {
  const { step, verdict } = scene;
  const rivals = verdict.parents.map((_, j) => j).filter((j) => j > 0 && verdict.parents[j] === verdict.parents[i]);
  rivals.sort((a, b) => (step.nodes[b].p ?? 0) - (step.nodes[a].p ?? 0));
  const listed = rivals.slice(0, 6);
  if (!listed.includes(i)) listed[listed.length - 1] = i;
  const bar = verdict.thresholds[i];
  const top = Math.max(bar ?? 0, ...listed.map((j) => step.nodes[j].p ?? 0), 1e-9);
  const scale = Math.min(1, top * 1.15);
  const place = (value) => Math.min(100, (100 * (value ?? 0)) / scale);
  const rows = listed.map((j) => {
    const track = html("div", { class: "mdv-track" }, html("div", { class: "mdv-fill is-" + verdict.kinds[j], style: `width:${place(step.nodes[j].p)}%` }));
    if (bar !== null && bar !== undefined) track.append(html("div", { class: "mdv-bar", style: `left:${place(bar)}%` }));
    const label = html("span", { class: "mdv-barname" }, visible(step.nodes[j].text, step.nodes[j].token_id));
    return html("div", { class: "mdv-barrow" + (j === i ? " self" : ""), "data-node": j }, label, track,
      html("span", { class: "mdv-num" }, probability(step.nodes[j].p)));
  });
  const left = rivals.length - listed.length;
  const head = bar === null || bar === undefined ? say`The model’s p of the guesses at this place` : say`The model’s p against the bar (${probability(bar)})`;
  return html("div", { class: "mdv-bars", "data-role": "bars" },
    html("div", { class: "mdv-barhead" }, head + (left > 0 ? say`, ${left} more below` : "")), ...rows);
}

function facts(scene, i) {
  const { step } = scene;
  const node = step.nodes[i];
  const items = [[say`node`, i], [say`position`, step.cache_length + node.depth], [say`cache slot`, step.cache_length + i],
    [say`token id`, node.token_id], [say`proposed by`, i === 0 ? say`base model` : originTag(node)]];
  if (node.draft_p !== null && node.draft_p !== undefined) items.push([isKnown(node.origin.head) ? say`head’s own q` : say`drafter’s own q`, probability(node.draft_p)]);
  if (node.origin.note) items.push([say`found`, LANGUAGE.tell(node.origin.note) + (isKnown(node.origin.back) ? " " + say`(outlined in the text)` : "")]);
  if (i > 0 && node.entropy !== null && node.entropy !== undefined) items.push([say`entropy H`, say`${decimal(node.entropy)} nats`]);
  return html("dl", { class: "mdv-facts" }, ...items.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value))));
}
