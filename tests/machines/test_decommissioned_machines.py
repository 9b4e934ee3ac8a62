"""Decommissioned machines: they leave lists and counts, their history stays, and no other machine can cause it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from drydock_agent import wire
from pytest_django import Settings

from fleet.domain.machines.inventory import read_inventory
from fleet.domain.reasons import Refused
from fleet.models import Admission, AvailabilitySet, Cache, Entry, Machine, ScheduledEvent
from fleet.operations.machines import admissions, decommission, enrolment
from fleet.operations.machines.inventory import import_inventory
from fleet.operations.sets import coverage
from fleet.projections import blind_spots, counts, machines, sets
from fleet.projections.events.detail import event_detail
from tests.api.conftest import caller
from tests.approvals.asking import refused
from tests.caches.walking import EXAMPLE, HOST, Listeners
from tests.dashboard.conftest import logged_in
from tests.factories import EVENT, Fleet, acting, admin, change_set, listing, operator, the_event
from tests.machines.newcomers import request_of
from tests.machines.test_inventories import IDS, sample
from tests.sets.test_where_a_machine_belongs import instance

DAY = 86400
pytestmark = pytest.mark.django_db


def pk_of(fleet: Fleet, name: str) -> int:
    return fleet.agents[name].machine.pk


def remove(fleet: Fleet, *names: str) -> dict[int, Refused | None]:
    ids = [pk_of(fleet, name) for name in names]
    return decommission.decommission_each(machine_ids=ids, actor=acting(admin("dora"), why="scaled in"), now=fleet.now)


def listed(fleet: Fleet) -> set[str]:
    return {row.resource_name for row in machines.listing(now=fleet.now).results}


def code(found: dict[int, Refused | None]) -> list[str]:
    return [error.code if error is not None else "" for error in found.values()]


def test_the_machine_leaves_lists_counts_and_blind_spots_and_its_history_stays(fleet: Fleet, ada: Client) -> None:
    fleet.enrol_set(3)
    fleet.all_say(listing(resources=["vm1"]))
    fleet.later(5)
    fleet.all_say()
    fleet.later(700)
    fleet.heard("vm2", "vm3")
    coverage.renew_all(now=fleet.now)
    assert any("vm1" in row.names for row in blind_spots.page(now=fleet.now).results)
    assert code(remove(fleet, "vm1")) == [""]
    for renewed in (False, True):
        if renewed:
            coverage.renew_all(now=fleet.now)
        assert listed(fleet) == {"vm2", "vm3"}
        assert counts.counts(now=fleet.now)[0].all == 2
        assert not any("vm1" in row.names for row in blind_spots.page(now=fleet.now).results)
    row = sets.detail(set_id=fleet.agents["vm1"].machine.availability_set_id, now=fleet.now)
    assert row is not None and (row.set.presence.all, len(row.set.machines)) == (2, 2)
    detail = event_detail(event_id=EVENT, now=fleet.now)
    assert detail is not None
    assert {one.machine.resource_name for one in detail.sightings} == {"vm1", "vm2", "vm3"}
    assert detail.hit[0].machine is not None and detail.hit[0].machine.id == pk_of(fleet, "vm1")
    entry = Entry.objects.get(kind="machine_decommissioned")
    assert (entry.why, entry.after, entry.machine_id) == ("scaled in", {"credential": "revoked"}, pk_of(fleet, "vm1"))
    pk = entry.machine_id
    for page in (f"/machines/{pk}/", f"/events/{EVENT}/", f"/audit/?machine={pk}", f"/timeline/?machine={pk}"):
        assert "vm1" in ada.get(page).content.decode(), page
    assert 'data-code="decommissioned"' in ada.get(f"/machines/{pk}/").content.decode()
    # A state that is computed again is the same.
    fleet.tick(4000, "vm2", "vm3")
    event = ScheduledEvent.objects.get()
    assert (event.status, event.ended_as) == (detail.event.status.value, detail.event.ended_as)


def test_its_key_ends_and_it_returns_as_itself_once_it_is_admitted(fleet: Fleet) -> None:
    agent = fleet.enrol("vm1")
    fleet.later(700)
    remove(fleet, "vm1")
    assert machines.credentials_since(fleet.now - timedelta(seconds=1)) == {agent.machine.pk: ""}
    row = Machine.every.get(pk=agent.machine.pk)
    assert (row.credential_hash, row.revoked_at) == ("", fleet.now)
    said = {"machine_id": agent.machine.vm_id, "instance": agent.machine.compute, "credential": agent.credential}
    request = request_of(join_token=fleet.join_token, **said)
    assert isinstance(enrolment.enrol(request=request, now=fleet.now), wire.EnrolPending)
    assert listed(fleet) == set()
    admissions.admit(ids=[Admission.objects.get().pk], actor=acting(admin()), now=fleet.now)
    fleet.later(60)
    assert isinstance(enrolment.enrol(request=request, now=fleet.now), wire.EnrolAnswer)
    row = Machine.objects.get(pk=agent.machine.pk)
    assert (row.decommissioned_at, row.revoked_at, listed(fleet)) == (None, None, {"vm1"})
    assert Entry.objects.get(kind="machine_enrolled_again", machine=row).data["decommissioned_at"]


def test_a_live_machine_and_one_of_an_open_event_stay(fleet: Fleet) -> None:
    fleet.enrol_set(3)
    fleet.all_say(listing(resources=["vm1"]), names=["vm1", "vm2"])
    assert code(remove(fleet, "vm3")) == ["machine-live"]
    fleet.later(700)
    fleet.heard("vm2")
    found = remove(fleet, "vm1", "vm2", "vm3")
    # The event names vm1; vm2 is live.
    assert code(found) == ["machine-in-use", "machine-live", ""]
    error = found[pk_of(fleet, "vm1")]
    assert error is not None and error.details["event"] == EVENT
    assert listed(fleet) == {"vm1", "vm2"}
    decommission.revoke(machine_id=pk_of(fleet, "vm2"), actor=acting(admin()), now=fleet.now)
    assert code(remove(fleet, "vm2")) == [""]


def test_a_silent_machine_that_alone_lists_an_open_event_stays_until_it_is_discounted(fleet: Fleet) -> None:
    fleet.enrol_set(2)
    fleet.say("vm1", listing(resources=["another"]))
    fleet.later(700)
    assert code(remove(fleet, "vm1")) == ["machine-in-use"]
    decommission.discount(machine_id=pk_of(fleet, "vm1"), actor=acting(admin()), now=fleet.now)
    assert code(remove(fleet, "vm1")) == [""]


@pytest.mark.parametrize("kept", ["", "event", "requirement", "machine"])
def test_a_set_that_all_its_machines_left_is_no_longer_listed(fleet: Fleet, kept: str) -> None:
    fleet.enrol("vm1", availability_set="alone")
    if kept == "machine":
        fleet.enrol("vm2", availability_set="alone")
    fleet.later(700)
    if kept == "requirement":
        AvailabilitySet.objects.update(min_live=1)
    remove(fleet, "vm1")
    if kept == "event":
        fleet.enrol("vm3", availability_set="alone")
        fleet.say("vm3", listing(resources=["vm9"]))
        Machine.objects.filter(resource_name="vm3").update(decommissioned_at=fleet.now)
    for names in (
        [row.name for row in sets.listing(now=fleet.now).results],
        [row.name for row in sets.lines(now=fleet.now).results],
        [row.name for row in sets.named()],
    ):
        assert names == (["alone"] if kept else [])
    fleet.agents.clear()
    # The same set is there again with its next machine.
    fleet.enrol("vm8", availability_set="alone")
    assert [row.name for row in sets.named()] == ["alone"]


def test_a_cache_that_only_decommissioned_machines_listened_to_is_no_blind_spot() -> None:
    fleet = Listeners()
    fleet.enrol_set(2)
    fleet.cover("vm1", "listening", host=HOST)
    fleet.cover("vm2", "listening", host="other")
    fleet.later(700)
    remove(fleet, "vm1")
    assert not Cache.objects.filter(host=HOST).exists()
    unheard = [row.names for row in blind_spots.page(now=fleet.now).results if row.code == "cache-unheard"]
    assert unheard == [("other",)]


# Rules.


@pytest.fixture
def rules(settings: Settings) -> Any:
    """Set the days of rules; Drydock has run and heard an agent all the time."""

    def on(**days: int) -> None:
        settings.DECOMMISSION_DAYS = dict.fromkeys(("gone", "terminated", "unlisted")) | days

    return on


def pass_days(fleet: Fleet, days: float, *heard: str) -> None:
    """Let time pass in which the rules run and these machines are heard, with pauses that do not count as an outage."""
    end = fleet.now + timedelta(days=days)
    while (left := end - fleet.now) > timedelta(seconds=1):
        fleet.later(min(left, decommission.LONGEST_PAUSE * 0.8).total_seconds())
        fleet.heard(*heard) if heard else None
        decommission.apply_rules(now=fleet.now)


def test_rules_are_off_by_default(fleet: Fleet) -> None:
    fleet.enrol_set(2)
    pass_days(fleet, 3, "vm2")
    assert listed(fleet) == {"vm1", "vm2"}


def test_machines_that_are_gone_for_days_are_decommissioned_with_an_entry(fleet: Fleet, rules: Any) -> None:
    fleet.enrol_set(3)
    fleet.say("vm2", listing(resources=["vm3"]))
    rules(gone=2)
    pass_days(fleet, 1.9, "vm2")
    assert listed(fleet) == {"vm1", "vm2", "vm3"}
    fleet.say("vm2", listing(resources=["vm3"]))
    pass_days(fleet, 0.2, "vm2")
    # An open event names vm3.
    assert listed(fleet) == {"vm2", "vm3"}
    entry = Entry.objects.get(kind="machine_decommissioned")
    assert (entry.actor, entry.data["rule"], entry.machine_id) == ("Drydock", "gone", pk_of(fleet, "vm1"))


def test_one_run_is_bounded(fleet: Fleet, rules: Any) -> None:
    fleet.enrol_set(decommission.MOST + 3)
    rules(gone=2)
    pass_days(fleet, 2, "vm1")
    assert len(listed(fleet)) == decommission.MOST + 3
    pass_days(fleet, 1 / 144, "vm1")
    assert len(listed(fleet)) == 3
    pass_days(fleet, 1 / 144, "vm1")
    assert listed(fleet) == {"vm1"}


@pytest.mark.parametrize("gap", ["no-run", "no-agent"])
def test_silence_while_drydock_itself_was_unavailable_removes_nothing(fleet: Fleet, rules: Any, gap: str) -> None:
    fleet.enrol_set(3)
    rules(gone=2)
    pass_days(fleet, 1, "vm1", "vm2", "vm3")
    if gap == "no-run":
        fleet.later(5 * DAY)
    else:
        pass_days(fleet, 5)
    # The agents return one after the other.
    pass_days(fleet, 0.1, "vm1")
    pass_days(fleet, 1.5, "vm1", "vm2")
    assert listed(fleet) == {"vm1", "vm2"}
    assert Entry.objects.get(kind="machine_decommissioned").machine_id == pk_of(fleet, "vm3")


def test_a_terminate_counts_only_as_the_last_report_of_the_machine_itself(fleet: Fleet, rules: Any) -> None:
    fleet.enrol_set(4)
    rules(terminated=1)
    terminate = listing(event_type="Terminate", resources=["vm1", "vm2", "vm3"])
    # vm4 alone claims it of all; vm1 confirms it, and vm2 sees it cancelled. vm3 has never listed it.
    fleet.say("vm4", terminate)
    fleet.say("vm1", terminate)
    fleet.say("vm2", terminate)
    fleet.later(30)
    fleet.say("vm2")
    fleet.later(900)
    fleet.say("vm4")
    pass_days(fleet, 2.5, "vm4")
    assert ScheduledEvent.objects.get().status == "ENDED"
    assert listed(fleet) == {"vm2", "vm3", "vm4"}
    assert Entry.objects.get(kind="machine_decommissioned").data["rule"] == "terminated"


def take(fleet: Fleet, items: list[Any]) -> None:
    import_inventory(inventory=read_inventory(items), now=fleet.now, complete=True)


WEB = {"web1", "web2", "web3"}


@pytest.mark.parametrize(
    ("missing", "heard", "again", "left"),
    [
        # In an outage of the inventory they report once more, and are deallocated later.
        ({*IDS}, WEB, False, WEB), ({*IDS} - {"jump"}, WEB, False, WEB),
        ({"web2"}, {"web1", "web3"}, False, {"web1", "web3"}), ({"web2"}, {"web1", "web3"}, True, WEB),
    ],
)  # fmt: skip
def test_only_a_silent_machine_that_a_complete_inventory_no_longer_lists_is_decommissioned(
    fleet: Fleet, rules: Any, missing: set[str], heard: set[str], again: bool, left: set[str]
) -> None:
    for name in WEB:
        fleet.enrol(name, availability_set="", vm_id=IDS[name])
    whole = sample("vm_list")
    take(fleet, whole)
    rules(unlisted=1)
    pass_days(fleet, 0.1, *heard)
    take(fleet, [item for item in whole if item["name"] not in missing])
    pass_days(fleet, 0.1, *heard)
    if again:
        take(fleet, whole)
    pass_days(fleet, 2, "web1")
    assert listed(fleet) == left


def test_a_machine_that_waits_for_admission_is_not_gone(fleet: Fleet, rules: Any) -> None:
    fleet.enrol_set(2)
    rules(gone=1)
    machine, times = fleet.agents["vm2"].machine, {"first_requested_at": fleet.now, "last_requested_at": fleet.now}
    Admission.objects.create(vm_id=machine.vm_id, machine=machine, ask_hash="x", **times)
    pass_days(fleet, 2, "vm1")
    assert listed(fleet) == {"vm1", "vm2"}


# What API and pages add.


def now_fleet() -> Fleet:
    fleet = Fleet(now=datetime.now(UTC))
    fleet.now -= decommission.PERIOD * 6
    fleet.enrol_set(3)
    fleet.later(3600)
    fleet.heard("vm3")
    return fleet


def test_the_api_decommissions_one_machine_by_its_version(db: None) -> None:
    fleet, call = now_fleet(), caller(admin())
    address = f"machines/{pk_of(fleet, 'vm1')}/"
    etag = call.get(address).headers["ETag"]
    assert call.delete(address, if_match='"2020-01-01T00:00:00.000000Z"').status_code == 412
    assert call.delete(address, {"comment": "sold"}, if_match=etag).status_code == 204
    assert Entry.objects.get(kind="machine_decommissioned").why == "sold"
    assert call.get(address).json()["decommissioned_at"]
    assert [row["resource_name"] for row in call.get("machines/").json()["results"]] == ["vm2", "vm3"]
    assert call.delete(address).status_code == 404


def test_the_api_decommissions_several_machines_with_one_result_for_each(db: None) -> None:
    fleet, call = now_fleet(), caller(admin())
    ids = [pk_of(fleet, name) for name in ("vm1", "vm2", "vm3")]
    found = call.post("machines/decommission/", {"machines": ids, "comment": "scaled in"}).json()
    assert (found["done"], found["refused"]) == (2, 1)
    assert [(one["machine"], one["problem"] and one["problem"]["status"]) for one in found["results"]] == [
        (ids[0], None), (ids[1], None), (ids[2], 409),
    ]  # fmt: skip


def test_the_page_shows_the_selection_first_and_then_each_result(db: None) -> None:
    fleet, ada = now_fleet(), logged_in(admin())
    one, live = pk_of(fleet, "vm1"), pk_of(fleet, "vm3")
    shown = ada.get("/machines/").content.decode()
    assert f'name="machine" value="{one}"' in shown and f'name="machine" value="{live}"' not in shown
    review = ada.get("/machines/decommission/", {"all": "on", "q": "vm1"}).content.decode()
    assert f'value="{one}" checked' in review and f'value="{pk_of(fleet, "vm2")}"' not in review
    assert listed(fleet) == {"vm1", "vm2", "vm3"}
    result = ada.post("/machines/decommission/", {"machine": [one, live], "comment": "sold"}).content.decode()
    assert result.count('data-state="done"') == result.count('data-state="refused"') == 1
    assert listed(fleet) == {"vm2", "vm3"}
    assert ada.post("/machines/decommission/").status_code == 422


# Discounted reports: what a flood or a lost machine left behind is cleaned up, and the timeline keeps it.

LINE = EXAMPLE[0][1]

OTHER = "22222222-0000-4000-8000-000000000002"


def discount(fleet: Fleet, name: str) -> Entry:
    actor = acting(admin("dora"), why="sold")
    decommission.discount(machine_id=pk_of(fleet, name), actor=actor, now=fleet.now)
    return Entry.objects.get(kind="machine_discounted")


@pytest.mark.parametrize("revoked", [False, True])
def test_events_that_only_this_machine_listed_end_as_unknown(fleet: Fleet, revoked: bool) -> None:
    fleet.enrol_set(2)
    fleet.all_say(listing(resources=["vm2"]))
    fleet.say("vm1", listing(resources=["vm2"]), listing(OTHER, resources=["vm1"]))
    if revoked:
        decommission.revoke(machine_id=pk_of(fleet, "vm1"), actor=acting(admin("bo")), now=fleet.now)
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
    assert refused(lambda: discount(fleet, "vm1")).code == "machine-live"
    asked = {"machine_id": pk_of(fleet, "vm1"), "actor": acting(operator()), "now": fleet.now}
    assert refused(lambda: decommission.discount(**asked)).code == "not-permitted"
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
