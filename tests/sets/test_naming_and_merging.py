"""People name provisional sets and merge two that are one; nothing that was written is lost."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.domain.reasons import Refused
from fleet.domain.sets import with_suffix
from fleet.models import AvailabilitySet, Entry, InventoryMachine, Machine
from fleet.operations.sets import changes
from fleet.projections import sets
from fleet.projections.filters import EntryFilter
from fleet.projections.timeline import entries
from tests import factories
from tests.dashboard.conftest import logged_in, text_of
from tests.factories import Fleet, acting, admin, after, change_set, listing, open_order, the_event, the_set
from tests.machines.test_inventories import IDS, sample, take
from tests.sets.test_where_a_machine_belongs import instance, tagged
from tests.words import refused, sentences, text

pytestmark = pytest.mark.django_db


def name(fleet: Fleet, row: AvailabilitySet, **fields: Any) -> AvailabilitySet:
    return change_set(set_id=row.pk, actor=acting(admin()), now=fleet.now, **fields)


def merge(fleet: Fleet, source: AvailabilitySet, target: AvailabilitySet) -> AvailabilitySet:
    return changes.merge_sets(set_id=source.pk, into=target.pk, actor=acting(admin()), now=fleet.now)


def provisional(fleet: Fleet, machine: str = "a") -> AvailabilitySet:
    return fleet.enrol(machine, availability_set="").machine.availability_set


def test_a_named_set_keeps_its_machines_and_its_history(fleet: Fleet) -> None:
    row = provisional(fleet)
    named = name(fleet, row, name=" web ", service="shop")
    assert (named.pk, named.kind, named.name, named.service) == (row.pk, "availability_set", "web", "shop")
    kinds = [entry.kind.value for entry in entries.for_set(set_id=row.pk).results]
    assert kinds == ["set_named", "machine_enrolled"]
    assert instance(fleet, "a").availability_set == named
    # A machine that states the same set is in it at once.
    assert fleet.enrol("b", availability_set="WEB").machine.availability_set == named
    assert AvailabilitySet.objects.count() == 1


def test_what_a_shared_event_brought_together_is_named_as_one(fleet: Fleet) -> None:
    row = provisional(fleet)
    fleet.enrol("b", availability_set="")
    fleet.all_say(listing(resources=["a"]))
    named = name(fleet, row, name="legacy", kind="cloud_service")
    assert named.kind == "cloud_service"
    assert set(named.machines.values_list("resource_name", flat=True)) == {"a", "b"}


@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        ({"name": "  "}, "name", ""), ({"name": "x" * 201}, "name", ""),
        ({"name": "x", "kind": "provisional"}, "kind", ""), ({"name": "a|b"}, "", "set-name-unusable"),
        ({"kind": "scale_set"}, "", "set-kind-alone"),
    ],
)  # fmt: skip
def test_a_name_or_kind_that_is_none_is_refused(fields: dict[str, str], field: str, code: str, fleet: Fleet) -> None:
    with refused(code) if code else pytest.raises(Refused) as error:
        name(fleet, provisional(fleet), **fields)
    assert code or [one["field"] for one in error.value.details["errors"]] == [field]
    assert AvailabilitySet.objects.get().kind == "provisional"


def test_only_a_provisional_set_can_be_named_and_only_with_a_new_name(fleet: Fleet) -> None:
    fleet.enrol("vm1")
    with refused("set-named-already"):
        name(fleet, the_set(), name="shop")
    assert name(fleet, the_set(), service="shop").service == "shop"
    with pytest.raises(Refused) as known:
        name(fleet, provisional(fleet), name="Web")
    assert (known.value.code, known.value.details) == ("set-exists", {"set": the_set().pk})


def test_merging_moves_machines_events_and_inventory_and_loses_no_entry(fleet: Fleet) -> None:
    factories.freeze_completed(fleet)
    fleet.enrol("other", availability_set="shop")
    web, shop = the_set("web"), the_set("shop")
    take(fleet, sample("vm_list"))
    listed = provisional(fleet, "late")
    written = set(Entry.objects.values_list("pk", flat=True))
    merge(fleet, listed, web)
    remaining = merge(fleet, web, shop)
    assert remaining == shop
    assert Machine.objects.exclude(availability_set=shop).count() == 0
    assert the_event().availability_set == shop
    assert InventoryMachine.objects.filter(availability_set=shop).count() == 3
    assert written < set(Entry.objects.values_list("pk", flat=True))
    story = {entry.id for entry in entries.for_set(set_id=shop.pk, size=500).results}
    # Overviews leave further sightings out.
    news = Entry.objects.exclude(kind="event_sighted")
    assert story >= set(news.filter(event=the_event()).values_list("pk", flat=True))
    assert story == set(EntryFilter({"set": shop.pk}, queryset=news).qs.values_list("pk", flat=True))
    assert Entry.objects.filter(availability_set=web).exists()
    # Both old ones lead to the new one, in one step.
    for old in (web, listed):
        assert after(old).merged_into_id == shop.pk
        shown = sets.detail(set_id=old.pk, now=fleet.now)
        assert shown.set.id == shop.pk
    assert [
        row.id for row in sets.listing(now=fleet.now).results if row.id != shop.pk and row.kind != "scale_set"
    ] == []


def test_who_states_the_old_name_enrols_into_the_merged_set(fleet: Fleet) -> None:
    fleet.enrol("vm1")
    fleet.enrol("vm2", availability_set="shop")
    merge(fleet, the_set("web"), the_set("shop"))
    assert fleet.enrol("vm3", availability_set="web").machine.availability_set == the_set("shop")


def test_two_names_of_one_merged_set_are_no_disagreement_any_more(fleet: Fleet) -> None:
    fleet.enrol("vm1")
    fleet.enrol("vm2", availability_set="shop")
    assert instance(fleet, "vm1", "web", **tagged("shop")).set_warnings
    merge(fleet, the_set("shop"), the_set("web"))
    assert Machine.objects.get(resource_name="vm1").set_warnings == []
    assert instance(fleet, "vm1", "web", **tagged("shop")).set_warnings == []


def test_an_event_that_both_sets_saw_gets_the_votes_of_both(fleet: Fleet) -> None:
    fleet.enrol("vm1")
    fleet.enrol("vm2", availability_set="shop")
    fleet.all_say(listing(resources=["vm1"]))
    shown = sets.detail(set_id=the_set("web").pk, now=fleet.now)
    assert any(
        warning.startswith("vm2 of “shop” lists an open event of this set") for warning in sentences(shown.set.warnings)
    )
    approval = fleet.approve(factories.EVENT)
    assert open_order(approval).machine.resource_name == "vm1"
    merge(fleet, the_set("shop"), the_set("web"))
    assert not the_event().sightings.filter(foreign=True).exists()
    assert open_order(approval).machine.resource_name == "vm1"
    fleet.later(1)
    fleet.heard("vm1", "vm2")
    fleet.say("vm1")
    # The second machine still lists it, and has a vote now.
    assert the_event().status == "SCHEDULED"
    shown = sets.detail(set_id=the_set("web").pk, now=fleet.now)
    assert not any("lists an open event" in warning for warning in sentences(shown.set.warnings))


def test_what_cannot_be_one_is_not_merged(fleet: Fleet) -> None:
    fleet.enrol("vm1")
    fleet.enrol("vm2", subscriptionId="other")
    row = provisional(fleet)
    web, elsewhere = (machine.availability_set for machine in Machine.objects.order_by("pk")[:2])
    for source, target, code in (
        (web, web, "merge-into-itself"),
        (web, row, "merge-into-provisional"),
        (web, elsewhere, "merge-across-subscriptions"),
    ):
        with refused(code):
            merge(fleet, source, target)
    merge(fleet, row, web)
    with refused("merged-already"):
        merge(fleet, row, web)
    with refused("set-unknown"):
        changes.merge_sets(set_id=web.pk, into=10**9, actor=acting(admin()), now=fleet.now)
    with refused("set-unknown"):
        name(fleet, row, name="x")


def test_an_inventory_may_name_a_provisional_set_too(fleet: Fleet) -> None:
    row = provisional(fleet, "web1")
    Machine.objects.update(vm_id=IDS["web1"])
    take(fleet, sample("vm_list"))
    assert after(row).merged_into == the_set("WEB")
    assert "web1 states that" in text(Entry.objects.get(kind="set_merged"))


def test_events_of_one_batch_survive_a_join(fleet: Fleet) -> None:
    a = fleet.enrol("a", availability_set="")
    b = fleet.enrol("b", availability_set="")
    other = "0BB8CD25-5BF9-4D96-85F8-3E5B9B45F2B6"
    fleet.record(
        a.delivery(a.document(listing(), listing(other), at=fleet.now)),
        b.delivery(b.document(listing(), listing(other), at=fleet.now)),
    )
    assert the_event().availability_set == the_event(other).availability_set
    assert AvailabilitySet.objects.get(merged_into=None).machines.count() == 2
    assert (the_event(other).status, the_event(other).version) == ("SCHEDULED", 1)
    assert not the_event().sightings.filter(foreign=True).exists()
    assert Entry.objects.filter(kind="set_merged").count() == 1


# Sets with the same name: every place that names them distinguishes them, and a unique name stays short.

PRODUCTION, STAGING = "aaaa-1", "bbbb-2"


@pytest.fixture
def namesakes(db: None) -> Fleet:
    found = Fleet(now=datetime.now(UTC))
    found.enrol("vm1", subscriptionId=PRODUCTION)
    found.enrol("vm2", availability_set="WEB", subscriptionId=STAGING)
    found.enrol("vm3", availability_set="mail", subscriptionId=STAGING)
    found.all_say()
    return found


def apart() -> dict[str, str]:
    return {row.name: row.name_suffix for row in AvailabilitySet.objects.filter(merged_into=None)}


def test_name_suffix_is_as_short_as_possible() -> None:
    place = ("availability_set", "shop", PRODUCTION)
    assert with_suffix([place]) == [""]
    assert with_suffix([place, ("availability_set", "Shop", STAGING)]) == [PRODUCTION, STAGING]
    assert with_suffix([place, ("availability_set", "", PRODUCTION)]) == ["shop", "no resource group"]
    assert with_suffix([place, ("scale_set", "shop", PRODUCTION)]) == ["availability set", "scale set"]
    assert with_suffix([place, ("availability_set", "shop", STAGING), ("availability_set", "mail", PRODUCTION)]) == [
        f"shop, {PRODUCTION}",
        f"shop, {STAGING}",
        f"mail, {PRODUCTION}",
    ]


def test_queue_lists_map_timeline_and_pages_tell_them_apart(namesakes: Fleet) -> None:
    due, client = namesakes.now + timedelta(minutes=15), logged_in(factories.operator())
    namesakes.later(0.1)
    namesakes.all_say(listing(resources=("vm1",), not_before=due), names=["vm1"])
    home = namesakes.agents["vm1"].machine.availability_set_id
    for address in ("/", "/sets/", "/machines/", "/fleet/?as=table", "/timeline/", f"/sets/{home}/"):
        shown = text_of(client.get(address))
        assert f"web ({PRODUCTION})" in shown, address
        assert "mail (" not in shown, address
    assert f'title="WEB ({STAGING}): 1 live"' in client.get("/fleet/").content.decode()


def test_it_is_written_as_sets_come_and_go(namesakes: Fleet) -> None:
    assert apart() == {"web": PRODUCTION, "WEB": STAGING, "mail": ""}
    namesakes.enrol("vm4", availability_set="mail", subscriptionId=STAGING, resourceGroupName="attic")
    assert set(AvailabilitySet.objects.filter(name="mail").values_list("name_suffix", flat=True)) == {"shop", "attic"}
    one, other = AvailabilitySet.objects.filter(name="mail").order_by("pk")
    merge(namesakes, other, one)
    assert apart()["mail"] == ""


def test_provisional_set_needs_no_distinguishing_name(namesakes: Fleet) -> None:
    namesakes.enrol("stray", availability_set="")
    assert not AvailabilitySet.objects.filter(kind="provisional").exclude(name_suffix="").exists()
