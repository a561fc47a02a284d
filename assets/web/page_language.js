// Says the page's own texts, those of gradio's components, in the reader's language: a text node or attribute that is
// an English text of the tables is shown in its translation. The views say their texts themselves (language.js).

function dressPage() {
  if (LANGUAGE.dressed) return; // gradio may run the head's scripts twice
  LANGUAGE.dressed = true;
  // Not touched: the views, which translate themselves, and what a person or a model has written.
  const OWN = ".mdv-host, .race-host, .learn-host, .talk-host, .tree-edit-host, .text-line, .language-menu";
  const WRITTEN = "textarea, script, style, code, pre";
  // Texts that style sheets show, by the variables that hold them.
  const OF_STYLES = {
    "--text-charts-live": phrase("Charts of the previous run: they are drawn again when this run ends."),
    "--text-charts-former": phrase("The charts, too, are of the run above."),
    "--text-stopping": phrase("Stopping…"),
  };
  // gradio's names for the parts of a control, followed by the control's label.
  const OF_CONTROLS = { "number input for ": phrase("number input for {0}"), "range slider for ": phrase("range slider for {0}") };
  const ATTRIBUTES = ["placeholder", "aria-label", "title"];
  const shown = new WeakMap(); // translation written in place of an English text, by node and name

  function dress(node, name, now, write) {
    const before = (shown.get(node) || {})[name];
    const english = before?.said === now ? before.english : now;
    const core = (english || "").trim();
    const key = core.replace(/\s+/g, " ");
    const told = key && translated(key);
    const found = told !== key ? told : "";
    const said = found ? english.replace(core, () => found) : english;
    if (said !== now) write(said);
    if (found || before) shown.set(node, { ...shown.get(node), [name]: { english, said } });
  }

  function translated(english) {
    const [before, template] = Object.entries(OF_CONTROLS).find(([words]) => english.startsWith(words)) || [];
    if (before) return say(template, LANGUAGE.tell(english.slice(before.length)));
    return LANGUAGE.tell(english); // an entry of a menu may have parts with dots between them
  }

  const dressText = (node) => dress(node, "text", node.data, (said) => { node.data = said; });

  function dressElement(element) {
    for (const name of ATTRIBUTES) {
      if (element.hasAttribute(name)) dress(element, name, element.getAttribute(name), (said) => element.setAttribute(name, said));
    }
  }

  // The chosen entry of a menu is the value of a field, which no observer sees.
  function dressMenus() {
    for (const field of document.querySelectorAll("input[readonly][role=combobox]")) dress(field, "value", field.value, (said) => { field.value = said; });
  }

  function dressTree(root) {
    if (root.nodeType === Node.TEXT_NODE) return dressText(root);
    if (root.nodeType !== Node.ELEMENT_NODE || root.matches(OWN)) return;
    dressElement(root);
    if (root.matches(WRITTEN)) return;
    for (const child of root.childNodes) dressTree(child);
  }

  const isWithin = (node, parts) => Boolean((node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement)?.closest(parts));
  let waiting = false;

  const observer = new MutationObserver((records) => {
    for (const { type, target, addedNodes, attributeName } of records) {
      if (isWithin(target, OWN) || (type !== "attributes" && isWithin(target, WRITTEN))) continue;
      if (type === "childList") addedNodes.forEach(dressTree);
      else if (type === "characterData") dressText(target);
      else if (ATTRIBUTES.includes(attributeName)) dressElement(target);
    }
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      dressMenus();
    });
  });

  // gradio writes the browser's language into `lang`.
  function nameLanguage() {
    const { lang } = document.documentElement;
    if (lang !== LANGUAGE.code && !lang.startsWith(LANGUAGE.code + "-")) document.documentElement.lang = LANGUAGE.code;
  }

  new MutationObserver(nameLanguage).observe(document.documentElement, { attributes: true, attributeFilter: ["lang"] });

  function follow() {
    nameLanguage();
    for (const [name, text] of Object.entries(OF_STYLES)) document.documentElement.style.setProperty(name, JSON.stringify(say(text)));
    observer.disconnect();
    if (document.body) dressTree(document.body);
    dressMenus();
    // An English page is as it came, so nothing is watched in it.
    if (LANGUAGE.code !== "en") observer.observe(document.documentElement, { subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: ATTRIBUTES });
  }

  LANGUAGE.listen(follow);
  follow();
}
