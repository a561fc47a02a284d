// The menu of languages in the page's header: the browser's own, or one of those that there are.

const languageMenu = html("select", { class: "language-menu", "aria-label": "Language · 语言" });

function drawLanguageMenu() {
  const own = LANGUAGE.offered.find(([tag]) => tag === LANGUAGE.code)[1];
  const entries = [["", say("{0} (auto)", own)], ...LANGUAGE.offered]; // the value first: a phone shows its beginning
  languageMenu.replaceChildren(...entries.map(([tag, name]) => html("option", { value: tag, lang: tag || null, selected: tag === (LANGUAGE.chosen ?? "") }, name)));
}

languageMenu.addEventListener("change", () => {
  LANGUAGE.choose(languageMenu.value || null);
  drawLanguageMenu();
});
LANGUAGE.listen(drawLanguageMenu);
drawLanguageMenu();
element.querySelector(".language-host").replaceChildren(languageMenu);
