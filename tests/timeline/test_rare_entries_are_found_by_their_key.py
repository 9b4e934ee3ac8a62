"""Timeline filters: an index finds rare entries under every filter, without a scan of all entries."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from django.conf import LazySettings

from fleet.audit import queries as audit_queries
from fleet.domain.people import Rights
from fleet.models import AvailabilitySet, Cache, Entry, Machine
from fleet.models.index_scan import IndexRange, IndexScanRows, first_rows
from fleet.projections import visibility
from fleet.projections.filters import EntryFilter
from fleet.projections.timeline import entries
from tests.plans import is_answered_by, queries

NOW = datetime(2026, 7, 1, tzinfo=UTC)
KINDS = ("event_seen", "event_sighted", "machine_enrolled", "approval_granted", "approvals_stopped")


@pytest.fixture
def written(db: None) -> None:
    """Two hundred entries of four sets, eight machines and two caches, some at the same moment."""
    dice = Random(7)
    sets = [
        AvailabilitySet.objects.create(
            kind="availability_set",
            name=f"set-{n}",
            key=f"set-{n}",
            created_at=NOW,
            subscription="Ab",
            resource_group="rg",
            service=("shop", "pay")[n % 2],
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


def walked(filters: dict[str, object], *, size: int) -> list[int]:
    """Page by page to the end."""
    found, cursor = [], None
    while True:
        page = entries.fleet(entries=EntryFilter(filters).qs, cursor=cursor, size=size)
        found += [row.id for row in page.results]
        cursor = page.next
        if cursor is None:
            return found


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
        plain = list(EntryFilter(filters).qs.order_by("-at", "-pk").values_list("pk", flat=True))
        assert walked(filters, size=7) == plain


@pytest.mark.parametrize("scopes", [[("name", "set-1")], [("service", "shop")], [("service", "nothing")]])
def test_a_reader_of_few_sets_is_shown_the_same_by_the_keys_of_those(
    written: None, settings: LazySettings, scopes: list[tuple[str, str]]
) -> None:
    settings.SCOPED_READ_ACCESS = True
    with visibility.reading_as(None):
        visibility.set_reader(Rights(frozenset(["operator"]), tuple(scopes)), name="ada")
        plain = list(visibility.visible(Entry).order_by("-at", "-pk").values_list("pk", flat=True))
        assert plain
        assert len(plain) < 200
        assert walked({}, size=7) == plain
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
    assert is_answered_by(audit_queries.acts().filter(actor="ada").order_by("-at", "-pk")[:50], "entry_acts_by_actor")
