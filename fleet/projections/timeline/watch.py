"""When nobody is known to have watched a set: between what its agents said, and since they say nothing more."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection

from fleet.projections.caches.coverage import Span

# An agent reminds of its document every five minutes unless it is told otherwise: two may be missing.
SILENCE = timedelta(minutes=16)
# So many of each machine's newest reports are read: two days of reminders. What lies before is not judged.
NEWEST = 600
# Of how many machines at most; more of one set are not looked at, since one that watches is enough.
MOST_MACHINES = 30


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """From when to when is looked at."""

    begin: datetime
    end: datetime

    @property
    def length(self) -> timedelta:
        return self.end - self.begin


def unwatched(
    machines: Collection[tuple[int, datetime | None]], window: TimeWindow, *, now: datetime
) -> tuple[Span, ...]:
    """Times in which none of these machines (row id, last good poll) is known to have read what Azure announces. Before
    its first report a machine could not watch. One query.
    """
    ids = [pk for pk, _ in machines][:MOST_MACHINES]
    polls = dict(machines)
    told: dict[int, list[datetime]] = {pk: [] for pk in ids}
    for pk, at in _reports(ids):
        told[pk].append(at)
    if not any(told.values()):
        return ()
    stretches = []
    for pk, times in told.items():
        times.sort()
        known = [*times, *([poll] if times and (poll := polls[pk]) is not None and poll > times[-1] else [])]
        stretches += _stretches(known)
    # Where a machine has more reports than were read, nothing is claimed of the time before them.
    full = [times[0] for times in told.values() if len(times) >= NEWEST]
    first = max([min(times[0] for times in told.values() if times), *full])
    return _between(stretches, max(window.begin, first), min(window.end, now))


def _reports(ids: Collection[int]) -> list[tuple[int, datetime]]:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT machine.id, newest.at FROM unnest(%s::bigint[]) AS machine (id)
            CROSS JOIN LATERAL (
                SELECT at FROM fleet_observation
                WHERE machine_id = machine.id AND document_id IS NOT NULL ORDER BY epoch DESC, seq DESC LIMIT %s
            ) AS newest
            """,
            [list(ids), NEWEST],
        )
        return [(int(pk), at) for pk, at in cursor.fetchall()]


def _stretches(times: list[datetime]) -> list[Span]:
    """One after the other; silence longer than `SILENCE` parts two."""
    found: list[Span] = []
    for at in times:
        if found and at - found[-1].end <= SILENCE:
            found[-1] = Span(found[-1].begin, at)
        else:
            found.append(Span(at, at))
    return found


def _between(stretches: list[Span], begin: datetime, end: datetime) -> tuple[Span, ...]:
    gaps = []
    upto = begin
    for one in sorted(stretches, key=lambda one: one.begin):
        if one.begin > upto:
            gaps.append(Span(upto, min(one.begin, end)))
        upto = max(upto, one.end)
        if upto >= end:
            break
    if upto < end:
        gaps.append(Span(upto, end))
    # Between two reports silence is no gap; nor is the second since the last poll.
    return tuple(gap for gap in gaps if gap.seconds > 60)
