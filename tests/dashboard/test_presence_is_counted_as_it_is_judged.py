"""The overview counts in the database what `machine_presence` judges one by one."""

from datetime import timedelta

from fleet.domain.states import Presence
from fleet.models import Machine
from fleet.models.facts.events import machine_presence
from fleet.operations.intake import presence
from fleet.operations.machines import decommission
from fleet.projections.desk.status_bar import overview
from fleet.projections.refs import count_presence
from tests import factories
from tests.rows import MachineFactory, SetFactory

AGES = [None, 0, 59, 60, 61, 599, 600, 601, 86399, 86400, 86401, 200000]


def test_the_overview_agrees_with_the_rule_at_every_edge(fleet: factories.Fleet) -> None:
    now = fleet.now
    number, homes = 0, SetFactory.create_batch(7)
    for heard in AGES:
        for polled in AGES:
            number += 1
            if number in (13, 14):
                machine = fleet.enrol(f"m{number}", heard=False).machine
            else:
                machine = MachineFactory(availability_set=homes[number % 7])
            if heard is not None:
                presence.flush(
                    contacts=[
                        presence.Contact(
                            machine.pk,
                            now - timedelta(seconds=heard),
                            None if polled is None else now - timedelta(seconds=polled),
                        )
                    ]
                )
    decommission.revoke(machine_id=fleet.agents["m14"].machine.pk, actor=factories.acting(factories.admin()), now=now)
    # A document counts as a good poll before the presence map is flushed.
    fleet.say("m13", at=now)
    machines = Machine.objects.select_related("presence", "latest_document")
    judged = count_presence([machine_presence(machine, now=now) for machine in machines])
    assert overview(now=now).presence == judged
    assert all(getattr(judged, state.value) > 0 for state in Presence)
