"""Sets with the same name: every place that names them distinguishes them, and a unique name stays short."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from fleet.domain.sets import with_suffix
from fleet.models import AvailabilitySet
from fleet.operations.sets.changes import merge_sets
from tests import factories
from tests.dashboard.conftest import logged_in, text_of
from tests.factories import Fleet, listing

PRODUCTION, STAGING = "aaaa-1", "bbbb-2"


@pytest.fixture
def fleet(db: None) -> Fleet:
    walker = Fleet(now=datetime.now(UTC))
    walker.enrol("vm1", subscriptionId=PRODUCTION)
    walker.enrol("vm2", availability_set="WEB", subscriptionId=STAGING)
    walker.enrol("vm3", availability_set="mail", subscriptionId=STAGING)
    walker.all_say()
    return walker


@pytest.fixture
def operator(db: None) -> Client:
    return logged_in(factories.operator())


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


def test_queue_lists_map_timeline_and_pages_tell_them_apart(fleet: Fleet, operator: Client) -> None:
    due = fleet.now + timedelta(minutes=15)
    fleet.later(0.1)
    fleet.all_say(listing(resources=("vm1",), not_before=due), names=["vm1"])
    home = fleet.agents["vm1"].machine.availability_set_id
    for address in ("/", "/sets/", "/machines/", "/fleet/?as=table", "/timeline/", f"/sets/{home}/"):
        shown = text_of(operator.get(address))
        assert f"web ({PRODUCTION})" in shown, address
        assert "mail (" not in shown, address
    assert f'title="WEB ({STAGING}): 1 live"' in operator.get("/fleet/").content.decode()


def test_it_is_written_as_sets_come_and_go(fleet: Fleet) -> None:
    assert apart() == {"web": PRODUCTION, "WEB": STAGING, "mail": ""}
    fleet.enrol("vm4", availability_set="mail", subscriptionId=STAGING, resourceGroupName="attic")
    assert set(AvailabilitySet.objects.filter(name="mail").values_list("name_suffix", flat=True)) == {"shop", "attic"}
    one, other = AvailabilitySet.objects.filter(name="mail").order_by("pk")
    merge_sets(set_id=other.pk, into=one.pk, actor=factories.acting(factories.admin()), now=fleet.now)
    assert apart()["mail"] == ""


def test_provisional_set_needs_no_distinguishing_name(fleet: Fleet) -> None:
    fleet.enrol("stray", availability_set="")
    assert not AvailabilitySet.objects.filter(kind="provisional").exclude(name_suffix="").exists()
