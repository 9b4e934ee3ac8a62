"""State of a cache maintenance, computed from the notifications about one cache and shard.

Also finds outages of several listeners. Notifications may be lost, because the maintenance also cuts the listener's
connection. So a maintenance is computed from any subset of them. Times come from the notifications; `status_of` adds
what follows from the current time.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial

from fleet.domain.caches.notifications import TYPES, NotificationType
from fleet.domain.orders.series import Line, Series, groups_of
from fleet.domain.reasons import Reason
from fleet.domain.scheduling import first_after
from fleet.domain.timeline import EntryKind

# A node may go down this much earlier than Scheduled states.
EARLY = timedelta(minutes=3)
# Scheduled comes up to this much ahead; without a start time it is all that is known of it.
NOTICE = timedelta(minutes=15)
# How far two statements of a start may lie apart and mean the same.
SAME_START = timedelta(minutes=10)
# Announced and nothing followed until this long after its start: it never started.
NEVER_STARTED_AFTER = timedelta(minutes=15)
# Nothing more was heard for this long: the end was not seen.
END_NOT_SEEN_AFTER = timedelta(minutes=30)
# A notification this long after an operation's last one concerns another operation.
LONGEST = timedelta(hours=3)
# How far the order in which things were heard may be wrong.
SLACK = timedelta(seconds=60)


class MaintenanceStatus(StrEnum):
    ANNOUNCED = "ANNOUNCED"
    STARTING = "STARTING"
    UNDER_WAY = "UNDER_WAY"
    FAILED_OVER = "FAILED_OVER"
    ENDED = "ENDED"
    END_NOT_SEEN = "END_NOT_SEEN"
    NEVER_STARTED = "NEVER_STARTED"


ACTIVE = (
    MaintenanceStatus.ANNOUNCED,
    MaintenanceStatus.STARTING,
    MaintenanceStatus.UNDER_WAY,
    MaintenanceStatus.FAILED_OVER,
)


def shard_of(*, ssl_port: int | None, non_ssl_port: int | None, divisor: int) -> int | None:
    """Return the shard number of a Redis node from its ports; None if no port is stated or in Azure's ranges."""
    for port, base in ((ssl_port, 15000), (non_ssl_port, 13000)):
        if port is not None and base <= port < base + 1000:
            return (port - base) // max(1, divisor)
    return None


ORDER = {
    NotificationType.SCHEDULED: 0,
    NotificationType.STARTING: 1,
    NotificationType.START: 2,
    NotificationType.FAILOVER_COMPLETE: 3,
    NotificationType.SCALE_COMPLETE: 4,
    NotificationType.ENDED: 5,
}


@dataclass(frozen=True, slots=True)
class Heard:
    """One received notification. `key` is unique; `at` is when an agent first received it."""

    key: str
    type: str | None
    at: datetime
    start_time: datetime | None = None
    is_replica: bool | None = None
    port: int | None = None

    @property
    def kind(self) -> NotificationType | None:
        return TYPES.get(self.type.lower()) if self.type else None

    @property
    def order(self) -> tuple[datetime, int, str]:
        return (self.at, ORDER[self.kind] if self.kind else len(ORDER), self.key)

    @property
    def step_at(self) -> datetime:
        """When the announced step happens, as stated or estimated."""
        if self.start_time is not None:
            return self.start_time
        return self.at + NOTICE if self.kind is NotificationType.SCHEDULED else self.at


@dataclass(slots=True)
class Operation:
    """One maintenance of a cache node.

    `node_port`: the node; `partner_port`: the node that was promoted. `expected_at`: announced start, `approximate`
    until Starting was received. Each `…_at`: when that notification was first received, but `ended_at` is the end that
    Ended states, if any. `was_replica`, `is_replica`: role of the node before and after.
    """

    members: list[Heard] = field(default_factory=list)
    node_port: int | None = None
    partner_port: int | None = None
    expected_at: datetime | None = None
    approximate: bool = False
    scheduled_at: datetime | None = None
    starting_at: datetime | None = None
    start_at: datetime | None = None
    failover_at: datetime | None = None
    scaled_at: datetime | None = None
    ended_at: datetime | None = None
    was_replica: bool | None = None
    is_replica: bool | None = None

    @property
    def first_at(self) -> datetime:
        return self.members[0].at

    @property
    def last_at(self) -> datetime:
        return max(member.at for member in self.members)

    @property
    def began_at(self) -> datetime | None:
        """When the node stopped, accurate to some seconds; None if unknown."""
        if self.start_at is not None:
            return self.start_at
        if self.starting_at is not None:
            return self.expected_at
        return self.failover_at

    @property
    def swapped(self) -> bool:
        """Whether the maintenance affected a primary, so that the former replica is now the primary."""
        return self.failover_at is not None or (self.was_replica is False and self.is_replica is True)

    def concerns(self, heard: Heard) -> bool:
        """Return whether this notification can belong to this maintenance."""
        kind = heard.kind
        if kind is None:
            return heard.at - self.last_at <= NOTICE
        if heard.port is not None and kind is not NotificationType.SCALE_COMPLETE:
            # FailoverComplete names the partner that was promoted, every other type the node itself. Where both nodes
            # of a shard are maintained at the same time, this tells whose failover it was, also where lines are lost.
            is_partner = kind is NotificationType.FAILOVER_COMPLETE
            own, other = (self.partner_port, self.node_port) if is_partner else (self.node_port, self.partner_port)
            if heard.port == other or (not is_partner and own not in (None, heard.port)):
                return False
        if kind is NotificationType.ENDED:
            if self.ended_at is not None:
                return abs(heard.step_at - self.ended_at) <= SLACK
            begins = self.expected_at or self.first_at
            return begins - EARLY - SLACK <= heard.step_at and heard.at - max(begins, self.last_at) <= LONGEST
        if kind is NotificationType.SCALE_COMPLETE:
            return self.ended_at is None and heard.at - self.last_at <= LONGEST
        # An ended operation does not begin again: later notifications concern the next one.
        over = self.failover_at or self.scaled_at
        if self.ended_at is not None and heard.at > self.ended_at + SLACK:
            return kind is not NotificationType.FAILOVER_COMPLETE and heard.start_time == self.expected_at is not None
        if kind is NotificationType.FAILOVER_COMPLETE:
            begins = self.expected_at or self.first_at
            return begins - EARLY - SLACK <= heard.at <= max(begins, self.last_at) + END_NOT_SEEN_AFTER
        if over is not None and heard.step_at > over + SLACK:
            return False
        if kind is NotificationType.START:
            if self.start_at is not None and heard.at - self.start_at > SAME_START:
                return False
            begins = self.expected_at or self.first_at
            return begins - EARLY - SLACK <= heard.at <= begins + NEVER_STARTED_AFTER
        return self.expected_at is None or abs(heard.step_at - self.expected_at) <= SAME_START

    def distance(self, heard: Heard) -> tuple[bool, timedelta]:
        """Return how far a notification is from this maintenance. It is assigned to the maintenance with the smallest
        value.
        """
        names = self.partner_port if heard.kind is NotificationType.FAILOVER_COMPLETE else self.node_port
        return (heard.port != names, abs(heard.step_at - (self.expected_at or self.last_at)))

    def take(self, heard: Heard) -> None:
        """Add a notification to the maintenance. Call it in the order in which the notifications were received."""
        self.members.append(heard)
        kind = heard.kind
        if kind is None:
            return
        if kind is NotificationType.FAILOVER_COMPLETE:
            self.failover_at = self.failover_at or heard.at
            if heard.port is not None and heard.port != self.node_port:
                self.partner_port = heard.port
            return
        if kind is NotificationType.SCALE_COMPLETE:
            self.scaled_at = self.scaled_at or heard.at
            return
        if self.node_port is None:
            self.node_port = heard.port
        if kind is NotificationType.ENDED:
            self.ended_at = self.ended_at or heard.step_at
            if heard.is_replica is not None:
                self.is_replica = heard.is_replica
            return
        if self.was_replica is None:
            self.was_replica = heard.is_replica
        if kind is NotificationType.SCHEDULED:
            self.scheduled_at = self.scheduled_at or heard.at
            if self.starting_at is None:
                self.expected_at, self.approximate = heard.step_at, True
        elif kind is NotificationType.STARTING:
            self.starting_at = self.starting_at or heard.at
            self.expected_at, self.approximate = heard.start_time or self.expected_at or heard.step_at, False
        else:
            self.start_at = self.start_at or heard.at


def operations_of(heard: Iterable[Heard]) -> list[Operation]:
    """Group the notifications about one shard of a cache into maintenances, in the order of their first notification.

    A notification of an undocumented type is added to a maintenance but never begins one.
    """
    found: list[Operation] = []
    for one in sorted(set(heard), key=lambda heard: heard.order):
        fitting = [operation for operation in found if operation.concerns(one)]
        if fitting:
            min(fitting, key=lambda operation: operation.distance(one)).take(one)
        elif one.kind is not None:
            operation = Operation()
            operation.take(one)
            found.append(operation)
    return found


def due_at(operation: Operation, *, now: datetime) -> datetime:
    """Return when the status of the maintenance may change although no notification arrives."""
    last = max(operation.last_at, operation.began_at or operation.last_at)
    times = [operation.began_at, last + END_NOT_SEEN_AFTER]
    announced = operation.expected_at or (operation.scheduled_at and operation.scheduled_at + NOTICE)
    if announced is not None:
        times.append(announced + NEVER_STARTED_AFTER)
    return first_after(now, times)


def status_of(operation: Operation, *, now: datetime) -> MaintenanceStatus:
    """Return the current status of the maintenance. A timeout ends each maintenance whose end was not received."""
    if operation.ended_at is not None:
        return MaintenanceStatus.ENDED
    begun = operation.starting_at or operation.start_at or operation.failover_at
    if begun is None:
        if operation.scheduled_at is None:
            # Nodes were added or removed: the notification of it is all there is.
            return MaintenanceStatus.ENDED
        expected = operation.expected_at or operation.scheduled_at + NOTICE
        over = now >= expected + NEVER_STARTED_AFTER
        if operation.scaled_at is not None:
            return MaintenanceStatus.ENDED
        return MaintenanceStatus.NEVER_STARTED if over else MaintenanceStatus.ANNOUNCED
    last = max(operation.last_at, operation.began_at or begun)
    if operation.scaled_at is not None:
        return MaintenanceStatus.ENDED
    if now >= last + END_NOT_SEEN_AFTER:
        return MaintenanceStatus.END_NOT_SEEN
    if operation.failover_at is not None:
        return MaintenanceStatus.FAILED_OVER
    if operation.start_at is not None or (operation.began_at is not None and now >= operation.began_at):
        return MaintenanceStatus.UNDER_WAY
    return MaintenanceStatus.STARTING


# The assumed length of an impact of an event or a maintenance that has not ended and has no stated length.
ASSUMED = timedelta(minutes=15)

# Listeners of a cache that are cut off and return together are shown as one line: each writes two entries.

LOST = (EntryKind.CACHE_LOST, EntryKind.CACHE_LOST_UNANNOUNCED)
KINDS = (*LOST, EntryKind.CACHE_LISTENED)
# What happens so soon after the last is of one outage.
TOGETHER = timedelta(seconds=60)
# Fewer machines are listed one by one.
LEAST = 2


def outages_of(lines: Sequence[Line]) -> dict[int, Series]:
    """Group timeline entries about listeners that lost their connection together, so that they are shown as one line.

    Return the group of each such entry, by the entry's id.
    """
    by_host: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.kind in KINDS and "host" in line.data:
            by_host[str(line.data["host"])].append(line)
    found: dict[int, Series] = {}
    for host, of_host in by_host.items():
        found |= groups_of(of_host, text_of=partial(_text_of, host), within=TOGETHER)
    return found


def _text_of(host: str, group: Sequence[Line]) -> Reason | None:
    if len({line.actor for line in group}) < LEAST:
        return None
    lost: dict[str, datetime] = {}
    back: dict[str, datetime] = {}
    for line in group:
        (lost if line.kind in LOST else back)[line.actor] = line.at
    spans = ((back[name] - at).total_seconds() for name, at in lost.items() if name in back)
    return Reason(
        "listeners-cut-off" if lost else "listeners-came",
        host=host,
        count=len(lost or back),
        away=sorted(name for name, at in lost.items() if name not in back or back[name] < at),
        seconds=max((seconds for seconds in spans if seconds >= 0), default=None),
        unannounced=any(line.kind is EntryKind.CACHE_LOST_UNANNOUNCED for line in group),
    )
