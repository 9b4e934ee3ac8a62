"""Short stories, played through the product's own operations and taken back again: what they wrote is the pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import models, transaction
from drydock_agent import wire

from bench.seed.pattern import Marks, Pattern, marks, since
from bench.seed.player import GROUP, SET, SUBSCRIPTION, Player
from fleet.domain import actor
from fleet.models import (
    Approval,
    AvailabilitySet,
    Cache,
    Claim,
    DocumentBody,
    Entry,
    LatestDocument,
    Machine,
    Observation,
    Order,
    PresenceRow,
    ScheduledEvent,
    Sighting,
    Spool,
)
from fleet.operations.approvals import approve, claims
from fleet.operations.approvals.approve import Plan
from fleet.operations.orders import advance, queue

# What a story of an event writes, in the order in which rows refer to one another.
OF_EVENTS: tuple[type[models.Model], ...] = (
    ScheduledEvent, Approval, Claim, Order, Sighting, DocumentBody, Observation, Entry,
)  # fmt: skip
OF_MACHINES: tuple[type[models.Model], ...] = (Machine, Spool, DocumentBody, Observation, Entry)
# Where a machine stands, whatever it went through.
LAST: tuple[type[models.Model], ...] = (PresenceRow, LatestDocument)
NUMBERED: tuple[type[models.Model], ...] = (
    AvailabilitySet,
    Cache,
    Machine,
    Spool,
    *(table for table in OF_EVENTS if table not in (Order, DocumentBody)),
)
EVENT = "5EED0000-0000-4000-8000-0000000000E7"
SERVICE, HOST = "stand-in-service", "stand-in.redis.cache.windows.net"
AZURE_SAYS = {
    "Freeze": ("Host server is undergoing maintenance.", 5),
    "Reboot": ("Virtual machine is being restarted as requested by authorized user.", 60),
    "Redeploy": ("Host hardware is degraded; the machine is moved to another host.", 300),
}


def listed(
    player: Player, event_type: str, *, status: str = "Scheduled", notice: float = 900, count: int = 1
) -> dict[str, Any]:
    """One element of `Events` that names the first machines."""
    description, seconds = AZURE_SAYS[event_type]
    not_before = format_datetime(player.at + timedelta(seconds=notice), usegmt=True)
    return {
        "EventId": EVENT,
        "EventStatus": status,
        "EventType": event_type,
        "ResourceType": "VirtualMachine",
        "Resources": [machine.resource_name for machine in player.machines[:count]],
        "NotBefore": not_before if status == "Scheduled" else "",
        "Description": description,
        "EventSource": "Platform",
        "DurationInSeconds": seconds,
    }


def announced(player: Player, event_type: str, **fields: Any) -> None:
    player.incarnation += 1
    player.say(listed(player, event_type, **fields))


def ended(player: Player) -> None:
    player.incarnation += 1
    player.say()


def left_alone(player: Player) -> None:
    """Play an event without a decision; it starts at NotBefore and ends after a while."""
    announced(player, "Freeze")
    player.later(905)
    announced(player, "Freeze", status="Started")
    player.later(12)
    ended(player)


def cancelled(player: Player) -> None:
    announced(player, "Redeploy", notice=600)
    player.later(240)
    ended(player)


def approved(player: Player) -> None:
    """Claimed, approved, started by Azure's 200, and over."""
    announced(player, "Reboot")
    player.later(41)
    who = actor.person(player.person, "page")
    claims.claim(event_id=EVENT, actor=who, now=player.now)
    player.later(34)
    decided = approve.grant(
        event_id=EVENT, actor=actor.person(player.person, "page", why="drained"), now=player.now, plan=Plan()
    )
    advance.advance_approval(approval_id=decided.pk, now=player.now, via="celery")
    order = Order.objects.get(approval=decided)
    number = next(n for n, machine in enumerate(player.machines) if machine.pk == order.machine_id)
    queue.note_held(held=[(order.machine_id, order.pk, "celery")], now=player.now)
    player.later(1)
    receipt = wire.ReceiptData(
        order_id=str(order.pk), event_id=order.spelled, outcome=wire.ANSWERED, azure_status=200, reason="",
        attempted_at=player.now, posts=1, via="celery",
    )  # fmt: skip
    player.report(number, wire.RECEIPT, receipt)
    player.later(6)
    announced(player, "Reboot", status="Started")
    player.later(85)
    ended(player)


def undecided(player: Player) -> None:
    announced(player, "Freeze")


def days_ahead(player: Player) -> None:
    announced(player, "Redeploy", notice=3 * 86_400, count=2)


def claimed(player: Player) -> None:
    announced(player, "Reboot")
    player.later(20)
    claims.claim(event_id=EVENT, actor=actor.person(player.person, "page"), now=player.now)


def under_way(player: Player) -> None:
    announced(player, "Freeze")
    player.later(910)
    announced(player, "Freeze", status="Started")


def reconnected(player: Player) -> None:
    """A machine that listens to a cache loses its connection, and has it again."""
    player.report(0, wire.COVERAGE, wire.CoverageData(cache=HOST, state="lost", reason="the server closed it"))
    player.later(31)
    player.report(0, wire.COVERAGE, wire.CoverageData(cache=HOST, state="subscribed"))


Story = Callable[[Player], None]
ENDED: tuple[Story, ...] = (left_alone, approved, cancelled)
OPEN: tuple[Story, ...] = (undecided, days_ahead, claimed, under_way)


def of_a_set(*, at: datetime, person: User) -> Pattern:
    """The row of a set."""
    with _taken_back(person):
        player = Player(at, person)
        before = marks([AvailabilitySet])
        player.enrol()
        AvailabilitySet.objects.update(service=SERVICE)
        return _pattern(player, before)


def of_a_machine(*, at: datetime, person: User) -> tuple[Pattern, Pattern]:
    """A machine enrols in a set that is there and reads an empty document; and where it stands then."""
    with _taken_back(person):
        Player(at, person).enrol()
        # What comes is as new as that was.
        Machine.objects.update(vm_id="before", resource_name="before")
        Spool.objects.update(spool="before")
        player = Player(at, person)
        before = marks(OF_MACHINES)
        last = marks(LAST)
        player.names = player.enrol()
        counted = {player.machines[0].pk: 1}
        return _pattern(player, before), _pattern(player, last, counted=counted, sent=[0])


def of_a_cache(*, at: datetime, person: User) -> tuple[Pattern, Pattern]:
    """The row of a cache; and a machine that loses its connection to it: the entries alone."""
    with _taken_back(person):
        player = Player(at, person)
        player.names = player.enrol()
        before = marks([Cache])
        player.report(0, wire.COVERAGE, wire.CoverageData(cache=HOST, state="subscribed", tier="premium"))
        cache = _pattern(player, before)
        return cache, _played(player, reconnected, marks([Entry]))


def of_an_event(story: Story, *, at: datetime, person: User, machines: int, still_open: bool = False) -> Pattern:
    """Return the rows of this story, with this many machines that watch. With `still_open`, also the machines' current
    state."""
    with _taken_back(person):
        player = Player(at - timedelta(minutes=1), person)
        for _ in range(machines):
            player.names |= player.enrol()
        player.at = player.now = at
        # They stand somewhere already: those rows change.
        before = marks(OF_EVENTS) | ({table: set() for table in LAST} if still_open else {})
        return _played(player, story, before)


@contextmanager
def _taken_back(person: User) -> Iterator[None]:
    with transaction.atomic():
        User.objects.filter(pk=person.pk).update(is_active=True)
        person.is_active = True
        try:
            yield
        finally:
            person.is_active = False
            transaction.set_rollback(True)


def _played(player: Player, story: Story, before: Marks) -> Pattern:
    already, player.at = list(player.sent), player.now
    story(player)
    counted = {machine.pk: already[number] for number, machine in enumerate(player.machines)}
    # What is not kept was not sent: numbers have no gaps.
    kept = Observation in before
    sent = [now - then if kept else 0 for now, then in zip(player.sent, already, strict=True)]
    return _pattern(player, before, counted=counted, sent=sent)


def _pattern(
    player: Player, before: Marks, *, counted: dict[int, int] | None = None, sent: Sequence[int] = ()
) -> Pattern:
    rows = since(before)
    created = {(model, row["id"]) for model, found in rows.items() for row in found if "id" in row}
    there: dict[tuple[type[models.Model], int], str] = {
        (AvailabilitySet, AvailabilitySet.objects.get().pk): "set",
        **{(Machine, machine.pk): f"machine {number}" for number, machine in enumerate(player.machines)},
        **{(Cache, cache): "cache" for cache in Cache.objects.values_list("pk", flat=True)},
    }
    return Pattern(
        rows,
        at=player.at,
        took=player.now - player.at,
        names={
            "event": EVENT,
            "set": SET,
            "group": GROUP,
            "subscription": SUBSCRIPTION,
            "service": SERVICE,
            "host": HOST,
            **player.names,
        },
        refs={key: name for key, name in there.items() if key not in created},
        counted=counted or {},
        numbers=sent,
    )
