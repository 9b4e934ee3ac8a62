"""Deciding: the one door through which an approval comes into being, and the one through which it is taken back."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from fleet.domain.entries import EntryKind
from fleet.domain.guards import EventFacts, Guard, guards, who_is_asked
from fleet.domain.states import LOOKS, ApprovalState
from fleet.models import Approval, Order, ScheduledEvent
from fleet.models.facts import load_facts
from fleet.operations import bells, folding, relaying
from fleet.operations.entries import entry, write
from fleet.operations.errors import Refused
from fleet.operations.rights import require_approve

# Guards that are a problem type of their own; every other guard that blocks answers `guarded`.
OWN_TYPES = {
    "already-decided": "already-decided",
    "too-late": "too-late",
    "event-not-open": "too-late",
    "version-changed": "version-changed",
}
MAX_COMMENT = 2000


def grant(
    *,
    event_id: str,
    by: User,
    via: str,
    comment: str,
    now: datetime,
    expected_version: int | None = None,
    token_name: str = "",
) -> Approval:
    """Decide that this event starts now. The approval and its first order are one transaction.

    `via` is `page` or `api`. Raises Refused: `not-permitted`, `validation`, `unknown-event`, `already-decided`
    (details `by`, `at`, `approval`), `too-late`, `version-changed` (details `version`), `guarded` (details `guards`).
    """
    require_approve(by)
    comment = comment.replace("\x00", "").strip()
    if len(comment) > MAX_COMMENT:
        raise Refused("validation", f"The comment is longer than {MAX_COMMENT} characters.")
    try:
        with transaction.atomic():
            return _grant(event_id, by, via, comment, now, expected_version, token_name)
    except IntegrityError as error:
        # The database holds one live approval per event, whatever this code believes.
        if "one_live_approval_per_event" not in str(error):
            raise
        raise Refused("already-decided", "Somebody has approved this event already.") from error


def _grant(
    event_id: str, by: User, via: str, comment: str, now: datetime, expected_version: int | None, token_name: str
) -> Approval:
    event_pk = ScheduledEvent.objects.filter(event_id=event_id.strip().upper()).values_list("pk", flat=True).first()
    if event_pk is None:
        raise Refused("unknown-event", "No machine has reported an event of this id.")
    events = folding.lock([event_pk])
    folding.refold(events, now=now)
    facts = load_facts([event_pk], now=now)[event_pk]
    found = guards(facts, now=now, expected_version=expected_version)
    _refuse(facts, [guard for guard in found if guard.blocks])
    approval = Approval.objects.create(
        event_id=event_pk,
        state=ApprovalState.GRANTED.value,
        decided_by=by,
        via=via,
        token_name=token_name,
        comment=comment,
        event_version=facts.version,
        granted_at=now,
    )
    write(
        [
            entry(
                EntryKind.APPROVAL_GRANTED,
                f"{by.get_username()} approved: start now." + (f" “{comment}”" if comment else ""),
                at=now,
                event_id=event_pk,
                set_id=facts.set_id,
                approval_id=approval.pk,
                actor=by.get_username(),
                via=via,
                comment=comment,
                token=token_name,
                warnings=[guard.code for guard in found],
            )
        ]
    )
    relaying.offer(approval, facts, who_is_asked(facts)[0], now=now)
    transaction.on_commit(lambda: bells.hint_relay(approval.pk))
    return approval


def _refuse(facts: EventFacts, blocking: list[Guard]) -> None:
    if not blocking:
        return
    first = blocking[0]
    code = OWN_TYPES.get(first.code, "guarded")
    details: dict[str, object] = {
        "guards": [{"code": guard.code, "sentence": guard.sentence} for guard in blocking],
        "version": facts.version,
    }
    if code == "already-decided" and facts.decision is not None:
        details |= {
            "by": facts.decision.by,
            "at": facts.decision.at.isoformat().replace("+00:00", "Z") if facts.decision.at else None,
            "approval": facts.decision.approval_id,
        }
    raise Refused(code, first.sentence, **details)


@transaction.atomic
def withdraw(
    *, approval_id: int, by: User, via: str, now: datetime, comment: str = "", token_name: str = ""
) -> Approval:
    """Take an approval back before an order was offered.

    Raises Refused: `not-permitted`, `unknown-approval`, `too-late`.
    """
    require_approve(by)
    event_pk = Approval.objects.filter(pk=approval_id).values_list("event_id", flat=True).first()
    if event_pk is None:
        raise Refused("unknown-approval", "There is no approval of this id.")
    folding.lock([event_pk])
    approval = Approval.objects.select_related("event").get(pk=approval_id)
    if Order.objects.filter(approval=approval).exists():
        look = LOOKS[ApprovalState(approval.state)]
        raise Refused(
            "too-late", f"It cannot be withdrawn: an order was offered to a machine. It stands at: {look.label}."
        )
    facts = load_facts([event_pk], now=now)[event_pk]
    reason = f"{by.get_username()} withdrew it." + (f" “{comment}”" if comment else "")
    if not relaying.close(
        approval, ApprovalState.WITHDRAWN, facts=facts, now=now, reason=reason, actor=by.get_username(), via=via
    ):
        raise Refused("too-late", f"It cannot be withdrawn: it has ended as {approval.state}.")
    approval.refresh_from_db()
    return approval
