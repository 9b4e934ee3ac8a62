"""Claims, holds, notes and silences: what users and rules record about an event. They are never sent to Azure.

`expected` are accepted versions of the event; any other is refused with `precondition-failed`. `expected_version` is
the displayed version; any other is refused with `version-changed`.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from fleet.domain.actor import Actor, rule
from fleet.domain.approvals.guards import EventFacts
from fleet.domain.people import Right
from fleet.domain.policy.rules import refuse
from fleet.domain.reasons import Reason, Refused, require_found, stored_text
from fleet.domain.states import EventStatus
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.models import AvailabilitySet, Claim, Hold, ScheduledEvent
from fleet.models.people import rights_of
from fleet.operations.approvals import approve
from fleet.operations.approvals.approve import load_facts_locked, row_id
from fleet.operations.rights import acting, require
from fleet.operations.timeline.entries import tell

# Longest time for which notifications are held back.
MAX_SILENCE = timedelta(days=1)


@transaction.atomic
def claim(
    *,
    event_id: str,
    actor: Actor,
    now: datetime,
    take_over: bool = False,
    assign_to: str = "",
    expected: Collection[str] | None = None,
    expected_version: int | None = None,
) -> Claim:
    """Claim an event for the actor, or for the user named in `assign_to`, who must have the right to decide it.
    Claiming it again replaces the comment. Another user's claim needs `take_over`.

    Raises Refused: `not-permitted`, `validation`, `unknown-event`, `too-late` (the event has ended), `already-claimed`
    (details `by`, `at`, `comment`).
    """
    event_pk, facts, actor = _locked(event_id, actor, "claim", now=now, expected=expected, version=expected_version)
    if facts.status is EventStatus.ENDED:
        raise Refused("too-late", Reason("claim-event-over"))
    user = actor.person
    if assign_to not in ("", actor.name):
        # The refusal does not state whether the user exists.
        named = User.objects.filter(username=assign_to)
        users = [one for one in named if rights_of(one).may(Right.APPROVE, facts.place)]
        refuse([] if users else [("assign_to", Reason("claim-owner-without-right", name=assign_to))])
        user = users[0]
    standing = Claim.objects.filter(event_id=event_pk, ended_at__isnull=True).select_related("by").first()
    owner = standing.by.get_username() if standing is not None else None
    if standing is not None and standing.by_id == user.pk and actor.why in ("", standing.comment):
        return standing
    if standing is not None and owner not in (actor.name, user.get_username()) and not take_over:
        reason = Reason("claimed-already", by=owner, at=standing.at)
        raise Refused("already-claimed", reason, by=owner, at=iso(standing.at), comment=standing.comment)
    if standing is not None:
        _end(standing, now=now)
    row = Claim.objects.create(
        event_id=event_pk, by=user, via=actor.via, token_name=actor.token_name, comment=actor.why, at=now
    )
    _record(EntryKind.EVENT_CLAIMED, event_pk, facts, actor, before=owner, after=user.get_username(), now=now)
    return row


@transaction.atomic
def give_back(*, event_id: str, actor: Actor, now: datetime, expected: Collection[str] | None = None) -> Claim:
    """Release the claim of an event: the user's own one, or as an approver any claim.

    Raises Refused: `not-permitted`, `unknown-event`, `not-claimed`.
    """
    # Also a user who may no longer decide the event.
    event_pk, facts, actor = _locked(event_id, actor, "give-back", now=now, expected=expected, here=False)
    found = Claim.objects.filter(event_id=event_pk, ended_at__isnull=True).select_related("by").first()
    row = require_found(found, "not-claimed", Reason("not-claimed"))
    if row.by_id != actor.person.pk and not rights_of(actor.person).may(Right.OVERRIDE, facts.place):
        raise Refused("not-permitted", Reason("claim-of-another", by=row.by.get_username()))
    _end(row, now=now)
    _record(EntryKind.CLAIM_ENDED, event_pk, facts, actor, before=row.by.get_username(), now=now)
    return row


@transaction.atomic
def hold(
    *,
    event_id: str,
    actor: Actor,
    now: datetime,
    expected: Collection[str] | None = None,
    expected_version: int | None = None,
) -> Hold:
    """Leave an event to Azure: it is not approved, and rules ignore it. Nothing is sent to Azure.

    A rule's approval that is not sent yet is withdrawn. The actor must state a reason. Raises Refused: `not-permitted`,
    `validation`, `unknown-event`, `too-late`, `already-decided`, `already-held` (details `by`, `at`, `reason`).
    """
    event_pk, facts, actor = _locked(event_id, actor, "hold", now=now, expected=expected, version=expected_version)
    if not actor.why:
        raise Refused("validation", Reason("hold-without-reason"))
    facts = approve.supersede_rule_decision(event_pk, facts, actor, now=now)
    if facts.status is not EventStatus.SCHEDULED:
        raise Refused("too-late", Reason("hold-event-not-waiting"))
    decided, held = facts.decision, facts.hold
    if decided is not None:
        reason, at = Reason("hold-decided-already", by=decided.by), iso(decided.at) if decided.at else None
        raise Refused("already-decided", reason, by=decided.by, at=at, approval=decided.approval_id)
    if held is not None:
        reason = Reason("held-already", by=held.by)
        raise Refused("already-held", reason, by=held.by, at=iso(held.at), reason=held.reason)
    return hold_locked(event_pk, facts, actor, now=now)


def hold_locked(event_pk: int, facts: EventFacts, actor: Actor, *, now: datetime, withdrew_rule: bool = False) -> Hold:
    """Record a hold by a user or rule for a locked event (row id) that has no decision and no hold.

    `withdrew_rule`: a user withdrew a rule's approval, which becomes this hold.
    """
    by = {"by": actor.person, "rule": actor.rule, "rule_wording": stored_text(actor.wording), "reason": actor.why}
    row = Hold.objects.create(event_id=event_pk, via=actor.via, token_name=actor.token_name, at=now, **by)
    said: dict[str, Any] = {"rule": actor.wording, "withdrew_rule": withdrew_rule}
    _record(EntryKind.EVENT_HELD, event_pk, facts, actor, after=actor.name, now=now, **said)
    return row


@transaction.atomic
def lift(*, event_id: str, actor: Actor, now: datetime, expected: Collection[str] | None = None) -> Hold:
    """End the hold of an event. Raises Refused: `not-permitted`, `unknown-event`, `not-held`."""
    event_pk, facts, actor = _locked(event_id, actor, "lift", now=now, expected=expected)
    found = Hold.objects.filter(event_id=event_pk, ended_at__isnull=True).select_related("by", "rule").first()
    row = require_found(found, "not-held", Reason("not-held"))
    _end(row, now=now)
    holder = row.by.get_username() if row.by else rule(row.rule, row.rule_wording).name
    _record(EntryKind.HOLD_ENDED, event_pk, facts, actor, before=holder, now=now)
    return row


@transaction.atomic
def note(*, event_id: str, actor: Actor, now: datetime) -> None:
    """Record the actor's reason as a note on the timeline of an event, also after its end. Notes are never changed.

    Raises Refused: `not-permitted`, `validation`, `unknown-event`.
    """
    event_pk, facts, actor = _locked(event_id, actor, "note", now=now)
    if not actor.why:
        raise Refused("validation", Reason("note-empty"))
    tell(EntryKind.EVENT_NOTED, actor, at=now, event_id=event_pk, set_id=facts.set_id, after={"noted": True})


@transaction.atomic
def silence(*, event_id: str, whole_set: bool, until: datetime | None, actor: Actor, now: datetime) -> None:
    """Hold back notifications about an event, or about all events of its set, until this time; None ends the silence.

    Raises Refused: `not-permitted`, `validation`, `unknown-event`.
    """
    event_pk, facts, actor = _locked(event_id, actor, "silence", now=now)
    if until is not None and not now < until <= now + MAX_SILENCE:
        refuse([("until", Reason("silence-time", hours=MAX_SILENCE.total_seconds() // 3600))])
    of_event = ScheduledEvent.objects.filter(pk=event_pk)
    rows = AvailabilitySet.objects.filter(pk=facts.set_id).select_for_update() if whole_set else of_event
    before = rows.values_list("silenced_until", flat=True).get()
    if before == until or (until is None and before is not None and before <= now):
        return
    rows.update(silenced_until=until)
    was, became = {"silenced_until": before}, {"silenced_until": until}
    about = {"event_id": None if whole_set else event_pk, "set_id": facts.set_id, "before": was, "after": became}
    tell(EntryKind.SILENCE_CHANGED, actor, at=now, **about)


def _locked(
    event_id: str,
    actor: Actor,
    doing: str,
    *,
    now: datetime,
    expected: Collection[str] | None = None,
    version: int | None = None,
    here: bool = True,
) -> tuple[int, EventFacts, Actor]:
    """Lock an event and return the row id, the facts, and the actor with a cleaned reason.

    Raises Refused `not-permitted` if the actor does not have the right in any place, or with `here` not in that of the
    event; and `version-changed` if the displayed `version` is another one.
    """
    actor = acting(actor, Right.APPROVE, doing=doing)
    event_pk = row_id(event_id)
    facts = load_facts_locked(event_pk, now=now, expected=expected)
    if version not in (None, facts.version):
        raise Refused("version-changed", Reason("version-changed"), version=facts.version)
    if here:
        require(actor, Right.APPROVE, facts.place, doing=doing)
    return event_pk, facts, actor


def _end(row: Claim | Hold, *, now: datetime) -> None:
    type(row)._default_manager.filter(pk=row.pk, ended_at__isnull=True).update(ended_at=now)
    row.refresh_from_db(fields=["ended_at"])


def _record(
    kind: EntryKind,
    event_pk: int,
    facts: EventFacts,
    actor: Actor,
    *,
    now: datetime,
    before: str | None = None,
    after: str | None = None,
    **data: Any,
) -> None:
    what = "claim" if kind in (EntryKind.EVENT_CLAIMED, EntryKind.CLAIM_ENDED) else "hold"
    tell(
        kind, actor, at=now, event_id=event_pk, set_id=facts.set_id, before={what: before}, after={what: after}, **data
    )
