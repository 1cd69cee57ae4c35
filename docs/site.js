// What the theme leaves out for those who use a keyboard or a screen reader.
const mend = () => {
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
  // every landmark has a name of its own
  document.querySelectorAll("nav.md-code__nav, .md-nav .md-nav").forEach((nav, i) => {
    nav.removeAttribute("aria-labelledby");
    const title = nav.querySelector(".md-nav__title")?.textContent.trim() ?? "Code";
    nav.setAttribute("aria-label", `${title}, part ${i + 1}`);
  });
  document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach((box) => { box.tabIndex = 0; });
};
document.addEventListener("DOMContentLoaded", () => {
  mend();
  new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
});
