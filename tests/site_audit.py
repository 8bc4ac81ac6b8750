"""Look over a built site: links, axe-core in both themes, and the search, from the disk.

``make site-audit`` runs it. Everything that is wrong is printed, and ends it with 1.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.conftest import a_browser
from tests.test_report_axe import axe_core, violations

THEMES = ("light", "dark")
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href")}


class Page(HTMLParser):
    """The ids of a page, where its links lead, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            if (tag, name) in LOADED:
                self.loaded.append(value)
            elif name in ("href", "src"):
                self.links.append(value)


def dead_links(site: Path) -> list[str]:
    """Links to a file or a place that is not there, and what would come over a network."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    wrong = []
    for path, page in pages.items():
        if path.name == "404.html":  # lies at no place of its own
            continue
        for link in [*page.loaded, *page.links]:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https"):
                if link in page.loaded:
                    wrong.append(f"{path.relative_to(site)} loads {link}")
                continue
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(target)
            if not target.exists() or (
                parts.fragment and known and unquote(parts.fragment) not in known.ids
            ):
                wrong.append(f"{path.relative_to(site)} links to {link}")
    return wrong


def unreadable(browser, site: Path) -> list[str]:
    """What axe-core finds on each page."""
    axe = axe_core()
    return [
        f"{path.relative_to(site)} ({theme}): {found}"
        for path in sorted(site.rglob("*.html"))
        if path.name != "404.html"
        for theme in THEMES
        for found in violations(browser, axe, path.as_uri(), width=1280, theme=theme)
    ]


def unfound(browser, site: Path, word: str) -> list[str]:
    """Whether the search finds a word, with no server."""
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    page.click("input.md-search__input")
    page.keyboard.type(word)
    page.wait_for_timeout(3000)
    n_found = page.locator(".md-search-result__item").count()
    page.close()
    return [] if n_found else [f"the search does not find {word!r}"]


def main() -> int:
    """Print what is wrong with the site at a path."""
    site = Path(sys.argv[1]).resolve()
    wrong = dead_links(site)
    with a_browser() as browser:
        wrong += unfound(browser, site, "threshold")
        wrong += unreadable(browser, site)
    print(*wrong, f"{len(list(site.rglob('*.html')))} pages, {len(wrong)} faults", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
