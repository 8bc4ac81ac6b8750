// A wide table scrolls by keyboard, too; the theme wraps tables a moment after the page is there.
const reachable = () => {
  for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
    wrap.tabIndex = 0;
  }
  // Buttons beside code are no landmarks, and those that are ones have names of their own.
  for (const nav of document.querySelectorAll(".md-code__nav")) nav.role = "presentation";
  document.querySelectorAll(".md-nav .md-nav[aria-labelledby]").forEach((nav, n) => {
    nav.removeAttribute("aria-labelledby");
    nav.setAttribute("aria-label", `Section ${n + 1}`);
  });
};
addEventListener("load", () => setTimeout(reachable, 100));
// The theme's search is a dialog without a name.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
