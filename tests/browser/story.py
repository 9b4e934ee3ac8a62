"""A fleet with something of everything, for pictures and for the check of every page."""

import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from tests import factories
from tests.caches.walking import Listeners, line
from tests.factories import Fleet, listing

WEB = tuple(f"vm{number}" for number in range(1, 7))
WORKERS = tuple(f"workers_{number}" for number in range(4))
LEGACY = ("FrontEnd_IN_0", "FrontEnd_IN_1")
# The button that starts an event at once; it names the event.
START_NOW = re.compile(r"^Start now: ")
SESSIONS = "sessions.redis.cache.windows.net"
MIGRATION = "Virtual machine is being paused because of a memory-preserving Live Migration operation."


def new_id() -> str:
    return str(uuid4()).upper()


def tell(fleet: Fleet) -> tuple[str, int]:
    """Tell of events that wait, are under way, lie days ahead, ended and were cancelled, and of agents that are live,
    late and never heard. Return the EventId of a waiting event, and its set.
    """
    now = datetime.now(UTC)
    fleet.now = now - timedelta(minutes=42)
    fleet.enrol_set()
    for number, name in enumerate(WORKERS):
        fleet.enrol(name, availability_set="scale_set:workers", fault_domain=number % 2, update_domain=number // 2)
    for number, name in enumerate(LEGACY):
        fleet.enrol(name, availability_set="cloud_service:legacy", fault_domain=number, update_domain=number)
    fleet.enrol("billing", availability_set="standalone:billing")
    fleet.enrol("stray-vm", availability_set="")
    fleet.enrol("newcomer", availability_set="cloud_service:legacy", fault_domain=0, update_domain=1, heard=False)
    for name in (*WORKERS, *LEGACY, "billing", "stray-vm"):
        fleet.say(name)
    completed(fleet)
    cancelled(fleet)

    fleet.now = now - timedelta(seconds=75)
    fleet.heard(*WEB, *WORKERS, *LEGACY, "billing", "stray-vm")
    waiting = new_id()
    four_minutes = now + timedelta(minutes=4, seconds=22)
    fleet.all_say(
        listing(waiting, resources=("vm1", "vm3"), not_before=four_minutes, Description=MIGRATION), names=WEB[:5]
    )
    fleet.later(6)
    repair = listing(
        new_id(),
        event_type="Redeploy",
        resources=("workers_2",),
        not_before=now + timedelta(minutes=9, seconds=40),
        Description="Host server is undergoing an emergency repair.",
    )
    fleet.all_say(repair, names=WORKERS)
    degraded = listing(
        new_id(), event_type="Redeploy", resources=("billing",), not_before=now + timedelta(days=3, hours=5)
    )
    fleet.all_say(degraded, names=["billing"])
    approved(fleet, now)
    fleet.now = now
    fleet.heard(*WEB[:5], *WORKERS, *LEGACY, "billing", "stray-vm")
    return waiting, fleet.agents["vm1"].machine.availability_set_id


def completed(fleet: Fleet) -> None:
    """A migration, approved after two minutes."""
    event_id = new_id()
    fleet.later(20)
    due = fleet.now + timedelta(minutes=15)
    announced = listing(event_id, resources=("vm2", "vm4"), not_before=due, Description=MIGRATION)
    fleet.all_say(announced, names=WEB)
    fleet.later(130)
    fleet.heard(*WEB)
    approval = fleet.approve(event_id, comment="Drained, go ahead.")
    order = factories.open_order(approval)
    fleet.later(0.3)
    fleet.delivered(order)
    fleet.later(0.5)
    fleet.receipt(order)
    fleet.later(6)
    fleet.all_say(listing(event_id, resources=("vm2", "vm4"), status="Started", Description=MIGRATION), names=WEB)
    fleet.later(90)
    fleet.all_say(names=WEB)


def cancelled(fleet: Fleet) -> None:
    """A user's restart that Azure takes back."""
    fleet.later(300)
    due = fleet.now + timedelta(minutes=15)
    fleet.all_say(restart(new_id(), "FrontEnd_IN_1", due), names=LEGACY)
    fleet.later(90)
    fleet.all_say(names=LEGACY)


def approved(fleet: Fleet, now: datetime) -> None:
    """A user's restart, approved and accepted, that has not started yet."""
    event_id = new_id()
    fleet.now = now - timedelta(seconds=24)
    fleet.all_say(restart(event_id, "FrontEnd_IN_0", fleet.now + timedelta(minutes=15)), names=LEGACY)
    fleet.later(10)
    order = factories.open_order(fleet.approve(event_id, comment="My own restart."))
    fleet.later(0.4)
    fleet.delivered(order)
    fleet.later(0.6)
    fleet.receipt(order)


def restart(event_id: str, name: str, due: datetime) -> dict[str, object]:
    return listing(
        event_id,
        event_type="Reboot",
        resources=(name,),
        not_before=due,
        Description="Virtual machine is going to be restarted as requested by authorized user.",
        EventSource="User",
        DurationInSeconds=-1,
    )


def caches_told(now: datetime) -> Listeners:
    """A failover twenty minutes ago on one cache, an announcement on the other, and a time without a listener."""
    walker = Listeners(now=now - timedelta(hours=2))
    three = ("web-1", "web-2", "web-3")
    for number in range(1, 5):
        walker.enrol(f"web-{number}", fault_domain=number % 2, update_domain=number % 2)

    def covered(state: str, names: tuple[str, ...] = three, **more: str) -> None:
        for name in names:
            walker.cover(name, state, **more)

    covered("subscribed", tier="standard")
    walker.cover("web-3", "subscribed", host=SESSIONS, tier="basic")
    walker.cover("web-4", "refused", host=SESSIONS, reason="NOPERM this user has no permissions")
    walker.now = now - timedelta(minutes=80)
    walker.heard()
    walker.advance()
    covered("lost", reason="closed by the server")
    walker.now = now - timedelta(minutes=62)
    covered("subscribed")
    walker.now = now - timedelta(minutes=21)
    start = (walker.now + timedelta(seconds=858)).strftime("%Y-%m-%dT%H:%M:%S")

    def told(raw: str, names: tuple[str, ...] = three) -> None:
        for name in names:
            walker.hear(name, raw)

    told(line("NodeMaintenanceScheduled") + f"|StartTimeInUTC|{start}")
    walker.later(767)
    begins = (walker.now + timedelta(seconds=20)).strftime("%Y-%m-%dT%H:%M:%S")
    told(line("NodeMaintenanceStarting") + f"|StartTimeInUTC|{begins}")
    walker.later(20)
    told(line("NodeMaintenanceStart"))
    walker.later(1)
    covered("lost", three[:2], reason="closed by the server")
    walker.later(9)
    covered("subscribed", three[:2])
    told(line("NodeMaintenanceFailover", port=15001), ("web-3",))
    walker.later(172)
    told(line("NodeMaintenanceEnded", replica="True") + f"|StartTimeInUTC|{walker.now:%Y-%m-%dT%H:%M:%S}")
    walker.now = now
    walker.heard()
    soon = (now + timedelta(seconds=700)).strftime("%Y-%m-%dT%H:%M:%S")
    walker.hear("web-3", line("NodeMaintenanceScheduled") + f"|StartTimeInUTC|{soon}", host=SESSIONS)
    return walker
