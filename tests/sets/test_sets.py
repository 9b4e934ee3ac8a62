"""Which set a machine belongs to, and how provisional sets find their place."""

import pytest

from fleet.domain.sets import read_stated
from fleet.models import AvailabilitySet, Entry
from tests.factories import Fleet, listing, the_event
from tests.words import refused


def test_a_kind_may_be_named_and_must_be_known() -> None:
    assert read_stated("cloud_service:legacy") == ("cloud_service", "legacy")
    assert read_stated(" web ") == ("availability_set", "web")
    for wrong in ("cluster:x", "scale_set:", "a|b", "x" * 201, "a\x00b"):
        with refused("names-no-set"):
            read_stated(wrong)


@pytest.mark.django_db
def test_two_provisional_sets_that_share_an_event_are_joined(fleet: Fleet) -> None:
    fleet.enrol("a", availability_set="")
    fleet.enrol("b", availability_set="")
    fleet.say("a", listing(resources=["a"]))
    fleet.say("b", listing(resources=["a"]))
    event = the_event()
    assert event.availability_set.machines.count() == 2
    assert not event.sightings.filter(foreign=True).exists()
    assert Entry.objects.filter(kind="set_merged").count() == 1


@pytest.mark.django_db
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
