"""What no index finds is looked through in portions: no filter, however rare, makes a page walk through everything."""

from datetime import timedelta
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from django.db.models import Q, QuerySet
from django.test import Client

from fleet.audit import queries as audit_queries
from fleet.models import Entry
from fleet.models.index_scan import IndexRange, IndexScanRows, IndexWalk, last_checked_at
from fleet.models.timeline import ACTING
from fleet.projections import places
from fleet.projections.filters import EntryFilter
from fleet.projections.timeline import entries
from tests import factories
from tests.api.conftest import caller, problem
from tests.dashboard.conftest import logged_in, text_of
from tests.plans import is_answered_by, queries
from tests.timeline.test_rare_entries_are_found_by_their_key import NOW

HOSTILE = ("nothing is like this", "%", "_", "%_%", "\\", "'", "x", "é", "person", "ä" * 200)


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PORTION", 11)
    monkeypatch.setattr(places, "HARD", 9)


@pytest.fixture
def viewer(db: None) -> Client:
    return logged_in(factories.viewer())


@pytest.fixture
def acts(db: None) -> None:
    """About fifty acts and as many other entries, several at one moment."""
    dice = Random(11)
    Entry.objects.bulk_create(
        Entry(
            at=NOW - timedelta(seconds=dice.randrange(60)),
            kind=dice.choice(["approval_granted", "event_claimed", "event_seen"]),
            via=dice.choice(["page", "api", "rule", "command", "agent", "agent", "agent"]),
            actor=dice.choice(["ada", "otto", "the command line"]),
            text="",
            why=dice.choice(["", "100 % sure", "x_y", "for the move"]),
        )
        for _ in range(100)
    )


def walked(rows: QuerySet[Entry]) -> tuple[list[int], list[int]]:
    """The ids of all pages to the end, and those of the pages before that one, on the way back."""
    page = audit_queries.listing(entries=rows, size=6)
    there = [row.id for row in page.results]
    while page.next:
        page = audit_queries.listing(entries=rows, cursor=page.next, size=6)
        there += [row.id for row in page.results]
    last, back = page.results, list[int]()
    while page.previous:
        page = audit_queries.listing(entries=rows, cursor=page.previous, size=6)
        back = [*(row.id for row in page.results), *back]
    return there, [*back, *(row.id for row in last)]


FILTERS: tuple[dict[str, Any], ...] = (
    {"q": "for the"},
    {"q": "100 %"},
    {"q": "no entry has this"},
    {"q": "x_y", "via": ["api"]},
    {"via": ["slack"]},
    {"via": ["api", "rule"], "kind": ["event_claimed"]},
    {"kind": ["event_seen"]},
    {"actor_kind": "person"},
    {"actor_kind": "command", "person": "the command line"},
    {"person": "ada", "actor_kind": "rule"},
    {"q": "sure", "since": (NOW - timedelta(seconds=40)).isoformat()},
    {"q": "sure", "until": (NOW - timedelta(seconds=20)).isoformat(), "kind": ["approval_granted", "event_seen"]},
)


def test_all_pages_together_are_what_the_filter_leaves_there_and_back(acts: None) -> None:
    for filters in FILTERS:
        rows = audit_queries.AuditFilter(filters).qs
        plain = list(rows.order_by("-at", "-pk").values_list("pk", flat=True))
        assert walked(rows) == (plain, plain), filters


def test_a_page_looks_through_one_portion_and_says_how_far_it_came(acts: None) -> None:
    rows = audit_queries.AuditFilter({"q": "no entry has this"}).qs
    page = audit_queries.listing(entries=rows)
    assert page.results == ()
    assert page.looked_to == audit_queries.acts().order_by("-at", "-pk")[8].at
    # Only what lies up to there was asked for.
    portion, found = queries(audit_queries.listing, entries=rows)
    assert "OFFSET 8" in portion and '"at" >=' in found


def test_several_keys_share_a_portion(acts: None) -> None:
    rows: IndexScanRows[Entry] = (
        IndexScanRows(Entry).near(IndexRange("via", ["page", "rule", "slack"])).looked_through(IndexWalk(30))
    )
    found = last_checked_at(rows, ("-at", "-pk"), Q())
    tenth = [
        Entry.objects.filter(via=via).order_by("-at", "-pk").values_list("at", "pk")[9] for via in ("page", "rule")
    ]
    assert found == max(tenth)
    oldest = [Entry.objects.filter(via=via).order_by("at", "pk").values_list("at", "pk")[9] for via in ("page", "rule")]
    assert last_checked_at(rows, ("at", "pk"), Q()) == min(oldest)
    # One that has fewer than its share is at its end.
    alone: IndexScanRows[Entry] = IndexScanRows(Entry).near(IndexRange("via", ["slack"])).looked_through(IndexWalk(30))
    assert last_checked_at(alone, ("-at", "-pk"), Q()) is None


def test_what_an_index_finds_is_asked_for_at_once_and_combinations_by_portions(acts: None) -> None:
    whole = ({"via": ["rule"]}, {"person": "ada"}, {"actor_kind": "rule"}, {"event": "x"}, {"since": NOW.isoformat()})
    for filters in ({}, *whole):
        assert audit_queries.AuditFilter(filters).qs.walk is None, filters
    assert EntryFilter({"kind": ["event_seen"]}).qs.walk is None
    both = EntryFilter({"kind": ["event_seen"], "event": "x"}).qs
    assert both.walk is not None
    assert entries.fleet(entries=both).results == ()


def test_no_text_is_more_than_a_text(acts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # Some portions, not dozens.
    monkeypatch.setattr(places, "HARD", 30)
    reader = caller(factories.viewer())
    words = {row.pk: f"{row.why}\n{row.kind}\n{row.actor}".lower() for row in Entry.objects.filter(via__in=ACTING)}
    for text in HOSTILE:
        found, address = set[int](), f"audit/?q={quote(text)}"
        while address:
            body = reader.get(address).json()
            found |= {row["id"] for row in body["results"]}
            address = (body["next"] or "").partition("/api/v1/")[2]
        plain = {pk for pk, of_row in words.items() if text.lower() in of_row}
        # Names of kinds as people call them are found as well.
        assert plain <= found if text in ("x", "person") else plain == found, text


def test_overlong_search_text_is_refused(acts: None) -> None:
    reader = factories.viewer()
    problem(caller(reader).get(f"audit/?q={'x' * 10_000}"), 422, "validation")
    page = logged_in(reader).get(f"/audit/?q={'x' * 10_000}")
    assert page.status_code == 200
    assert "could not be read and were ignored: Search" in text_of(page)


def test_page_states_how_far_it_searched_and_continues(acts: None, viewer: Client) -> None:
    answer = viewer.get("/audit/?q=no+entry+has+this")
    said = text_of(answer)
    assert "There are no matches back to" in said
    assert "Search further back" in said
    assert "No action matches" not in said
    filled = text_of(viewer.get("/audit/?q=for+the"))
    assert "These are all matches back to" in filled


def test_files_hold_everything_and_pause_where_nothing_is_found(acts: None) -> None:
    rows = audit_queries.AuditFilter({"q": "for the"}).qs
    whole = list(rows.order_by("-at", "-pk").values_list("pk", flat=True))
    pieces = list(audit_queries.json_lines(rows))
    assert sum(piece.count("\n") for piece in pieces) == len(whole)
    nothing = list(audit_queries.csv_lines(audit_queries.AuditFilter({"q": "no entry has this"}).qs))
    # The head, and a pause after each portion.
    assert len([piece for piece in nothing if not piece]) > 4


def test_acts_by_their_way_are_found_by_an_index(db: None) -> None:
    asked = audit_queries.acts().filter(via="slack").order_by("-at", "-pk")[:50]
    assert is_answered_by(asked, "entry_acts_by_via")
