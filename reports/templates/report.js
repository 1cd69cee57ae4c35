"use strict";
// Sorting a table: a button in each header; numbers by their first number, "none" and text by words.
const amount = (text) => {
  const found = text.replace(/,/g, "").match(/-?\d+(\.\d+)?(e-?\d+)?/);
  return found ? Number(found[0]) : NaN;
};
for (const table of document.querySelectorAll("table.sortable")) {
  const rows = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const order = [...rows.rows].sort((a, b) => {
        const [x, y] = [a, b].map((row) => row.cells[column].textContent.trim());
        const gap = amount(x) - amount(y);
        return (Number.isNaN(gap) ? x.localeCompare(y, "en") : gap) * (down ? -1 : 1);
      });
      rows.append(...order);
    });
  });
}
// A finding that is linked to may lie in what is folded away.
const unfold = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", unfold);
if (location.hash) unfold();
// The overview closes when something in it was chosen.
const overview = document.querySelector(".overview");
overview.addEventListener("click", (event) => {
  if (event.target.closest("a")) overview.open = false;
});
// An image enlarged; the arrow keys go on to its neighbours.
const dialog = document.getElementById("enlarged");
const images = [...document.querySelectorAll("button.enlarge img")];
let shown = 0;
const show = (index) => {
  shown = (index + images.length) % images.length;
  document.getElementById("enlarged-image").src = images[shown].src;
  document.getElementById("enlarged-image").alt = images[shown].alt;
  document.getElementById("enlarged-words").textContent = images[shown].alt;
};
images.forEach((image, index) => {
  image.parentElement.addEventListener("click", () => {
    show(index);
    dialog.showModal();
  });
});
dialog.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step) show(shown + step);
});
