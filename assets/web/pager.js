// The way between the cards of the view on a phone, where they lie side by side: one button per card.

function makePager(grid, cards) {
  const buttons = new Map(cards.map(([name, card]) =>
    [card, html("button", { type: "button", onclick: () => grid.scrollTo({ left: card.offsetLeft - grid.offsetLeft, behavior: "smooth" }) }, name)]));
  const row = html("nav", { class: "mdv-pager", "aria-label": say`Cards of the view` }, ...buttons.values());
  const sight = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const button = buttons.get(target);
      button.setAttribute("aria-current", String(isIntersecting));
      if (isIntersecting) row.scrollTo({ left: button.offsetLeft - row.offsetLeft - 60, behavior: "smooth" });
    }
  }, { root: grid, rootMargin: "0px -40% 0px -40%" }); // the card in the middle
  for (const card of buttons.keys()) sight.observe(card);
  return row;
}
