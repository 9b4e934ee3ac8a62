"""Reports of which one part has still to be taken, because somebody held what it is about when they came."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from fleet.domain.aside import HELD as HELD_KINDS
from fleet.domain.aside import What
from fleet.models import ScheduledEvent, SetAside, WaitingReport
from fleet.operations.intake.keep import KeptReport, load_kept

# Of what waits, so much is taken up by one tick.
MOST = 1000
# Of what was beyond the bounds of its machine, so much is tried again by one tick.
TRIED_AGAIN = 50
# What is held for so long is shown.
SHOWN_AFTER = timedelta(seconds=10)
# As Postgres calls it.
HELD = "LockNotAvailable"


def waiting(what: What, about: Collection[str], machine_ids: Collection[int] = ()) -> dict[str, list[WaitingReport]]:
    """What waits of these, and for anything that these machines (row ids) said, oldest first; by what it is about."""
    found: dict[str, list[WaitingReport]] = defaultdict(list)
    rows = WaitingReport.objects.filter(what=what.value)
    for row in (rows.filter(about__in=about) | rows.filter(machine_id__in=machine_ids)).order_by("pk"):
        found[row.about].append(row)
    return dict(found)


def claim(what: What, about: Collection[str]) -> list[WaitingReport]:
    """What waits of these, oldest first, for whoever takes it now: nobody else will."""
    rows = WaitingReport.objects.filter(what=what.value, about__in=about)
    return list(rows.select_for_update().order_by("pk"))


def kinds() -> set[What]:
    """What is waited for at all."""
    return {What(what) for what in WaitingReport.objects.order_by().values_list("what", flat=True).distinct()}


def oldest(*, now: datetime) -> dict[What, set[str]]:
    """What the oldest reports that wait are about, save events that are set aside and not to be tried yet."""
    found: dict[What, set[str]] = defaultdict(set)
    held = WaitingReport.objects.filter(what__in=[what.value for what in HELD_KINDS])
    for what, about in held.order_by("pk").values_list("what", "about")[:MOST]:
        found[What(what)].add(about)
    if events := found.get(What.EVENT):
        later = SetAside.objects.filter(what=What.EVENT.value, next_try_at__gt=now)
        events -= set(ScheduledEvent.objects.filter(pk__in=later.values("row_id")).values_list("event_id", flat=True))
    return found


def waited_for(event_pks: Collection[int]) -> set[int]:
    """Those of these events (row ids) of which something is said that has still to be taken. One query."""
    waits = WaitingReport.objects.filter(what=What.EVENT.value)
    events = ScheduledEvent.objects.filter(pk__any=event_pks, event_id__in=waits.values("about"))
    return set(events.values_list("pk", flat=True))


def add(what: What, about: str, positions: Collection[tuple[int, int, int]], *, now: datetime) -> None:
    """What these reports (machine row id, epoch, seq) say about this has to wait."""
    WaitingReport.objects.bulk_create(
        [
            WaitingReport(what=what.value, about=about, machine_id=machine_id, epoch=epoch, seq=seq, since=now)
            for machine_id, epoch, seq in sorted(positions)
        ],
        ignore_conflicts=True,
    )


def taken(rows: Sequence[WaitingReport]) -> None:
    """These wait no longer."""
    if rows:
        WaitingReport.objects.filter(pk__in=[row.pk for row in rows]).delete()


def documents(most: int) -> list[WaitingReport]:
    """Of the machines whose documents are not wholly taken up, those that have waited longest, each with its newest."""
    newest: dict[int, WaitingReport] = {}
    rows = WaitingReport.objects.filter(what=What.DOCUMENT.value).order_by("since", "pk")
    for row in rows[:MOST]:
        known = newest.get(row.machine_id)
        if (known is not None and (row.epoch, row.seq) > (known.epoch, known.seq)) or (
            known is None and len(newest) < most
        ):
            newest[row.machine_id] = row
    return list(newest.values())


def beyond(*, before: datetime) -> list[WaitingReport]:
    """What was beyond the bounds of its machine and is tried again, for whoever takes it now."""
    rows = WaitingReport.objects.filter(what=What.BEYOND.value, since__lte=before)
    return list(rows.select_for_update(skip_locked=True).order_by("pk")[:TRIED_AGAIN])


def load(rows: Sequence[WaitingReport]) -> list[KeptReport]:
    """The reports themselves."""
    keys = {(row.machine_id, row.epoch, row.seq) for row in rows}
    return load_kept(keys) if keys else []


def show(*, now: datetime) -> None:
    """What has been held for long is set aside for all to see; it is not kept from being tried."""
    waits = WaitingReport.objects.filter(what=What.EVENT.value, since__lte=now - SHOWN_AFTER)
    held = list(ScheduledEvent.objects.filter(event_id__in=waits.values("about")).values_list("pk", flat=True))
    shown = SetAside.objects.filter(what=What.EVENT.value, reason=HELD)
    shown.exclude(row_id__in=held).delete()
    shown.update(next_try_at=now)
    SetAside.objects.bulk_create(
        [SetAside(what=What.EVENT.value, row_id=pk, since=now, reason=HELD, next_try_at=now) for pk in sorted(held)],
        ignore_conflicts=True,
    )
