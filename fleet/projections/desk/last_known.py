"""The last queue that this process has read: for the page that is shown while the database is away."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, OuterRef, Subquery

from fleet.domain.orders.by_hand import linux_command, windows_command
from fleet.domain.people import Place
from fleet.domain.states import LIVE_APPROVALS, EventStatus
from fleet.models import Approval, ScheduledEvent, Sighting
from fleet.models.facts.events import place_of
from fleet.projections.events.rows import OPEN
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.sight import seen

MOST = 100


@dataclass(frozen=True, slots=True)
class LastEvent:
    """An open event as it was then; `linux` and `windows` are the commands that start it by hand on a machine of its
    set.
    """

    event_id: str
    event_type: str
    resources: tuple[str, ...]
    set: SetRef
    place: Place
    started: bool
    not_before: datetime | None
    decided: bool
    linux: str
    windows: str


@dataclass(frozen=True, slots=True)
class LastQueue:
    """`read_at` is when it was so. `more`: there were further events behind them."""

    events: tuple[LastEvent, ...]
    read_at: datetime
    more: bool


_kept: list[LastQueue] = []


def refresh(*, now: datetime) -> None:
    """Read it again and keep it. One query."""
    _kept[:] = [read(now=now)]


def kept(may_see: Callable[[Place], bool]) -> LastQueue | None:
    """What was read last, as far as somebody may see it; None where this process has read nothing yet."""
    found = _kept[0] if _kept else None
    if found is None:
        return None
    return LastQueue(tuple(event for event in found.events if may_see(event.place)), found.read_at, found.more)


def read(*, now: datetime) -> LastQueue:
    """The first open events by time left, without drills. One query."""
    live = [state.value for state in LIVE_APPROVALS]
    spelled = seen(Sighting).filter(event=OuterRef("pk"), gone_at__isnull=True, foreign=False).values("spelled")
    rows = (
        seen(ScheduledEvent)
        .filter(status__in=OPEN, drill=False)
        .select_related("availability_set")
        .annotate(
            decided=Exists(seen(Approval).filter(event=OuterRef("pk"), state__in=live)), spelled=Subquery(spelled[:1])
        )
        .order_by("not_before", "pk")[: MOST + 1]
    )
    found = [
        LastEvent(
            event_id=row.event_id,
            event_type=row.event_type,
            resources=tuple(row.resources),
            set=set_ref(row.availability_set),
            place=place_of(row.availability_set),
            started=row.status == EventStatus.STARTED.value,
            not_before=row.not_before,
            decided=row.decided,
            linux=linux_command(row.spelled or row.event_id),
            windows=windows_command(row.spelled or row.event_id),
        )
        for row in rows
    ]
    return LastQueue(tuple(found[:MOST]), now, len(found) > MOST)
