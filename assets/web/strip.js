// The text strip: prompt, then every emitted token, marked by who proposed it and grouped by step.

const PAGE_STEPS = 16;
const PAGE_TOKENS = 100; // tokens of the prompt
const WHOLE_PAGES = 32; // a longer text is not laid out whole: a browser is slow with tens of thousands of tokens
const PAGES = 8; // pages of a long text that are drawn, more where a step has few tokens
const LEAST_TOKENS = 320; // laid out, so that they fill more than the box
const TURN = 3; // pages added when a reader scrolls to either end of what is laid out
const EDGE = 48; // pixels from there
const READING_MS = 1000; // after a wheel, touch or key event, scrolling is the reader's

function makeStrip(store) {
  const box = html("div", { class: "mdv-strip", "data-role": "text", tabindex: "0", role: "group", "aria-label": say`Text so far` });
  const legend = html("div", { class: "mdv-legend" });
  const tools = makeTextTools(store);
  const card = html("section", { class: "mdv-card mdv-area-text", "aria-label": say`Text` },
    cardHead(say`Text`, say`every token, marked by who proposed it`, legend, tools.box), box);
  const [before, behind] = [-TURN, TURN].map((by) => html("button", { type: "button", class: "mdv-textmore", hidden: true, onclick: () => turn(by) }));
  const drawn = { trace: null, pages: new Map() }; // `restart` adds the rest

  box.addEventListener("click", (event) => {
    const token = event.target.closest("[data-node]");
    if (!token) return;
    store.goto(Number(token.dataset.step));
    store.set({ node: Number(token.dataset.node), pinned: true });
  });
  // Showing the current step scrolls too, and must not turn the pages away from it.
  let read = -Infinity;
  const reads = () => (read = performance.now());
  for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) box.addEventListener(kind, reads, { passive: true });
  box.addEventListener("scroll", () => {
    if (performance.now() - read > READING_MS) return;
    reads(); // a flick goes on for a while
    if (!before.hidden && box.scrollTop < EDGE) turn(-TURN);
    else if (!behind.hidden && box.scrollTop + box.clientHeight > box.scrollHeight - EDGE) turn(TURN);
  });

  function restart(trace) {
    drawn.pages.clear();
    const pieces = promptPieces(trace.prompt);
    Object.assign(drawn, { trace, pieces, promptPages: Math.max(1, Math.ceil(pieces.length / PAGE_TOKENS)), first: 0, last: -1, steps: 0,
      heads: -1, drafter: "", at: -1, lit: null, sources: [] });
    box.replaceChildren(before, behind);
    box.scrollTop = 0;
  }

  const pageCount = () => drawn.promptPages + Math.ceil(drawn.trace.steps.length / PAGE_STEPS);
  const pageOf = (position) => drawn.promptPages + Math.floor(position / PAGE_STEPS);
  const groupAt = (position) => (drawn.pages.get(pageOf(position)) || [])[position % PAGE_STEPS];

  // The elements of a page: a piece of the prompt, or a group for each step.
  function elementsOf(page) {
    if (page < drawn.promptPages) return [promptPage(page)];
    const start = (page - drawn.promptPages) * PAGE_STEPS;
    return drawn.trace.steps.slice(start, start + PAGE_STEPS).map((step, i) => groupOf(step, start + i));
  }

  function promptPage(page) {
    const start = page * PAGE_TOKENS;
    const span = html("span", { class: "mdv-prompt" }, ...drawn.pieces.slice(start, start + PAGE_TOKENS).map(promptToken));
    if (!drawn.pieces.length) readable(span, drawn.trace.prompt.text);
    return span;
  }

  function groupOf(step, position) {
    const { at } = drawn;
    const group = html("span", { class: "mdv-step" + (position > at ? " later" : position === at ? " current" : ""), "data-step": position });
    const cuts = cutsOf(drawn.trace, position);
    const nodes = emittedNodes(step);
    nodes.forEach((node, i) => group.append(tokenSpan(node, position, cuts.get(node.id), (nodes[i + 1] ?? step.bonus)?.text)));
    return group;
  }

  function tokenSpan(node, position, cut, next) {
    const origin = node.origin.by ? "head" : "base";
    const title = [say`step ${position + 1}`, origin === "base" ? say`base model` : originTag(node), cut].filter(Boolean).join(" · ");
    const token = html("span", { class: `mdv-token from-${origin}${cut ? " is-cut" : ""}`, "data-step": position, "data-node": node.id, title });
    readable(token, node.text, node.token_id);
    if (origin === "head" && !besideDigits(node.text, next)) markToken(token, node.origin.head ?? methodOf(node.origin.by).mark);
    return token;
  }

  // Lays out the pages from `first` to `last` and takes the others away; those that stay are not touched.
  function lay(first, last) {
    for (const [page, elements] of drawn.pages) {
      if (page >= first && page <= last) continue;
      for (const element of elements) element.remove();
      drawn.pages.delete(page);
    }
    let next = behind;
    for (let page = last; page >= first; page--) {
      const known = drawn.pages.get(page);
      const elements = known || elementsOf(page);
      if (!known) {
        drawn.pages.set(page, elements);
        next.before(...elements);
      }
      next = elements[0] || next;
    }
    Object.assign(drawn, { first, last });
  }

  // The steps that have come since, on the last page that is laid out and on new ones.
  function grow() {
    const { steps } = drawn.trace;
    for (; drawn.steps < steps.length; drawn.steps++) {
      const step = steps[drawn.steps];
      for (const { origin } of emittedNodes(step)) {
        drawn.heads = Math.max(drawn.heads, origin.head ?? 0);
        drawn.drafter = origin.by || drawn.drafter;
      }
      const page = drawn.pages.get(pageOf(drawn.steps));
      if (!page || page.length !== drawn.steps % PAGE_STEPS) continue;
      page.push(groupOf(step, drawn.steps));
      behind.before(page.at(-1));
    }
  }

  function pagesAtOnce() {
    const { tokens } = sumsOf(drawn.trace);
    const each = tokens.at(-1) / drawn.trace.steps.length;
    return Math.min(WHOLE_PAGES, Math.max(PAGES, Math.ceil(LEAST_TOKENS / PAGE_STEPS / each)));
  }

  // Which pages to lay out for a step: all of them if they are few, else those around the step.
  function around(position) {
    const count = pageCount();
    if (count <= WHOLE_PAGES) return [0, count - 1];
    const [page, pages] = [pageOf(position), pagesAtOnce()];
    const [top, end] = [page - drawn.first, drawn.last - page];
    const roomy = (top > 1 || (top >= 0 && drawn.first === 0)) && (end > 1 || (end >= 0 && drawn.last === count - 1));
    if (roomy && drawn.last - drawn.first === pages - 1) return [drawn.first, drawn.last];
    const first = Math.max(0, Math.min(count - pages, page - Math.floor(pages / 2)));
    return [first, first + pages - 1];
  }

  // More text is laid out; what is in sight stays where it is.
  function turn(by) {
    const pages = pagesAtOnce();
    const first = Math.max(0, Math.min(pageCount() - pages, drawn.first + by));
    if (first === drawn.first) return;
    const staying = drawn.pages.get(by < 0 ? drawn.first : drawn.last)[0];
    const place = staying.offsetTop - box.scrollTop;
    lay(first, first + pages - 1);
    tellMore();
    box.scrollTop = staying.offsetTop - place;
  }

  function tellMore() {
    const { tokens } = sumsOf(drawn.trace);
    const prompt = drawn.pieces.length;
    const tokensBefore = (page) => (page <= drawn.promptPages ? Math.min(prompt, page * PAGE_TOKENS)
      : prompt + tokens[Math.min(drawn.trace.steps.length, (page - drawn.promptPages) * PAGE_STEPS)]);
    const counts = [tokensBefore(drawn.first), prompt + tokens.at(-1) - tokensBefore(drawn.last + 1)];
    before.hidden = drawn.first === 0;
    behind.hidden = drawn.last >= pageCount() - 1;
    before.textContent = say`${plural(counts[0], "token")} before`;
    behind.textContent = say`${plural(counts[1], "token")} more`;
  }

  function drawLegend() {
    const { method } = settingsOf(drawn.trace.config);
    const name = drawn.drafter || method;
    const entries = [html("span", {}, html("i", { class: "mdv-token from-base" }, "abc"), " " + say`base model (root)`)];
    const headed = drawn.heads > 0 || (!drawn.drafter && methodOf(name).weights);
    const mark = !headed ? methodOf(name).mark : drawn.heads > 1 ? "1–" + drawn.heads : "1";
    const whose = " " + (headed ? say`guess of that head, accepted` : say`guess of “${say(methodOf(name).title)}”, accepted`);
    if (drafts(name)) entries.push(html("span", {}, html("i", { class: "mdv-token from-head" }, "abc", html("sup", {}, mark)), whose));
    legend.replaceChildren(...entries);
  }

  function draw(scene, changed, afterwards) {
    const { trace, index, lit } = scene;
    const fresh = trace !== drawn.trace;
    if (fresh) restart(trace);
    const { heads, drafter } = drawn;
    grow();
    if (heads !== drawn.heads || drafter !== drawn.drafter) drawLegend();
    const moved = fresh || index !== drawn.at;
    if (moved || pageCount() <= WHOLE_PAGES) lay(...around(index));
    markUpTo(index);
    tellMore();
    tools.draw(trace, pageCount() > WHOLE_PAGES);
    if (drawn.lit) drawn.lit.classList.remove("lit");
    drawn.lit = null;
    const current = groupAt(index);
    if (!current) return;
    const chosen = lit === null ? null : current.querySelector(`[data-node="${lit}"]`);
    if (chosen) (drawn.lit = chosen).classList.add("lit");
    markSources(scene);
    if (moved || changed.has("trace") || changed.has("revision")) afterwards.push(() => showGroup(current));
  }

  // The tokens that the shown guess and its ancestors were copied from.
  function markSources(scene) {
    for (const token of drawn.sources) token.classList.remove("source");
    drawn.sources = scene.step ? sourcesOf(scene.step, scene.explained).map(tokenAt).filter(Boolean) : [];
    for (const token of drawn.sources) token.classList.add("source");
  }

  // The element of a token of the text, where it is laid out.
  function tokenAt(place) {
    const { prompt } = drawn.trace;
    const left = place - prompt.token_ids.length;
    if (left < 0) return drawn.pieces.length ? drawn.pages.get(Math.floor(place / PAGE_TOKENS))?.[0].children[place % PAGE_TOKENS] : undefined;
    const { tokens } = sumsOf(drawn.trace);
    const position = placeIn(tokens, left);
    const group = groupAt(position);
    return group?.children[left - tokens[position]];
  }

  // Only what lies between the step shown before and this one changes, where it is laid out.
  function markUpTo(index) {
    const { at, first, last, promptPages } = drawn;
    const from = Math.max(0, Math.min(at, index), (first - promptPages) * PAGE_STEPS);
    const to = Math.min(Math.max(at, index), (last + 1 - promptPages) * PAGE_STEPS - 1);
    for (let i = from; i <= to; i++) {
      const group = groupAt(i);
      if (!group) continue;
      group.classList.toggle("later", i > index);
      group.classList.toggle("current", i === index);
    }
    drawn.at = index;
  }

  function showGroup(group) {
    const seen = box.getBoundingClientRect();
    if (!seen.width) return; // not shown
    // In the box's own pixels, whatever lecture mode's zoom is.
    const within = (y) => ((y - seen.top) * box.offsetWidth) / seen.width + box.scrollTop;
    const { top, bottom } = group.getBoundingClientRect();
    const [before, line] = [box.scrollTop, parseFloat(getComputedStyle(box).lineHeight)];
    reveal(box, 0, within(top), 0, within(bottom), line, false);
    if (box.scrollTop !== before) box.scrollTop = Math.floor(box.scrollTop / line + 0.1) * line; // no line is cut at the top
  }

  return { card, draw };
}

// A prompt's tokens as texts; none where the trace does not say what each of them is.
function promptPieces({ text, texts = [] }) {
  return texts.length && texts.join("") === text ? texts : [];
}

function promptToken(piece) {
  const token = html("span");
  readable(token, piece);
  if (!token.childNodes.length) token.append(piece); // blanks between words
  return token;
}

// Places in the text where the tokens stand that a node and its ancestors were copied from.
function sourcesOf(step, node) {
  const places = [];
  for (let at = node; isKnown(at) && step.nodes[at]; at = step.nodes[at].parent) {
    const { depth, origin } = step.nodes[at];
    const place = step.cache_length + depth - origin.back;
    if (isKnown(origin.back) && place >= 0) places.push(place);
  }
  return places;
}

// The mark stands after the token's own text, but before a line break at its end: otherwise it would begin the next line.
function markToken(token, mark) {
  const { lastChild } = token;
  const breaks = lastChild instanceof Text && lastChild.data === "\n";
  token.insertBefore(html("sup", {}, mark), breaks ? lastChild : null);
}

// Running text: blanks stay blanks, but a line break also shows its sign, and single blanks get one.
function readable(target, text, tokenId) {
  if (text.trim() === "" && !text.includes("\n")) {
    if (tokenId !== undefined) target.append(html("span", { class: "mdv-sign" }, visible(text, tokenId)));
    return;
  }
  for (const piece of text.split(/(\n|\t)/)) {
    if (piece === "") continue;
    if (piece === "\n") target.append(html("span", { class: "mdv-sign" }, "⏎"), "\n");
    else if (piece === "\t") target.append(html("span", { class: "mdv-sign" }, "⇥"), "\t");
    else target.append(piece);
  }
}
