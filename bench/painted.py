"""A browser that has the queue open: when each event was painted first, and how often the queue was painted."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from typing import Any

from playwright.sync_api import Page, sync_playwright

# Times in milliseconds since 1970, by the key of a row.
WATCH = """() => {
  window.painted = {};
  window.paints = 0;
  const look = () => {
    for (const row of document.querySelectorAll("[data-key]")) window.painted[row.dataset.key] ??= Date.now();
  };
  look();
  new MutationObserver((changes) => {
    if (!changes.some((change) => [...change.addedNodes].some((node) => node.querySelector?.("[data-key]")))) return;
    window.paints += 1;
    look();
  }).observe(document.body, { childList: true, subtree: true });
}"""


class Painter:
    """The page of the queue, signed in as this person; nothing where it is not wanted or there is no chromium."""

    def __init__(self, url: str, username: str, password: str, *, wanted: bool) -> None:
        self.url, self.username, self.password = url, username, password
        self.chromium = shutil.which("chromium") if wanted else None
        self.stack = ExitStack()
        self.page: Page | None = None

    def __enter__(self) -> Painter:
        if self.chromium is None:
            return self
        playwright = self.stack.enter_context(sync_playwright())
        # Debian's chromium refuses its sandbox to root.
        arguments = ["--disable-background-networking", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        browser = playwright.chromium.launch(executable_path=self.chromium, args=arguments)
        self.stack.callback(browser.close)
        self.page = browser.new_page(reduced_motion="reduce")
        self.page.goto(self.url)
        self.page.fill("input[name=login]", self.username)
        self.page.fill("input[name=password]", self.password)
        self.page.click("button[type=submit]")
        self.page.wait_for_selector("#live[data-state=live]", timeout=30_000)
        self.page.evaluate(WATCH)
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def times(self) -> dict[str, float]:
        """Return when each row first appeared, in seconds since 1970, by its key."""
        found: dict[str, Any] = self.page.evaluate("window.painted") if self.page else {}
        return {key: at / 1000 for key, at in found.items()}

    def paints(self) -> int:
        return int(self.page.evaluate("window.paints")) if self.page else 0
