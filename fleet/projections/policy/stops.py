"""The switch that stops all approvals, as people see it."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import F

from fleet.domain.shapes import like
from fleet.domain.states import ApprovalState
from fleet.domain.times import iso
from fleet.models import Approval, Stop
from fleet.projections.sight import seen

MOST = 20
UNASKED = (ApprovalState.PROPOSED, ApprovalState.WAITING, ApprovalState.GRANTED, ApprovalState.RELAYING)


@dataclass(frozen=True, slots=True)
class StopRow:
    """Who stopped all approvals, when and why, and who lifted that; `lifted_at` is None as long as it holds."""

    stopped_at: datetime
    stopped_by: str
    why: str
    lifted_at: datetime | None
    lifted_by: str
    lifted_why: str

    @property
    def version(self) -> str:
        """When it began, as the API writes it: the form that lifts it sends it back."""
        return iso(self.stopped_at)


@dataclass(frozen=True, slots=True)
class StopState:
    """`current`: the stop that holds now. `pending` approvals have been decided and not accepted by Azure: a stop keeps
    them back, except for orders that an agent holds already; lifting it lets them go. `past` are the newest that are
    over.
    """

    current: StopRow | None
    pending: int
    past: tuple[StopRow, ...]

    @property
    def stopped(self) -> bool:
        return self.current is not None


def current() -> StopRow | None:
    """The stop that holds now. One query."""
    found = seen(Stop).filter(lifted_at__isnull=True).first()
    return None if found is None else like(StopRow, found)


@dataclass(frozen=True, slots=True)
class Banner:
    """What the head of every page asks: `row` is the stop that holds now."""

    row: StopRow | None


def banner() -> Banner:
    return Banner(row=current())


def state() -> StopState:
    """The switch as it stands. Three queries."""
    past = seen(Stop).filter(lifted_at__isnull=False).order_by(F("stopped_at").desc())[:MOST]
    pending = seen(Approval).filter(state__in=[one.value for one in UNASKED]).count()
    return StopState(current=current(), pending=pending, past=tuple(like(StopRow, row) for row in past))
