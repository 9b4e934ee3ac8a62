"""Batches about many events: the number of statements does not grow with the number of events."""

import pytest

from tests.factories import Fleet, listing
from tests.plans import queries

pytestmark = pytest.mark.django_db(transaction=True)


def statements(fleet: Fleet, places: range) -> int:
    """Of one batch in which one machine of each of these sets lists the set's own event."""
    said = []
    for place in places:
        agent = fleet.agents[f"vm{place}"]
        event = listing(f"00000000-0000-4000-8000-{place:012d}", resources=[f"vm{place}"])
        said.append(agent.delivery(agent.document(event, at=fleet.now)))
    return len(queries(fleet.record, *said))


@pytest.mark.parametrize("kind", ["web-{}", ""])
def test_a_batch_about_thirty_events_takes_as_many_statements_as_one_about_two(kind: str, fleet: Fleet) -> None:
    for place in range(32):
        # Named sets, and provisional sets, which may turn out to be one.
        fleet.enrol(f"vm{place}", availability_set=kind.format(place))
    assert statements(fleet, range(2)) == statements(fleet, range(2, 32))
