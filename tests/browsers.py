"""A real browser for tests of pages: it is skipped where there is none, and whatever a page complains of is kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "</script><img src=http://example.org/x.png onerror=alert(1)>"

# the contrast of all visible elements of a selector with what is behind them
CONTRAST = """selector => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const over = (top, under) => { const a = top[3] ?? 1; return [0, 1, 2].map(i => a * top[i] + (1 - a) * under[i]); };
  const background = element => {
    const own = parse(getComputedStyle(element).backgroundColor), parent = element.parentElement;
    return (own[3] ?? 1) === 1 || !parent ? own : over(own, background(parent));
  };
  const light = color => {
    const [r, g, b] = color.map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  return [...document.querySelectorAll(selector)].filter(element => element.checkVisibility()).map(element => {
    const under = background(element), text = light(over(parse(getComputedStyle(element).color), under));
    const page = light(under);
    return (Math.max(text, page) + .05) / (Math.min(text, page) + .05);
  });
}"""


@contextmanager
def started() -> Iterator[Any]:
    """A browser, or a skip."""
    if CHROMIUM is None:
        pytest.skip("no browser here: install Debian's chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install playwright")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Visits:
    """Pages that a test opens, and what they complained of and asked for."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._contexts: list[Any] = []
        self._complaints: list[str] = []
        self._requests: list[str] = []

    def open(self, address: str, width: int = 1280, **options: Any) -> Any:
        """A page at this address, in a context of its own."""
        context = self._browser.new_context(viewport={"width": width, "height": 900}, **options)
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: self._complaints.append(message.text))
        page.on("pageerror", lambda error: self._complaints.append(str(error)))
        page.on("dialog", lambda dialog: self._complaints.append(dialog.message))
        page.on("request", lambda request: self._requests.append(request.url))
        page.goto(address)
        return page

    def end(self) -> None:
        """Close all pages. None may have complained of anything, or asked a network."""
        for context in self._contexts:
            context.close()
        assert self._complaints == []
        assert [url for url in self._requests if not url.startswith(("file:", "data:"))] == []

    def assert_each_is_one_file(self) -> None:
        """No page asked for another file."""
        assert len([url for url in self._requests if url.startswith("file:")]) == len(self._contexts)


def unfold(page: Any) -> None:
    """Open what is folded, such as the long tables."""
    page.evaluate("document.querySelectorAll('details').forEach(box => { box.open = true; })")
