// The dialog "Share" of a view: files of the run on screen, and texts that make it again. `page` is what only a page with
// a server has: `shell()`, a replay file without a run, `linkTo(state)`, and `open(text)` for a trace from a file.

const MOST_TRACE_BYTES = 6_000_000; // as ui/records/outside.py
const SAY_SIZE = 1_000_000; // bytes from which a trace's button says how large it is
const TRACE_SLOT = /(id="trace">)null(?=<)/; // as medusa_core/trace/replay/page.py

function mountShare(view, page = {}) {
  let menu = null;
  view.onBuild(() => { menu = makeShareMenu(view, page); });
  return { say: (words) => menu.say(words), close: () => menu.close() };
}

function makeShareMenu(view, page) {
  const { root, state } = view;
  const said = html("p", { class: "mdv-sharesaid", role: "status" });
  const copied = html("textarea", { class: "mdv-copied", readonly: true, hidden: true, rows: 6, "aria-label": say`What was copied` });
  const button = (name, label, needs, act) => {
    const onclick = () => Promise.resolve().then(act).catch((error) => tell(say`That did not work: ${error.message}`));
    return Object.assign(html("button", { type: "button", "data-share": name, onclick }, label), { needs });
  };
  const film = filmControls(view, tell);
  const groups = [
    [say`Keep the run`, [
      page.shell && button("html", say`Replay as one HTML file`, "whole", saveReplay),
      button("json", say`Trace (JSON)`, "run", saveTrace),
      button("csv", say`Steps (CSV)`, "step", () => save("medusa-steps.csv", new Blob([stepsAsCsv(state.trace)], { type: "text/csv;charset=utf-8" }))),
      page.open && button("open", say`Open a trace …`, "", () => chooser.click()),
    ]],
    [say`Pictures of this step`, [
      button("tree-svg", say`Tree (SVG)`, "detail", () => picture("tree", "svg")), button("tree-png", say`Tree (PNG)`, "detail", () => picture("tree", "png")),
      button("mask-svg", say`Mask (SVG)`, "detail", () => picture("mask", "svg")), button("mask-png", say`Mask (PNG)`, "detail", () => picture("mask", "png")),
    ]],
    [say`Film of these steps`, [button("film", say`Film (GIF)`, "step", film.make), film.range, film.under]],
    [say`Make it again`, [
      button("python", say`Copy as Python`, "step", () => copyRun("Python", asPython)),
      button("command", say`Copy as command (bash, zsh)`, "step", () => copyRun(say`the command`, asCommand)),
      page.linkTo && button("link", say`Copy link`, "made", async () => { await copy(say`the link`, page.linkTo(state)); said.textContent += " " + linkLimits(state); }),
    ]],
  ];
  const buttons = groups.flatMap(([, each]) => each).filter((each) => each && each.needs !== undefined);
  const panel = html("div", { class: "mdv-sharepanel" },
    ...groups.map(([title, each]) => html("div", { class: "mdv-sharegroup", role: "group", "aria-label": title }, html("b", {}, title), ...each)), said, copied);
  const close = html("button", { type: "button", class: "mdv-shareclose", onclick: () => menu.close() }, say`Close`);
  const menu = html("dialog", { class: "mdv-share", "aria-label": say`Share` }, html("header", {}, html("h3", {}, say`Share`), close), panel);
  const opener = html("button", { type: "button", class: "mdv-shareopen", "aria-haspopup": "dialog", onclick: open }, say`Share`);
  const chooser = html("input", { type: "file", accept: ".json,application/json", hidden: true, onchange: () => openFile(chooser.files[0]) });
  menu.append(chooser);
  menu.addEventListener("keydown", (event) => event.stopPropagation()); // the view's own keys are off while it is open
  menu.addEventListener("click", ({ target }) => target === menu && menu.close()); // outside
  const badges = root.querySelector(".mdv-badges");
  const head = html("div", { class: "mdv-viewhead" });
  badges.replaceWith(head);
  head.append(badges, opener, menu, ...[...root.querySelectorAll(":scope > .lecture-button")].reverse());

  function open() {
    menu.showModal(); // the browser closes it on Escape and gives the focus back
    refresh();
  }

  // What can be had of the run on screen; asked when the dialog opens and while it is open.
  function refresh() {
    film.refresh();
    const { trace, live } = state;
    const tooLong = trace && !state.packed.steps; // the details of its steps are not here
    buttons.find((each) => each.dataset.share === "json").textContent = state.bytes > SAY_SIZE ? say`Trace (JSON, about ${megabytes(state.bytes)} MB)` : say`Trace (JSON)`;
    const step = trace?.steps[state.index];
    const there = { "": true, made: state.made, step, detail: step && !isBrief(step), run: trace?.output && !live, whole: trace?.output && !live && !tooLong };
    for (const each of buttons) {
      const { needs } = each;
      const why = needs === "whole" && tooLong ? say`this run is too long for one page: save its trace` : ["run", "whole"].includes(needs) ? say`once a run has come to its end` : "";
      Object.assign(each, { disabled: !there[needs], title: there[needs] ? "" : why });
    }
    if (menu.open && menu.isConnected) requestAnimationFrame(refresh);
  }

  function tell(words) {
    said.textContent = words;
    copied.hidden = true;
  }

  function save(name, blob) {
    saveFile(name, blob);
    tell(say`Saved as ${name}.`);
  }

  // A long run's trace comes from the server as it is saved; another one is written step by step, so that no
  // second copy of it is made as one text.
  async function saveTrace() {
    const { packed, key } = state;
    if (!packed.steps) {
      tell(say`Fetching about ${megabytes(state.bytes)} MB …`);
      return save("medusa-run.json", await ofServer(window.medusaChannel.trace(key)));
    }
    const [before, behind] = JSON.stringify({ ...packed, steps: [] }).split('"steps":[]');
    const steps = packed.steps.map((step, i) => (i ? "," : "") + JSON.stringify(step));
    save("medusa-run.json", new Blob([before, '"steps":[', ...steps, "]", behind], { type: "application/json" }));
  }

  async function saveReplay() {
    const shell = await page.shell();
    if (!TRACE_SLOT.test(shell)) throw new Error(say`the server sent no replay file: reload the page`);
    const data = JSON.stringify(state.packed).replace(/[<>&\u2028\u2029]/g, (sign) => "\\u" + hex(sign.charCodeAt(0), 4));
    save("medusa-run.html", new Blob([shell.replace(TRACE_SLOT, (_, before) => before + data)], { type: "text/html;charset=utf-8" }));
  }

  async function picture(what, kind) {
    const ink = readInks(root);
    const ground = getComputedStyle(root).getPropertyValue("--mdv-card").trim();
    const made = what === "tree" ? treePicture(root, ground) : maskPicture({ ...sceneOf(state), ink }, ground);
    const name = `medusa-${what}-step-${state.index + 1}.${kind}`;
    save(name, kind === "svg" ? new Blob([svgText(made)], { type: "image/svg+xml" }) : await asPng(made));
  }

  async function copy(what, text) {
    copied.hidden = false;
    said.textContent = await toClipboard(text, copied) ? say`Copied ${what}:` : say`Here is ${what}: copy it by hand.`;
  }

  // The text of the prompt box is known for a run of this page; a recorded one has token ids and what they spell.
  async function copyRun(what, write) {
    const made = recipeOf(state.trace, state.note ? null : state.made?.prompt);
    await copy(what, write(made));
    if (endedByStop(state.trace) && !("stop" in made.settings)) said.textContent += " " + say(STOP_LEFT_OUT);
  }

  async function openFile(file) {
    chooser.value = "";
    if (!file) return;
    if (file.size > MOST_TRACE_BYTES) return tell(say`${file.name} has ${megabytes(file.size)} MB, a trace may have ${megabytes(MOST_TRACE_BYTES)}: record fewer steps.`);
    tell(say`Reading ${file.name} …`);
    page.open(await file.text());
  }

  return { say: tell, close: () => menu.close() };
}
