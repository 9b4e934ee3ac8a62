"""Routes: who is told what. Pure: which of them want a moment, and when they want to be told."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from typing import Any

from fleet.domain.messages.moments import CORRECTED_BY_LATE_ANSWER, PERSONAL, Moment, OnlyIf
from fleet.domain.people import ADMIN, Place, Right, Rights, in_scopes, speaks_of
from fleet.domain.policy.hours import in_hours
from fleet.domain.policy.values import among, stated, tidied
from fleet.domain.reason import Reason


@dataclass(frozen=True, slots=True)
class StandingRoute:
    """A route as it stands. The fields are those of the model `Route`; `route_id` is 0 while it is not saved."""

    name: str = ""
    channel_id: int | None = None
    moments: tuple[str, ...] = ()
    event_types: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    severities: tuple[str, ...] = ()
    set_pattern: str = ""
    service: str = ""
    resource_group: str = ""
    weekdays: tuple[int, ...] = ()
    from_time: time | None = None
    until_time: time | None = None
    time_zone: str = "UTC"
    unclaimed_after_seconds: int | None = None
    before_decide_by_seconds: int | None = None
    enabled: bool = True
    deleted: bool = False
    owner_id: int | None = None
    position: int = 0
    version: int = 1
    route_id: int = 0

    @property
    def only_if(self) -> OnlyIf:
        """What must still hold when a step of escalation is told; `ALWAYS` for what is no step."""
        if self.unclaimed_after_seconds is not None:
            return OnlyIf.UNCLAIMED
        if self.before_decide_by_seconds is not None:
            return OnlyIf.UNDECIDED
        return OnlyIf.ALWAYS


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """What routes judge of one moment. `at` is when it happened; of a first sighting, what steps of escalation count
    from. `decide_by` is the event's deadline as it is known now.

    `event_type` and `source` are empty for what is about no event. `place` is that of its set; of a cache it has the
    service alone (`Place("cache", "", service)`); None for what is about the installation. `by` is who did it.
    """

    moment: Moment
    at: datetime
    severity: str
    event_type: str = ""
    source: str = ""
    place: Place | None = None
    drill: bool = False
    decide_by: datetime | None = None
    by: str = ""


# What people say of a route; the rest is its place and its life.
ROUTE_SAID = (
    "name", "channel_id", "moments", "event_types", "sources", "severities", "set_pattern", "service",
    "resource_group", "weekdays", "from_time", "until_time", "time_zone", "unclaimed_after_seconds",
    "before_decide_by_seconds",
)  # fmt: skip


def changed_route(route: StandingRoute, fields: Mapping[str, Any]) -> StandingRoute:
    """The route with what somebody says of it (of `ROUTE_SAID`), tidied."""
    return replace(route, **{name: tidied(value) for name, value in fields.items()})


# Which moments start (or move) the clock of a step of escalation; its own `moments` stay empty.
CLOCKED: dict[OnlyIf, tuple[Moment, ...]] = {
    OnlyIf.UNCLAIMED: (Moment.FIRST_SEEN,),
    OnlyIf.UNDECIDED: (Moment.FIRST_SEEN, Moment.CHANGED),
}


def matches(route: StandingRoute, facts: MessageFacts, *, now: datetime) -> bool:
    """Whether a route in force wants this moment. Its hours are those in which it would be told (`told_at`).

    A route that names types or sources of events, or places, says nothing of what has none. Drills are told as well.
    """
    if not route.enabled or route.deleted or not _of_moment(route, facts.moment):
        return False
    told = told_at(route, facts, now=now)
    return (
        told is not None
        and among(facts.event_type, route.event_types)
        and among(facts.source, route.sources)
        and among(facts.severity, route.severities)
        and speaks_of(route, facts.place)
        and in_hours(route, told)
    )


def told_at(route: StandingRoute, facts: MessageFacts, *, now: datetime) -> datetime | None:
    """When this is due: now, or by the clock of a step of escalation, which may be past already. None for a step before
    *decide by* where there is none.
    """
    if route.unclaimed_after_seconds is not None:
        return facts.at + timedelta(seconds=route.unclaimed_after_seconds)
    if route.before_decide_by_seconds is not None:
        return facts.decide_by and facts.decide_by - timedelta(seconds=route.before_decide_by_seconds)
    return now


def may_be_told(rights: Rights, names: Collection[str], facts: MessageFacts, *, scoped: bool) -> bool:
    """Whether a person with these rights, whom entries call by one of these names, may hear of it through a channel of
    their own. With `scoped` reading they hear what lies in their scopes, as they see it; and a proposal is for those
    who may consent to it.
    """
    if not rights.may(Right.READ):
        return False
    narrowed = scoped and bool(rights.scopes) and ADMIN not in rights.groups
    if narrowed and (facts.place is None or not in_scopes(facts.place, rights.scopes)):
        return False
    if facts.moment is Moment.PROPOSED:
        return facts.by not in names and rights.may(Right.OVERRIDE, facts.place)
    return True


def route_wording(route: StandingRoute, channel: str) -> Reason:
    """The whole route, with its channel's name (empty: every channel of the installation), as entries keep it."""
    return Reason("route", channel=channel, **stated(route))


def _of_moment(route: StandingRoute, moment: Moment) -> bool:
    step = route.only_if
    if moment in PERSONAL:
        return False
    if step:
        return moment in CLOCKED[step]
    wanted = {moment, *(CORRECTED_BY_LATE_ANSWER if moment is Moment.CORRECTED else ())}
    return not route.moments or any(one.value in route.moments for one in wanted)
