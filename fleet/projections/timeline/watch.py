"""When nobody is known to have watched a set: between what its agents said, and since they say nothing more."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection

from fleet.domain.intake.presence import LEAP
from fleet.projections.caches.coverage import Span

# While the backend does not hear of its polls, an agent reminds of its document every five minutes: two may be missing.
SILENCE = LEAP
# So many of each machine's newest reports and gaps are read. What lies before is not judged.
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
    """Times in which none of these machines (row id, last good poll) is known to have read what Azure announces: by its
    reports, and since leaps of its polls are written down wherever there is none. Before its first report a machine
    could not watch. One query.
    """
    ids = [pk for pk, _ in machines][:MOST_MACHINES]
    polls = dict(machines)
    told: dict[int, list[datetime]] = {pk: [] for pk in ids}
    gaps: dict[int, list[Span]] = {pk: [] for pk in ids}
    since: dict[int, datetime] = {}
    for pk, what, begins, ends in _known(ids):
        if what == "report":
            told[pk].append(begins)
        elif what == "gap":
            gaps[pk].append(Span(begins, ends))
        else:
            since[pk] = begins
    if not any(told.values()):
        return ()
    stretches = []
    for pk, times in told.items():
        times.sort()
        known, poll = [Span(at, at) for at in times], polls[pk]
        if known and poll is not None:
            full = [gaps[pk][-1].begin] if len(gaps[pk]) >= NEWEST else []
            known += _polled(max([since[pk], *full]), poll, gaps[pk]) if pk in since else [Span(poll, poll)]
        stretches += _stretches(known)
    # Where a machine has more reports than were read, nothing is claimed of the time before them.
    full = [times[0] for times in told.values() if len(times) >= NEWEST]
    first = max([min(times[0] for times in told.values() if times), *full])
    return _between(stretches, max(window.begin, first), min(window.end, now))


def _known(ids: Collection[int]) -> list[tuple[int, str, datetime, datetime]]:
    """Of these machines: each `report` of a document and each `gap`, newest first, and `since` when gaps are known."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT machine.id, newest.* FROM unnest(%(ids)s::bigint[]) AS machine (id)
            CROSS JOIN LATERAL (
                (SELECT 'report', at, at FROM fleet_observation_all
                 WHERE machine_id = machine.id AND document_id IS NOT NULL ORDER BY epoch DESC, seq DESC LIMIT %(most)s)
                UNION ALL
                (SELECT 'gap', begins_at, ends_at FROM fleet_pollgap
                 WHERE machine_id = machine.id ORDER BY ends_at DESC LIMIT %(most)s)
                UNION ALL
                (SELECT 'since', watched_from, watched_from FROM fleet_presencerow
                 WHERE machine_id = machine.id AND watched_from IS NOT NULL)
            ) AS newest
            """,
            {"ids": list(ids), "most": NEWEST},
        )
        return [(int(pk), str(what), begins, ends) for pk, what, begins, ends in cursor.fetchall()]


def _polled(begin: datetime, end: datetime, gaps: list[Span]) -> list[Span]:
    """From `begin` to the last poll, without the gaps."""
    found = []
    for gap in sorted(gaps, key=lambda gap: gap.begin):
        if gap.begin > begin:
            found.append(Span(begin, min(gap.begin, end)))
        begin = max(begin, gap.end)
    return [*found, Span(begin, end)] if begin <= end else found


def _stretches(known: list[Span]) -> list[Span]:
    """One after the other; silence longer than `SILENCE` parts two."""
    found: list[Span] = []
    for one in sorted(known, key=lambda one: one.begin):
        if found and one.begin - found[-1].end <= SILENCE:
            found[-1] = Span(found[-1].begin, max(found[-1].end, one.end))
        else:
            found.append(one)
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
