"""The fleet in a few numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Q
from django.db.models.functions import Greatest

from fleet.domain.desk import RelayHealth, Watch, doubts, relay_health
from fleet.domain.reason import Reason
from fleet.models import LastRun, Machine, ScheduledEvent
from fleet.models.facts.events import presence_limits
from fleet.projections.machines import agentless
from fleet.projections.refs import PresenceCounts
from fleet.projections.sight import seen


@dataclass(frozen=True, slots=True)
class Overview:
    """`last_event_at` is when the newest event was first seen. `without_agent` counts machines of an inventory.
    `doubts` say why seeing nothing may mean little.
    """

    presence: PresenceCounts
    without_agent: int
    relay: RelayHealth
    last_event_at: datetime | None
    doubts: tuple[Reason, ...]
    server_time: datetime

    @property
    def all_live(self) -> bool:
        return 0 < self.presence.live == self.presence.total


def overview(*, now: datetime) -> Overview:
    """Four queries."""
    real = seen(ScheduledEvent).filter(drill=False)
    newest = real.order_by("-first_seen_at", "-pk").values_list("first_seen_at", flat=True).first()
    presence = presence_counts(now=now)
    run = seen(LastRun).filter(name=LastRun.RECONCILE).first()
    watch = Watch(
        live=presence.live,
        agents=presence.total,
        ever=presence.all,
        without_agent=agentless().count(),
        reconciled_at=run.ran_at if run else None,
        reconciled_by=run.via if run else "",
    )
    return Overview(
        presence=presence,
        without_agent=watch.without_agent,
        relay=relay_health(watch, now=now),
        last_event_at=newest,
        doubts=doubts(watch, now=now),
        server_time=now,
    )


def presence_counts(*, now: datetime) -> PresenceCounts:
    """One query."""
    counted = seen(Machine).alias(polled=last_poll()).aggregate(**counts_by(now=now))
    return counts_of(counted)


def last_poll(machine: str = "") -> Greatest:
    """When a machine last had a good answer, as `polled` in `is_live` and `counts_by`: a document is one, too.
    `machine` leads to the machine, such as `machine__`.
    """
    # Postgres leaves NULL out of GREATEST.
    return Greatest(f"{machine}presence__last_poll_at", f"{machine}latest_document__at")


def is_live(*, now: datetime, machine: str = "") -> Q:
    """Whether a machine is live."""
    after = now - timedelta(seconds=presence_limits().live)
    there = now - timedelta(seconds=presence_limits().gone)
    heard = f"{machine}presence__last_heard_at"
    return Q(**{f"{machine}revoked_at": None, f"{heard}__gte": there, f"{heard}__gt": after, "polled__gt": after})


def counts_by(*, now: datetime) -> dict[str, Count]:
    """What to count of machines, for `counts_of`. The conditions say the same as
    `fleet.models.facts.events.machine_presence`; a test compares them.
    """
    limits = presence_limits()

    def after(seconds: float) -> datetime:
        return now - timedelta(seconds=seconds)

    heard, poll = "presence__last_heard_at", "polled"
    valid = Q(revoked_at=None)
    there = valid & Q(**{f"{heard}__gte": after(limits.gone)})
    fresh = there & Q(**{f"{heard}__gt": after(limits.late), f"{poll}__gt": after(limits.late)})
    # Heard, but never with a good poll, is silent; a poll that is too old makes it gone.
    not_gone = there & (Q(**{f"{poll}__gte": after(limits.gone)}) | Q(**{f"{poll}__isnull": True}))
    return {
        "live": Count("pk", filter=is_live(now=now)),
        "fresh": Count("pk", filter=fresh),
        "not_gone": Count("pk", filter=not_gone),
        "expected": Count("pk", filter=valid & Q(**{f"{heard}__isnull": True})),
        "everything": Count("pk"),
    }


def counts_of(counted: Mapping[str, int]) -> PresenceCounts:
    """What `counts_by` counted."""
    return PresenceCounts(
        live=counted["live"],
        late=counted["fresh"] - counted["live"],
        silent=counted["not_gone"] - counted["fresh"],
        gone=counted["everything"] - counted["not_gone"] - counted["expected"],
        expected=counted["expected"],
    )
