"""No inline style or script, one heading, named tables, aligned columns: what every page keeps to."""

import re
from html.parser import HTMLParser
from typing import Any

from django.test import Client

from tests import factories
from tests.access.walks import reads
from tests.access.world import world


class Outline(HTMLParser):
    """What the rules ask of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.part = ""
        self.headings: list[bool] = []
        self.cells: list[bool] = []
        self.unaligned: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("table", "thead", "tbody", "tfoot"):
            self.part = tag
        elif tag == "tr":
            self.cells = []
        elif tag in ("th", "td"):
            self.check_cell(dict(attrs))

    def check_cell(self, attrs: dict[str, str | None]) -> None:
        """Note a cell that is aligned in another way than the heading of its column."""
        self.cells.append("num" in str(attrs.get("class")).split())
        if self.part == "thead":
            self.headings = self.cells
        elif self.part != "table" and "colspan" not in attrs and self.cells != self.headings[: len(self.cells)]:
            self.unaligned.append(f"{self.getpos()}: {attrs}")

    def count(self, tag: str) -> int:
        return sum(found == tag for found, _ in self.tags)

    @property
    def inline(self) -> list[str]:
        wrong = [tag for tag, attrs in self.tags if tag == "style" or (tag == "script" and not attrs.get("src"))]
        for tag, attrs in self.tags:
            wrong += [f"{tag} {name}" for name in attrs if name == "style" or re.match(r"on|hx-on", name)]
        return wrong

    @property
    def ids(self) -> list[str]:
        return [str(attrs["id"]) for _, attrs in self.tags if "id" in attrs]


TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def check(answer: Any, address: str) -> Outline:
    """Return the outline of a page: nothing inline, one heading, landmarks, named tables, and times for machines."""
    text = answer.content.decode()
    outline = Outline(text)
    assert outline.inline == [], address
    assert (outline.count("h1"), outline.count("main")) == (1, 1), address
    assert len(set(outline.ids)) == len(outline.ids), address
    assert '<html lang="en"' in text and 'class="skip" href="#main"' in text, address
    assert outline.count("table") == outline.count("caption"), address
    assert outline.unaligned == [], address
    assert "script-src 'self'" in answer["Content-Security-Policy"], address
    assert "unsafe" not in answer["Content-Security-Policy"], address
    for tag, attrs in outline.tags:
        assert tag != "script" or str(attrs.get("src")).startswith("/static/"), address
        assert tag != "time" or TIME.fullmatch(str(attrs.get("datetime"))), address
    return outline


def test_every_page_and_every_part_that_refreshes_itself_keeps_the_policy(admin: Client, client: Client) -> None:
    check(client.get("/accounts/login/"), "/accounts/login/")
    parts: dict[str, str] = {}
    addresses = [*reads("pages", world().values), "/sets/999999/", "/no/such/page/"]
    for address in addresses:
        answer: Any = admin.get(address)
        if not answer.streaming and b"<main" in answer.content:
            for _, attrs in check(answer, address).tags:
                if attrs.get("data-live") is not None:
                    parts[str(attrs["hx-get"])] = "" if "data-lazy" in attrs else f'id="{attrs["id"]}"'
    assert len(parts) > 12
    for address, mark in parts.items():
        part: Any = admin.get(address, headers={"HX-Request": "true"})
        assert (part.status_code, b"<html" in part.content) == (200, False), address
        assert mark in part.content.decode(), address


def test_an_unreadable_cursor_leads_to_the_beginning(fleet: factories.Fleet, operator: Client) -> None:
    for address in ("/history/", "/sets/", "/machines/", "/timeline/"):
        answer = operator.get(f"{address}?cursor=nonsense")
        assert (answer.status_code, answer["Location"]) == (302, address)


def test_the_chosen_theme_is_there_before_the_first_paint(fleet: factories.Fleet, operator: Client) -> None:
    assert "data-theme-chosen" not in operator.get("/").content.decode()
    operator.cookies["drydock_theme"] = "dark"
    assert 'data-bs-theme="dark" data-theme-chosen' in operator.get("/").content.decode()
    operator.cookies["drydock_theme"] = '"><script>'
    assert "data-theme-chosen" not in operator.get("/").content.decode()


def test_machines_are_shown_by_domain_with_shape_text_and_what_hits_them(
    fleet: factories.Fleet, operator: Client
) -> None:
    factories.announced(fleet)
    fleet.enrol("newcomer", heard=False)
    machine = fleet.agents["vm1"].machine
    body = operator.get(f"/sets/{machine.availability_set_id}/").content.decode()
    grid = body.split('<table class="grid">')[1].split("</table>")[0]
    assert grid.count('scope="col"') == 2
    assert grid.count('scope="row"') == 3
    assert grid.count("is-hit") == 2
    assert grid.count("tile-good") == 6
    assert grid.count("tile-calm") == 1
    assert "without a report so far: newcomer." in body
