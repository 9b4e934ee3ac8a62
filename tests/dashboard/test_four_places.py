"""Navigation: Now, Fleet, History and Policy hold every page; the administration menu is separate."""

import re
from typing import Any

import pytest
from django.test import Client

from fleet.dashboard.places import ADMIN, PLACES
from fleet.urls import PAGES
from tests import factories

# The first words of a user's own pages, of parts of every page, and of sign-in pages.
WITHOUT_A_PLACE = re.compile(
    "(you|tokens?|views?|calendar|browser|account|factor|sessions?|step|login|logout|mfa|sign|manifest|agent|pulse|find)"
    "([-_].*)?"
)


def current(body: str, nav: str) -> list[str]:
    """What a navigation marks as where the reader is."""
    part = re.split(f'<nav [^>]*aria-label="{nav}"', body)[1].split("</nav>")[0]
    links = re.findall(r"<a [^>]*aria-current[^>]*>(.*?)</a>", part, re.DOTALL)
    return [re.sub(r"<svg.*?</svg>|<[^>]+>|\s+", " ", link).strip().split("  ")[0] for link in links]


def test_every_page_has_one_place_or_is_ones_own() -> None:
    found = {
        str(pattern.name): [
            tab.address for area in (*PLACES, ADMIN) for tab in area.tabs if tab.holds(str(pattern.name))
        ]
        for pattern in PAGES
        if pattern.name
    }
    assert {name: tabs for name, tabs in found.items() if len(tabs) != (not WITHOUT_A_PLACE.fullmatch(name))} == {}


def test_page_marks_its_place_and_tab(operator: Client) -> None:
    for path, place, tab in (
        ("/", "Now", "Queue"),
        ("/drills/", "Now", "Drills"),
        ("/machines/", "Fleet", "Machines"),
        ("/blind-spots/", "Fleet", "Blind spots"),
        ("/history/", "History", "Events"),
        ("/audit/", "History", "Audit"),
        ("/policy/", "Policy", "Rules and windows"),
        ("/stop/", "Policy", "Stop all approvals"),
    ):
        body = operator.get(path).content.decode()
        assert [one.split()[0] for one in current(body, "Areas")] == [place]
        assert current(body, place) == [tab]


def test_detail_page_marks_the_tab_of_its_list(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet)
    for path, tab in (
        (f"/sets/{event.availability_set_id}/", "Sets"),
        (f"/machines/{fleet.agents['vm1'].machine.pk}/", "Machines"),
    ):
        body = operator.get(path).content.decode()
        assert current(body, "Fleet") == [tab]
        assert 'aria-current="page"' not in body


def test_open_event_marks_the_queue_and_ended_event_marks_events(fleet: factories.Fleet, operator: Client) -> None:
    address = f"/events/{factories.announced(fleet).event_id}/"
    body = operator.get(address).content.decode()
    assert current(body, "Now") == ["Queue"]
    assert 'aria-current="page"' not in body
    fleet.later(60)
    fleet.all_say()
    body = operator.get(address).content.decode()
    assert current(body, "History") == ["Events"]
    assert re.search(r'Where you are"><a\s+href="/history/">Events</a>', body)


@pytest.mark.parametrize(("old", "new"), [("/events/", "/history/"), ("/rules/", "/policy/")])
def test_an_old_address_leads_on_with_its_filters(operator: Client, old: str, new: str) -> None:
    assert operator.get(f"{old}?status=ENDED&q=a%26b").headers["Location"] == f"{new}?status=ENDED&q=a%26b"
    assert operator.get(old, follow=True).status_code == 200


def test_admin_holds_what_only_admins_open_for_admins(admin: Client, operator: Client) -> None:
    body = admin.get("/people/").content.decode()
    assert current(body, "Admin") == ["Users"]
    assert 'href="/join-tokens/"' in body
    seen = operator.get("/admissions/").content.decode()
    assert current(seen, "Admin") == ["Machines to admit"]
    assert 'href="/people/"' not in seen
    assert 'href="/join-tokens/"' not in seen


@pytest.mark.parametrize("path", ["/nowhere/", "/events/00000000-0000-0000-0000-000000000000/"])
def test_what_is_not_there_still_leads_to_the_four_places(operator: Client, path: str) -> None:
    answer: Any = operator.get(path)
    assert answer.status_code == 404
    for area in PLACES:
        assert area.label in answer.content.decode()


@pytest.mark.django_db
def test_places_are_hidden_before_sign_in(client: Client) -> None:
    assert 'aria-label="Areas"' not in client.get("/accounts/login/").content.decode()
