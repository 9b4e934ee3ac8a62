"""No inline style or script, one heading, named tables: what every page keeps to."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client

from tests import factories


class Outline(HTMLParser):
    """What the rules ask of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables_without_caption = 0
        self.headless: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

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


@pytest.fixture
def pages(fleet: factories.Fleet) -> list[str]:
    """The addresses of all pages, over a fleet in which something of each kind is there."""
    ended = factories.freeze_completed(fleet)
    fleet.enrol("stray", availability_set="")
    fleet.enrol("late-comer", heard=False)
    factories.announced(fleet, event_id="0A1B2C3D-0000-4000-8000-00000000000A")
    machine = fleet.agents["vm1"].machine
    return [
        "/",
        "/sets/",
        f"/sets/{machine.availability_set_id}/",
        "/machines/",
        f"/machines/{machine.pk}/",
        "/history/",
        f"/events/{ended.event_id}/",
        f"/events/{ended.event_id}/documents/",
        "/events/0A1B2C3D-0000-4000-8000-00000000000A/",
        "/timeline/",
        "/blind-spots/",
        "/policy/",
        "/sets/999999/",
        "/no/such/page/",
    ]


def test_no_page_has_anything_inline_and_each_has_one_heading_and_its_landmarks(
    pages: list[str], operator: Client, client: Client
) -> None:
    answers: list[tuple[str, Any]] = [(address, operator.get(address)) for address in pages]
    answers.append(("/accounts/login/", client.get("/accounts/login/")))
    for address, answer in answers:
        text = answer.content.decode()
        outline = Outline(text)
        assert outline.inline == [], address
        assert outline.count("h1") == 1, address
        assert outline.count("main") == 1, address
        assert len(set(outline.ids)) == len(outline.ids), address
        assert '<html lang="en"' in text
        assert 'class="skip" href="#main"' in text
        assert outline.count("table") == outline.count("caption"), address
        assert "script-src 'self'" in answer["Content-Security-Policy"]
        assert "unsafe" not in answer["Content-Security-Policy"]
        scripts = [str(attrs.get("src")) for tag, attrs in outline.tags if tag == "script"]
        assert all(source.startswith("/static/") for source in scripts)


def test_every_time_can_be_read_by_machines(pages: list[str], operator: Client) -> None:
    for address in pages[:10]:
        outline = Outline(operator.get(address).content.decode())
        times = [attrs.get("datetime") for tag, attrs in outline.tags if tag == "time"]
        assert times, address
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(time)) for time in times), address


def test_every_part_that_refreshes_itself_can_be_asked_for(pages: list[str], operator: Client) -> None:
    asked = set()
    for address in pages[:10]:
        for _, attrs in Outline(operator.get(address).content.decode()).tags:
            if attrs.get("data-live") is None:
                continue
            target = str(attrs["hx-get"])
            answer = operator.get(target, headers={"HX-Request": "true"})
            assert answer.status_code == 200, target
            assert "<html" not in answer.content.decode(), target
            if "data-lazy" not in attrs:
                assert f'id="{attrs["id"]}"' in answer.content.decode(), target
            asked.add(target)
    assert len(asked) > 12


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
