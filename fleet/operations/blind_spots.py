"""Detects when blind spots begin and end, and writes a timeline entry for each, from which notifications are sent."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from django.db import transaction

from fleet.domain.actor import DRYDOCK
from fleet.domain.blind_spots import AT_ONCE, MOST_ALONE, MOST_NAMES, OPENING, SETTLES
from fleet.domain.clock import seconds_since
from fleet.domain.shapes import grouped
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, LastRun, OpenTrouble, WrongClock
from fleet.models.blind_spots import trouble
from fleet.models.facts.blind_spots import is_any_agent_heard, troubles
from fleet.models.reconcile import RECENT
from fleet.operations.locks import Lock, try_take
from fleet.operations.timeline.entries import entry as new_entry
from fleet.operations.timeline.entries import write

RUN = "troubles"
# Two comparisons at one time are one too many.
LEAST_PAUSE = timedelta(seconds=10)
# Of annexes: each finds troubles of its own.
LOOKS: list[Callable[..., Iterable[OpenTrouble]]] = []


def compare(*, now: datetime, via: str) -> bool:
    """Compare the current blind spots with the stored ones, and record changes. The first run only stores them.

    `via` is the process that runs it. Return whether it ran: not while another run is under way, or was a moment ago.
    """
    # In separate transactions: these checks may read much, and no other process waits for them.
    of_annexes = [one for look in LOOKS for one in look(now=now, via=via)]
    with transaction.atomic():
        if not try_take(Lock.TROUBLES):
            return False
        run = LastRun.objects.filter(name=RUN).first()
        if run is not None and seconds_since(run.ran_at, now=now) < LEAST_PAUSE.total_seconds():
            return False
        LastRun.objects.update_or_create(name=RUN, defaults={"ran_at": now, "via": via})
        WrongClock.objects.filter(seen_at__lte=now - RECENT).delete()
        known = {row.key: row for row in OpenTrouble.objects.all()}
        found = {one.key: one for one in [*_found(known, now=now), *of_annexes]}
        write(_begun(known, found, first=run is None, now=now) + _over(known, found, now=now))
    return True


def _found(known: dict[str, OpenTrouble], *, now: datetime) -> Iterable[OpenTrouble]:
    """Return the current blind spots. While no agent is live, those of machines remain as stored, because Drydock was
    down.
    """
    found = list(troubles(now=now))
    if not is_any_agent_heard(now=now):
        found = [one for one in found if one.availability_set_id is None and one.cache_id is None]
        found += [row for row in known.values() if row.availability_set_id or row.cache_id]
    # All agents of a set without a live agent are silent: the one implies the others.
    dark = {one.availability_set_id for one in found if one.code == "set-unwatched"}
    return [one for one in found if one.code != "agent-silent" or one.availability_set_id not in dark]


def together(troubles: Iterable[OpenTrouble]) -> list[OpenTrouble]:
    """Merge many blind spots with the same code into one notification, which names some of them."""
    by_code = grouped((one.code, one) for one in troubles)
    found = []
    for code, several in by_code.items():
        if len(several) <= MOST_ALONE:
            found += several
        else:
            names = sorted(one.of for one in several)[:MOST_NAMES]
            found.append(trouble(code, {"places": len(several)}, names=names, count=len(several)))
    return found


def _begun(known: dict[str, OpenTrouble], found: dict[str, OpenTrouble], *, first: bool, now: datetime) -> list[Entry]:
    new = [one for key, one in found.items() if key not in known]
    for one in new:
        one.since, one.recorded_at = now, now if first else None
    OpenTrouble.objects.bulk_create(new)
    if first:
        return []
    settled = [
        key
        for key, one in found.items()
        if (key in known and known[key].recorded_at is None and now - known[key].since >= SETTLES)
        or (key not in known and one.code in AT_ONCE)
    ]
    OpenTrouble.objects.filter(key__in=settled).update(recorded_at=now)
    return [_entry(OPENING[one.code], one, now=now) for one in together(found[key] for key in settled)]


def _over(known: dict[str, OpenTrouble], found: dict[str, OpenTrouble], *, now: datetime) -> list[Entry]:
    over = [row for key, row in known.items() if key not in found]
    OpenTrouble.objects.filter(key__in=[row.key for row in over]).delete()
    ended = together(row for row in over if row.recorded_at is not None)
    return [_entry(EntryKind.COVERAGE_CLOSED, one, now=now) for one in ended]


def _entry(kind: EntryKind, one: OpenTrouble, *, now: datetime) -> Entry:
    return new_entry(
        kind,
        DRYDOCK,
        at=now,
        set_id=one.availability_set_id,
        cache_id=one.cache_id,
        code=one.code,
        trouble=one.key,
        of=one.of,
        names=one.names,
        count=one.count,
        values=one.values,
        # Blind spots that were notified together are resolved together.
        told_at=now,
    )
