"""The clock of a web process jumps by minutes and hours, and is right again: nothing that it stored lies ahead, it
decides and sends nothing meanwhile, and all that is over with the jump.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import requests
from django.contrib.auth.models import User

from fleet.models import Approval, LastRun, Observation, Order, PresenceRow, ScheduledEvent, WrongClock
from fleet.models.driver import query
from tests.api.conftest import caller
from tests.factories import listing, person
from tests.gateway_process import Agent, Gateway
from tests.processes import wait_for

pytestmark = [pytest.mark.flow, pytest.mark.real_time]

JUMPS = [3 * 3600.0, -600.0]
# Columns whose times may lie ahead; every other time in the database is one of something that has happened.
AHEAD = {
    "decide_by", "due_at", "expire_date", "expires_at", "valid_until", "held_until", "leased_until", "next_check_at",
    "next_try_at", "not_before", "until",
}  # fmt: skip


def times_ahead() -> list[str]:
    """`table.column` of each time that is later than the database's own."""
    columns = query(
        "SELECT table_name, column_name FROM information_schema.columns JOIN information_schema.tables"
        " USING (table_schema, table_name) WHERE table_schema = 'public' AND data_type = 'timestamp with time zone'"
        " AND table_type = 'BASE TABLE' AND table_name LIKE 'fleet%'"
    )
    return [
        f"{table}.{column}"
        for table, column in columns
        if column not in AHEAD and query(f'SELECT 1 FROM "{table}" WHERE "{column}" > clock_timestamp() LIMIT 1')
    ]


@dataclass
class Site:
    """The gateway, what sets its clock, and an operator's token."""

    gateway: Gateway
    set_clock: Callable[[float], None]
    token: str

    def agent(self) -> Agent:
        """A machine in a set of its own."""
        return self.gateway.agent(availability_set=f"availability_set:set{PresenceRow.objects.count()}")

    def approve(self, event_id: str) -> requests.Response:
        address = f"{self.gateway.url}/api/v1/events/{event_id}/approvals/"
        headers = {"Authorization": f"Bearer {self.token}"}
        return requests.post(address, headers=headers, json={"comment": "agreed"}, timeout=20)


@pytest.fixture
def site(gateway: Gateway, set_clock: Callable[[float], None]) -> Site:
    secret = str(caller(person(f"otto-{User.objects.count()}", "operator")).headers["authorization"])
    return Site(gateway, set_clock, secret.removeprefix("Bearer "))


def event_of(agent: Agent) -> str:
    return f"{agent.vm_id[:8].upper()}-0000-4000-8000-000000000001"


def announce(agent: Agent, *, incarnation: int = 2) -> str:
    """The agent reports a document with an event of its own machine."""
    due = datetime.now(UTC) + timedelta(minutes=14)
    own = listing(event_of(agent), resources=[f"vm-{agent.vm_id[:8]}"], not_before=due)
    assert agent.post(agent.document(incarnation=incarnation, events=(own,))).status_code == 200
    return event_of(agent)


def contact_of(agent: Agent) -> PresenceRow:
    """The presence of the machine, once its contact is written."""
    rows = PresenceRow.objects.filter(machine__vm_id=agent.vm_id, last_heard_at__isnull=False)
    return wait_for(rows.first, seconds=20, what="the contact is written")


@pytest.mark.parametrize("seconds", JUMPS)
def test_what_is_stored_during_a_jump_has_the_databases_time(site: Site, seconds: float) -> None:
    agent = site.agent()
    site.set_clock(seconds)
    began = datetime.now(UTC)
    event_id = announce(agent)
    agent.orders(wait=0)
    row = contact_of(agent)
    assert row.last_heard_at is not None
    # So it is live no longer than others if it dies now.
    assert began - timedelta(seconds=5) < row.last_heard_at <= datetime.now(UTC)
    assert row.last_poll_at is None or row.last_poll_at <= datetime.now(UTC)
    assert row.clock_offset is None or abs(row.clock_offset) < 5
    observed = Observation.objects.get(machine__vm_id=agent.vm_id)
    assert abs((observed.received_at - began).total_seconds()) < 30
    seen_at = ScheduledEvent.objects.get(event_id=event_id).first_seen_at
    assert abs((seen_at - began).total_seconds()) < 30
    assert times_ahead() == []


@pytest.mark.parametrize("seconds", JUMPS)
def test_a_process_with_a_wrong_clock_neither_decides_nor_sends(site: Site, seconds: float) -> None:
    agent = site.agent()
    event_id = announce(agent)
    # Of the jump before.
    WrongClock.objects.all().delete()
    site.set_clock(seconds)
    answer = site.approve(event_id)
    assert (answer.status_code, answer.json()["type"]) == (503, "clock-wrong")
    assert not Approval.objects.filter(event__event_id=event_id).exists()
    wait_for(lambda: WrongClock.objects.filter(kind="web").exists(), seconds=20, what="the wrong clock is recorded")
    skew = partial(site.gateway.metric, "drydock_process_clock_skew_seconds", process="web")
    wait_for(lambda: skew() == pytest.approx(abs(seconds), abs=5), seconds=20, what="the skew is measured", every=1)
    ready = partial(requests.get, f"{site.gateway.url}/readyz", timeout=10)
    wait_for(lambda: "clock" in ready().json(), seconds=20, what="/readyz reports the clock")
    # It is the only process here, so no other process reconciles.
    LastRun.objects.filter(name=LastRun.RECONCILE).update(ran_at=datetime.now(UTC) - timedelta(minutes=1))
    time.sleep(2)
    assert LastRun.objects.get(name=LastRun.RECONCILE).ran_at < datetime.now(UTC) - timedelta(seconds=50)

    site.set_clock(0)
    answer = site.approve(event_id)
    assert answer.status_code == 201, answer.text
    site.set_clock(seconds)
    assert Order.objects.filter(approval__event__event_id=event_id).count() == 1
    assert agent.orders(wait=0).json()["orders"] == []
    assert agent.post().json()["orders"] == []
    site.set_clock(0)
    order = wait_for(lambda: agent.orders(wait=0).json()["orders"], seconds=20, what="the order is handed out")
    assert len(order) == 1
