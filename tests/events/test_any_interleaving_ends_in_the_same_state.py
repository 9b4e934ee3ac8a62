"""However the reports of a set's machines interleave, repeat and batch up, the event ends in the same state."""

from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fleet.models import ScheduledEvent, Sighting
from fleet.operations.events.compute import FIELDS
from fleet.operations.intake.keep import Delivery
from tests.factories import EVENT, Fleet, listing, seconds

pytestmark = pytest.mark.django_db

OTHER = "0BB8CD25-5BF9-4D96-85F8-3E5B9B45F2B6"

# What Azure lists at each moment of a story; a machine that polls at that moment reads exactly this.
words = st.sampled_from(
    [
        (),
        (("Scheduled", EVENT),),
        (("Started", EVENT),),
        (("Scheduled", EVENT), ("Scheduled", OTHER)),
        (("Started", EVENT), ("Scheduled", OTHER)),
        (("Started", OTHER),),
    ]
)
stories = st.lists(words, min_size=2, max_size=5)


def final_state(deliveries: list[list[Delivery]], fleet: Fleet) -> dict[str, Any]:
    """Play the batches in a transaction of their own and undo them."""
    with transaction.atomic():
        for batch in deliveries:
            fleet.record(*batch)
        fleet.heard()
        fleet.advance()
        events = {
            event.event_id: {name: getattr(event, name) for name in FIELDS if name != "version"}
            for event in ScheduledEvent.objects.all()
        }
        fields = [
            field.attname
            for field in Sighting._meta.concrete_fields
            if field.attname not in ("id", "event_id", "first_received_at")
        ]
        sightings = {
            (row.event.event_id, row.machine_id): [getattr(row, name) for name in fields]
            for row in Sighting.objects.select_related("event")
        }
        transaction.set_rollback(True)
    return {"events": events, "sightings": sightings}


# An example is a whole story in the database: few in `make test`, and none is shrunk, which would play thousands.
@settings(
    max_examples=5 if settings.default is settings.get_profile("share") else settings.default.max_examples,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(data=st.data(), story=stories)
def test_any_interleaving_across_machines_with_repeats_gives_the_same_state(
    data: st.DataObject, story: list[tuple[tuple[str, str], ...]]
) -> None:
    with transaction.atomic():
        fleet = Fleet()
        agents = [fleet.enrol(f"vm{number}") for number in (1, 2, 3)]
        streams: list[list[Delivery]] = []
        for agent in agents:
            stream = []
            for moment, listed in enumerate(story):
                if not data.draw(st.booleans(), label="polls at this moment"):
                    continue
                events = [
                    listing(event_id, status=status, not_before=fleet.now + seconds(900)) for status, event_id in listed
                ]
                at = fleet.now + seconds(moment * 10 + agent.machine.pk % 3)
                agent.incarnation = moment
                stream.append(agent.delivery(agent.document(*events, at=at)))
            streams.append(stream)
        fleet.later(100)
        in_turn = [[delivery] for stream in streams for delivery in stream]
        expected = final_state(in_turn, fleet)

        waiting = [list(stream) for stream in streams]
        sent: list[Delivery] = []
        batches: list[list[Delivery]] = [[]]
        while any(waiting):
            stream = data.draw(st.sampled_from([stream for stream in waiting if stream]), label="next")
            sent.append(stream.pop(0))
            batches[-1].append(sent[-1])
            if data.draw(st.booleans(), label="said twice"):
                batches[-1].append(data.draw(st.sampled_from(sent), label="which"))
            if data.draw(st.booleans(), label="commit"):
                batches.append([])
        found = final_state(batches, fleet)
        assert found["events"] == expected["events"]
        assert found["sightings"] == expected["sightings"]
        transaction.set_rollback(True)
