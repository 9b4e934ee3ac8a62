"""One event as a post-mortem reads it: what it came to, who decided what, and what Azure said word for word."""

from dataclasses import dataclass
from datetime import datetime

from fleet.domain.history import Decided, Happened, decided, happened
from fleet.domain.reason import Reason
from fleet.domain.shapes import like
from fleet.models import Claim, Hold
from fleet.models.facts.events import hold_reason, name_of
from fleet.projections import intake
from fleet.projections.approvals.rows import ApprovalRow
from fleet.projections.events.detail import EventDetail, event_detail
from fleet.projections.intake import EventDocuments
from fleet.projections.sight import seen
from fleet.projections.timeline import entries
from fleet.projections.timeline.entries import TimelineRow

# Entries in a report; the timeline has them all.
MOST = 500


@dataclass(frozen=True, slots=True)
class LocalWord:
    """Somebody was on it (a claim), or left it to Azure (a hold); `ended_at` once it was taken back, or is over."""

    kind: str
    by: Reason | str
    at: datetime
    said: Reason | str
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class EventReport:
    """`timeline` holds all that happened, oldest first; `more` is True where that was too much for a report."""

    verdict: Reason
    detail: EventDetail
    local: tuple[LocalWord, ...]
    timeline: tuple[TimelineRow, ...]
    more: bool
    raw: EventDocuments
    made_at: datetime

    @property
    def acts(self) -> tuple[TimelineRow, ...]:
        """What people and rules did about it."""
        return tuple(row for row in self.timeline if row.is_act)


def event_report(*, event_id: str, now: datetime) -> EventReport | None:
    """The report of one event, by its EventId in any case. Seven queries more than its page's."""
    detail = event_detail(event_id=event_id, now=now)
    raw = intake.for_event(event_id=event_id)
    if detail is None or raw is None:
        return None
    story = entries.for_event(event_id=event_id, size=MOST)
    local = _local(detail.event.id)
    return EventReport(
        verdict=_verdict(detail, local),
        detail=detail,
        local=local,
        timeline=story.results,
        more=story.next is not None,
        raw=raw,
        made_at=now,
    )


def _local(event_pk: int) -> tuple[LocalWord, ...]:
    claims = seen(Claim).filter(event=event_pk).select_related("by")
    holds = seen(Hold).filter(event=event_pk).select_related("by", "rule")
    found = [like(LocalWord, row, kind="claim", by=row.by.get_username(), said=row.comment) for row in claims]
    found += [like(LocalWord, row, kind="hold", by=name_of(row), said=hold_reason(row.reason)) for row in holds]
    return tuple(sorted(found, key=lambda word: word.at))


def _counts(rows: tuple[ApprovalRow, ...]) -> ApprovalRow | None:
    """The approval by which an event is remembered: the one that Azure accepted, else the newest."""
    return next((row for row in rows if row.accepted_at), rows[0] if rows else None)


def _verdict(detail: EventDetail, local: tuple[LocalWord, ...]) -> Reason:
    event, approval = detail.event, _counts(detail.approvals)
    holds = [word for word in local if word.kind == "hold"]
    came = decided(
        approval.state if approval else None,
        accepted=approval is not None and approval.accepted_at is not None,
        held=bool(holds),
    )
    by: Reason | str = ""
    if came is Decided.LEFT:
        by = holds[-1].by
    elif approval is not None:
        by = approval.by
    agreed = approval.accepted_at if approval and came is Decided.ACCEPTED else None
    lead = (event.not_before - agreed).total_seconds() if event.not_before and agreed else None
    then = happened(event.status, started=event.started_at is not None, ended_as=event.ended_as)
    return Reason(
        "event-verdict",
        event_type=event.event_type,
        resources=list(event.resources),
        set=event.set.label,
        drill=event.drill,
        notice=event.notice_seconds,
        decided=came.value,
        by=by,
        lead=lead,
        elsewhere=event.approved_elsewhere,
        happened=then.value,
        took=event.started_seconds if then is Happened.RAN else None,
        inferred=event.certainty == "inferred",
    )
