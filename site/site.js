// A wide table scrolls by keyboard, too; the theme wraps tables a moment after the page is there.
const reachable = () => {
  for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
    wrap.tabIndex = 0;
  }
};
addEventListener("load", () => setTimeout(reachable, 100));
