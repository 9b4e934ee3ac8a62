"""Discounted reports: what a flood or a lost machine left behind is cleaned up, and the timeline keeps it."""

import pytest
from django.test import Client

from fleet.domain.reasons import Refused
from fleet.models import AvailabilitySet, Cache, Entry, Machine, ScheduledEvent
from fleet.operations.machines import decommission
from tests.caches.walking import EXAMPLE, HOST, Listeners
from tests.factories import EVENT, Fleet, acting, admin, change_set, listing, operator, the_event
from tests.sets.test_where_a_machine_belongs import instance

LINE = EXAMPLE[0][1]
pytestmark = pytest.mark.django_db

OTHER = "22222222-0000-4000-8000-000000000002"


def discount(fleet: Fleet, name: str) -> Entry:
    actor = acting(admin("dora"), why="sold")
    decommission.discount(machine_id=fleet.agents[name].machine.pk, actor=actor, now=fleet.now)
    return Entry.objects.get(kind="machine_discounted")


@pytest.mark.parametrize("revoked", [False, True])
def test_events_that_only_this_machine_listed_end_as_unknown(fleet: Fleet, revoked: bool) -> None:
    fleet.enrol_set(2)
    fleet.all_say(listing(resources=["vm2"]))
    fleet.say("vm1", listing(resources=["vm2"]), listing(OTHER, resources=["vm1"]))
    if revoked:
        decommission.revoke(machine_id=fleet.agents["vm1"].machine.pk, actor=acting(admin("bo")), now=fleet.now)
    fleet.later(700)
    fleet.say("vm2", listing(resources=["vm2"]))
    assert ScheduledEvent.objects.exclude(status="ENDED").count() == 2 - revoked
    entry = discount(fleet, "vm1")
    assert (entry.why, entry.data["events"]) == ("sold", 2 - revoked)
    event = the_event(OTHER)
    assert (event.status, event.ended_as, event.certainty) == ("ENDED", "unknown", "inferred")
    assert the_event().status == "SCHEDULED"
    fleet.later(60)
    fleet.advance()
    assert the_event(OTHER).status == "ENDED"


def test_reconciliation_computes_what_would_make_the_call_last_long(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decommission, "COMPUTED_AT_ONCE", 1)
    fleet.enrol("vm1")
    fleet.say("vm1", listing(resources=["vm1"]), listing(OTHER, resources=["vm1"]))
    fleet.later(700)
    fleet.advance()
    assert discount(fleet, "vm1").data["events"] == 2
    assert sorted([the_event().status, the_event(OTHER).status]) == ["ENDED", "SCHEDULED"]
    fleet.later(1)
    fleet.advance()
    assert {the_event().status, the_event(OTHER).status} == {"ENDED"}
    assert Entry.objects.filter(kind="machine_discounted").count() == 1


def test_reports_count_again_once_the_machine_reports(fleet: Fleet) -> None:
    fleet.enrol("vm1")
    fleet.say("vm1", listing(resources=["vm1"]))
    fleet.later(700)
    discount(fleet, "vm1")
    fleet.later(60)
    fleet.say("vm1", listing(resources=["vm1"]))
    assert (the_event().status, the_event().watched) == ("SCHEDULED", True)


def test_reports_of_a_live_or_late_machine_cannot_be_discounted(fleet: Fleet) -> None:
    fleet.enrol("vm1")
    fleet.later(200)
    with pytest.raises(Refused) as refusal:
        discount(fleet, "vm1")
    assert refusal.value.code == "machine-live"
    with pytest.raises(Refused) as refusal:
        decommission.discount(machine_id=fleet.agents["vm1"].machine.pk, actor=acting(operator()), now=fleet.now)
    assert refusal.value.code == "not-permitted"
    assert Machine.objects.get().discounted_at is None


def test_empty_sets_that_only_this_machine_named_are_deleted(fleet: Fleet, ada: Client) -> None:
    fleet.enrol("vm1")
    fleet.enrol("vm2", availability_set="shared")
    for number in range(3):
        instance(fleet, "vm1", f"flood{number}")
    for name in ("shared", "with-event", "web"):
        instance(fleet, "vm1", name)
        if name == "with-event":
            fleet.say("vm1", listing(EVENT, resources=["vm1"]))
            fleet.later(5)
            fleet.say("vm1")
    instance(fleet, "vm2", "elsewhere")
    AvailabilitySet.objects.filter(name="flood2").update(min_live=1)
    flood, actor = AvailabilitySet.objects.get(name="flood1"), acting(admin("amy"))
    change_set(set_id=flood.pk, service="shop", actor=actor, now=fleet.now)
    fleet.later(700)
    entry = discount(fleet, "vm1")
    assert sorted(entry.data["sets"]) == ["flood0"]
    names = set(AvailabilitySet.objects.values_list("name", flat=True))
    assert {"web", "shared", "with-event", "flood1", "flood2"} <= names
    kept = Entry.objects.filter(availability_set__isnull=False)
    assert kept.exclude(availability_set__in=AvailabilitySet.objects.values("pk")).exists()
    for page in (f"/machines/{entry.machine_id}/", "/audit/", "/timeline/", "/api/v1/audit/"):
        assert ada.get(page).status_code == 200, page


def test_caches_that_only_this_machine_named_are_deleted() -> None:
    fleet = Listeners()
    fleet.enrol_set(2)
    for name, host in (("vm1", "flood"), ("vm1", "shared"), ("vm2", "shared"), ("vm1", HOST)):
        fleet.cover(name, "listening", host=host)
    fleet.hear("vm1", LINE)
    fleet.later(700)
    assert discount(fleet, "vm1").data["caches"] == ["flood"]
    assert set(Cache.objects.values_list("host", flat=True)) == {"shared", HOST}
