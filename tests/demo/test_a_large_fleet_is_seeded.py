"""`python -m bench.seed`: the tables hold copies of really played stories, as if they had happened."""

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Count, Max
from django.test import Client
from django.utils import timezone

from bench.seed.command import Command
from fleet.models import (
    Approval,
    AvailabilitySet,
    Entry,
    Machine,
    Observation,
    PresenceRow,
    ScheduledEvent,
    Seal,
    Sighting,
    Spool,
)
from fleet.operations import reconcile
from tests.factories import Agent, Fleet, admin
from tests.words import text

pytestmark = pytest.mark.django_db(transaction=True)


def seeded(**numbers: int) -> str:
    out = StringIO()
    asked = {"machines": 25, "set_size": 6, "entries": 900, "open_events": 5, **numbers}
    call_command(Command(), stdout=out, **asked)
    return out.getvalue()


@pytest.mark.parametrize("policy", ["auto", "attested", "admit"])
def test_seeding_works_under_every_enrolment_policy(settings: Any, policy: str) -> None:
    settings.ENROLMENT_POLICY = policy
    assert "6 machines in 1 sets" in seeded(machines=6, entries=100, open_events=0)


def test_seeded_fleet_with_a_sealed_past_is_consistent() -> None:
    said = seeded()
    assert "25 machines in 5 sets" in said
    sizes = AvailabilitySet.objects.annotate(size=Count("machines")).order_by("-size").values_list("size", flat=True)
    assert list(sizes) == [6, 6, 6, 6, 1]
    for model, field in ((Machine, "vm_id"), (Machine, "credential_hash"), (AvailabilitySet, "key"), (Spool, "spool")):
        values = list(model._default_manager.values_list(field, flat=True))
        assert len(set(values)) == len(values)
        assert not [value for value in values if "stand-in" in value]
    assert 900 <= Entry.objects.count() < 1_000
    # What was played as a pattern is nowhere.
    assert not ScheduledEvent.objects.filter(event_id__startswith="5EED0000").exists()
    assert not Entry.objects.filter(data__icontains="stand-in").exists()
    # Every line has words and a time within the past year.
    assert all(text(line) for line in Entry.objects.all())
    oldest, newest = Entry.objects.order_by("at").first(), Entry.objects.order_by("at").last()
    assert oldest is not None and newest is not None
    assert timedelta(days=360) < newest.at - oldest.at and newest.at <= timezone.now()
    assert {"CONFIRMED"} == set(Approval.objects.values_list("state", flat=True))
    assert set(ScheduledEvent.objects.exclude(status="ENDED").values_list("status", flat=True)) == {
        "SCHEDULED",
        "STARTED",
    }
    # Each machine's reports are numbered as it sent them.
    told = Observation.objects.values("machine").annotate(most=Max("seq"), count=Count("pk"))
    assert all(row["most"] == row["count"] for row in told)
    marks = dict(Spool.objects.values_list("machine", "acknowledged"))
    assert {row["machine"]: row["most"] for row in told} == marks
    # And it can be checked.
    assert Seal.objects.exists()
    call_command("verify_audit", stdout=StringIO())


def test_product_continues_from_the_seeded_fleet(client: Client) -> None:
    seeded()
    client.force_login(admin())
    listed = ScheduledEvent.objects.values_list("event_id", flat=True).first()
    for path in ("/", "/machines/", "/sets/", "/history/", "/blind-spots/", "/caches/", f"/events/{listed}/"):
        assert client.get(path, follow=True).status_code == 200, path
    before = dict(ScheduledEvent.objects.values_list("pk", "status"))
    now = timezone.now()
    # Machines are heard, as they are in a fleet that lives.
    PresenceRow.objects.update(last_heard_at=now, last_poll_at=now)
    assert reconcile.advance(now=now, via="beat").looked_at >= 5
    assert dict(ScheduledEvent.objects.values_list("pk", "status")) == before
    # Every machine that lists an event lists it in its newest document: the next one without it ends it.
    event = ScheduledEvent.objects.filter(status="STARTED").first()
    assert event is not None
    watching = list(Sighting.objects.filter(event=event).select_related("machine"))
    assert len(watching) == event.availability_set.machines.count()
    fleet = Fleet(now=now + timedelta(seconds=1))
    for one in watching:
        spool = Spool.objects.get(machine=one.machine)
        fleet.agents[one.machine.resource_name] = Agent(
            machine=one.machine, credential="", spool=spool.spool, seq=spool.acknowledged, incarnation=9
        )
    fleet.all_say()
    event.refresh_from_db()
    assert event.status == "ENDED"


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"machines": 0}, "counted from 1"),
        ({"set_size": -1}, "counted from 1"),
        ({"open_events": 6}, "at most one open event a set: 5 sets, 6 events"),
    ],
)
def test_sizes_that_cannot_be_are_refused(numbers: dict[str, int], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        seeded(**numbers)
    assert not Machine.objects.exists()


def test_a_database_with_machines_is_left_alone() -> None:
    Fleet().enrol("vm1")
    with pytest.raises(CommandError, match="has machines already"):
        seeded()
    assert Machine.objects.count() == 1
