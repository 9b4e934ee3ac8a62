"""Timeline filters: an index finds rare entries, and what no index finds is looked through in portions. No filter makes
a page walk through everything.
"""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import LazySettings
from django.db.models import Q, QuerySet
from django.test import Client

from fleet.audit import queries as audit_queries
from fleet.domain.people import Rights
from fleet.models import AvailabilitySet, Cache, Entry, Machine
from fleet.models.index_scan import IndexRange, IndexScanRows, IndexWalk, first_rows, last_checked_at
from fleet.models.timeline import ACTING
from fleet.projections import places, visibility
from fleet.projections.filters import EntryFilter
from fleet.projections.timeline import entries
from tests import factories
from tests.api.conftest import caller, problem
from tests.dashboard.conftest import logged_in, text_of
from tests.plans import is_answered_by, queries

NOW = datetime(2026, 7, 1, tzinfo=UTC)
KINDS = ("event_seen", "event_sighted", "machine_enrolled", "approval_granted", "approvals_stopped")


@pytest.fixture
def written(db: None) -> None:
    """Two hundred entries of four sets, eight machines and two caches, some at the same moment."""
    dice = Random(7)
    place: dict[str, Any] = {"created_at": NOW, "subscription": "Ab", "resource_group": "rg"}
    sets = [
        AvailabilitySet.objects.create(
            kind="availability_set", name=f"set-{n}", key=f"set-{n}", service=("shop", "pay")[n % 2], **place
        )
        for n in range(4)
    ]
    machines = [
        Machine.objects.create(vm_id=f"{n:08}", resource_name=f"vm{n}", availability_set=sets[n % 4], enrolled_at=NOW)
        for n in range(8)
    ]
    caches = [Cache.objects.create(host=f"c{n}", service=("shop", "")[n], created_at=NOW) for n in range(2)]
    for _ in range(200):
        machine = dice.choice([None, *machines])
        home = dice.choice([None, machine.availability_set if machine else dice.choice(sets)])
        via = dice.choice(["agent", "page", "rule"])
        Entry.objects.create(
            at=NOW - timedelta(seconds=dice.randrange(40)), kind=dice.choice(KINDS), availability_set=home,
            machine=machine, cache=dice.choice([None, None, *caches]), via=via, actor=dice.choice(["ada", "otto"]),
            text="",
        )  # fmt: skip


def walked(rows: QuerySet[Entry], listing: Any = audit_queries.listing) -> tuple[list[int], list[int]]:
    """The ids of all pages to the end, and those of the pages before that one, on the way back."""
    page = listing(entries=rows, size=6)
    there = [row.id for row in page.results]
    while page.next:
        page = listing(entries=rows, cursor=page.next, size=6)
        there += [row.id for row in page.results]
    last, back = page.results, list[int]()
    while page.previous:
        page = listing(entries=rows, cursor=page.previous, size=6)
        back = [*(row.id for row in page.results), *back]
    return there, [*back, *(row.id for row in last)]


def test_pages_by_keys_show_what_a_filter_leaves_in_its_order(written: None) -> None:
    for filters in (
        {},
        {"kind": ["approval_granted"]},
        {"kind": ["approval_granted", "machine_enrolled", "stop_lifted"]},
        {"set_name": ["set-1", "SET-3"]},
        {"set_name": ["set-1", "set-2"], "kind": ["event_seen", "event_sighted"]},
        {"machine_name": ["vm1", "VM2"], "since": (NOW - timedelta(seconds=20)).isoformat()},
        {"service": ["SHOP"]},
        {"service": ["shop"], "kind": ["event_seen"]},
        {"subscription": ["ab"], "until": NOW.isoformat()},
        {"resource_group": ["nowhere"]},
        {"event": "ABC"},
    ):
        rows = EntryFilter(filters).qs
        plain = list(rows.order_by("-at", "-pk").values_list("pk", flat=True))
        assert walked(rows, entries.fleet) == (plain, plain), filters


@pytest.mark.parametrize("scopes", [[("name", "set-1")], [("service", "shop")], [("service", "nothing")]])
def test_a_reader_of_few_sets_is_shown_the_same_by_the_keys_of_those(
    written: None, settings: LazySettings, scopes: list[tuple[str, str]]
) -> None:
    settings.SCOPED_READ_ACCESS = True
    with visibility.reading_as(None):
        visibility.set_reader(Rights(frozenset(["operator"]), tuple(scopes)), name="ada")
        plain = list(visibility.visible(Entry).order_by("-at", "-pk").values_list("pk", flat=True))
        assert 0 < len(plain) < 200
        assert walked(EntryFilter({}).qs, entries.fleet) == (plain, plain)
        assert any("LATERAL" in sql for sql in queries(entries.fleet))


def test_each_key_is_looked_up_in_its_index_in_the_order_of_the_list(db: None) -> None:
    rows = IndexScanRows(Entry).filter(at__lt=NOW)
    for way, index in (
        (IndexRange("kind", ["event_seen", "stop_lifted"]), "entry_by_kind"),
        (IndexRange("availability_set", [1, 2]), "entry_by_set"),
        (IndexRange("machine", [1, 2]), "entry_by_machine"),
        (IndexRange("cache", [1, 2]), "entry_by_cache"),
    ):
        assert is_answered_by(first_rows(rows.near(way), ("-at", "-pk"), 50), index), way
    assert is_answered_by(entries.without_sightings(Entry.objects.all()).order_by("-at", "-pk")[:50], "entry_told")


HOSTILE = ("nothing is like this", "%", "_", "%_%", "\\", "'", "x", "é", "person", "ä" * 200)


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PORTION", 11)
    monkeypatch.setattr(places, "HARD", 9)


@pytest.fixture
def viewer(db: None) -> Client:
    return logged_in(factories.viewer())


@pytest.fixture
def acts(db: None, small_portions: None) -> None:
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
