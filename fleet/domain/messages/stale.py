"""When nobody needs to be told any more: since it happened, what it was about has moved on."""

from dataclasses import dataclass

from fleet.domain.messages.moments import Moment, OnlyIf
from fleet.domain.states import ApprovalState, EventStatus

# Of an event that is over only this is told: how it ended.
OF_THE_END = frozenset({Moment.ENDED})
# What a newer message of the same event to the same channel says as well.
SUPERSEDED_BY = {Moment.CHANGED: frozenset({Moment.CHANGED, Moment.STARTED, Moment.ENDED})}
# While Azure has not answered.
UNANSWERED = frozenset({ApprovalState.GRANTED, ApprovalState.RELAYING})
# A decision that came to nothing: that is told by a message of its own, or needs none.
CAME_TO_NOTHING = frozenset({ApprovalState.WITHDRAWN, ApprovalState.REFUSED, ApprovalState.LAPSED, ApprovalState.VOID})


@dataclass(frozen=True, slots=True)
class SubjectNow:
    """How what a message tells of is by now. `status` is None for what is no event.

    `approval` is the state of the approval that it tells of; `decided_anew`: another one is under way since.
    `undecided`: the event needs a decision; `claimed_by`: who is on it; `actor`: who did what is told; `held`: it is
    left to Azure. `newer` are the moments of newer messages of it for the same channel. `over`: of what is no event,
    that it has passed, or is there again after it had passed.
    """

    moment: Moment
    only_if: OnlyIf = OnlyIf.ALWAYS
    status: EventStatus | None = None
    approval: ApprovalState | None = None
    decided_anew: bool = False
    undecided: bool = False
    claimed_by: str = ""
    actor: str = ""
    held: bool = False
    watched: bool = False
    over: bool = False
    newer: frozenset[Moment] = frozenset()


def why_stale(now: SubjectNow) -> str:
    """A code, why this is not told any more; empty while it is."""
    if now.status is None:
        return "over" if now.over else ""
    if now.status is EventStatus.ENDED and now.moment not in OF_THE_END:
        return "event-over"
    if now.status is not EventStatus.ENDED and now.moment in OF_THE_END:
        return "event-open-again"
    return _condition(now) or _overtaken(now)


def _condition(now: SubjectNow) -> str:
    """Whether what a moment that is due by the clock waits for still holds."""
    if now.only_if in (OnlyIf.UNCLAIMED, OnlyIf.UNDECIDED) and not now.undecided:
        return "decided"
    if now.only_if is OnlyIf.UNCLAIMED and now.claimed_by:
        return "claimed"
    if now.only_if is OnlyIf.UNANSWERED and now.approval not in UNANSWERED:
        return "answered"
    return ""


def _overtaken(now: SubjectNow) -> str:
    """Whether something has happened since that makes it wrong, or needless."""
    if SUPERSEDED_BY.get(now.moment, frozenset()) & now.newer:
        return "superseded"
    match now.moment:
        case Moment.CLAIMED if now.claimed_by != now.actor:
            return "claim-ended"
        case Moment.PROPOSED if now.approval is not ApprovalState.PROPOSED:
            return "decided"
        case Moment.DECIDED if now.approval in CAME_TO_NOTHING:
            return "came-to-nothing"
        case Moment.DECIDED if now.approval is None and not now.held:
            return "hold-ended"
        case Moment.WITHDRAWN if now.decided_anew:
            return "decided"
        case Moment.OVERDUE if now.approval not in UNANSWERED:
            return "answered"
        case Moment.REFUSED if now.status is EventStatus.STARTED:
            return "started"
        case Moment.REFUSED if now.decided_anew:
            return "decided"
        case Moment.SET_UNWATCHED if now.watched:
            return "watched"
    return ""
