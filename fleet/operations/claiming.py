"""Claims and holds: local words about an event, which never go to Azure."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from fleet.domain.entries import EntryKind
from fleet.domain.guards import EventFacts
from fleet.domain.states import EventStatus
from fleet.models import Claim, Hold
from fleet.models.facts import load_facts, name_of
from fleet.operations import folding
from fleet.operations.deciding import Decider, cleaned, judged, row_id, take_over
from fleet.operations.entries import entry, write
from fleet.operations.errors import Refused
from fleet.operations.holding import write_hold
from fleet.operations.rights import can_override, require_approve


def _iso(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


@transaction.atomic
def claim(
    *,
    event_id: str,
    by: User,
    via: str,
    now: datetime,
    comment: str = "",
    token_name: str = "",
    take_over: bool = False,
) -> Claim:
    """Say "I am on it". Claiming one's own claim again renews its comment; somebody else's is taken over if asked for.

    Raises Refused: `not-permitted`, `validation`, `unknown-event`, `too-late` (the event is over), `already-claimed`
    (details `by`, `at`, `comment`).
    """
    require_approve(by, verb="Claiming")
    comment = cleaned(comment)
    event_pk = row_id(event_id)
    facts = judged(event_pk, now=now)
    require_approve(by, facts.place, verb="Claiming")
    if facts.status is EventStatus.ENDED:
        raise Refused("too-late", "The event is over: there is nothing left to claim.")
    standing = Claim.objects.filter(event_id=event_pk, ended_at__isnull=True).select_related("by").first()
    if standing is not None and standing.by_id == by.pk and comment in ("", standing.comment):
        return standing
    if standing is not None and standing.by_id != by.pk and not take_over:
        raise Refused(
            "already-claimed",
            f"{standing.by.get_username()} is on it already, since {standing.at:%H:%M:%S} UTC.",
            by=standing.by.get_username(),
            at=_iso(standing.at),
            comment=standing.comment,
        )
    before = None
    if standing is not None:
        Claim.objects.filter(pk=standing.pk, ended_at__isnull=True).update(ended_at=now)
        before = standing.by.get_username()
    row = Claim.objects.create(event_id=event_pk, by=by, via=via, token_name=token_name, comment=comment, at=now)
    taken = f" It was {before}'s." if before and before != by.get_username() else ""
    text = f"{by.get_username()} is on it.{taken}" + (f" “{comment}”" if comment else "")
    _note(EntryKind.EVENT_CLAIMED, text, event_pk, facts, by, via, token_name, comment, now, "claim", before, True)
    return row


@transaction.atomic
def give_back(*, event_id: str, by: User, via: str, now: datetime, token_name: str = "") -> Claim:
    """End the claim of an event: one's own; an approver may end anybody's.

    Raises Refused: `not-permitted`, `unknown-event`, `not-claimed`.
    """
    require_approve(by, verb="Giving a claim back")
    event_pk = row_id(event_id)
    folding.lock([event_pk])
    facts = load_facts([event_pk], now=now)[event_pk]
    standing = Claim.objects.filter(event_id=event_pk, ended_at__isnull=True).select_related("by").first()
    if standing is None:
        raise Refused("not-claimed", "Nobody has claimed this event.")
    if standing.by_id != by.pk and not can_override(by, facts.place):
        name = standing.by.get_username()
        raise Refused("not-permitted", f"It is {name}'s claim: only {name} or an approver may give it back.")
    Claim.objects.filter(pk=standing.pk, ended_at__isnull=True).update(ended_at=now)
    whose = "" if standing.by_id == by.pk else f" {standing.by.get_username()}'s claim"
    text = f"{by.get_username()} gave{whose or ' it'} back."
    name = standing.by.get_username()
    _note(EntryKind.CLAIM_ENDED, text, event_pk, facts, by, via, token_name, "", now, "claim", name, False)
    standing.refresh_from_db()
    return standing


@transaction.atomic
def hold(*, event_id: str, by: User, via: str, now: datetime, reason: str, token_name: str = "") -> Hold:
    """Decide not to approve, so that the event runs by itself; rules leave it alone then. Azure is told nothing.

    What a rule has decided and not sent yet is withdrawn. Raises Refused: `not-permitted`, `validation`,
    `unknown-event`, `too-late`, `already-decided`, `already-held` (details `by`, `at`, `reason`).
    """
    require_approve(by, verb="Holding")
    reason = cleaned(reason, what="reason")
    if not reason:
        raise Refused("validation", "Say why it is held: others will ask.")
    event_pk = row_id(event_id)
    facts = judged(event_pk, now=now)
    require_approve(by, facts.place, verb="Holding")
    facts = take_over(event_pk, facts, Decider(via=via, by=by, token_name=token_name), now=now)
    _check_holdable(facts, event_pk)
    text = f"{by.get_username()} holds it: nothing is approved by a rule, Azure may start it from NotBefore. “{reason}”"
    return write_hold(facts, event_pk, text=text, reason=reason, by=by, via=via, token_name=token_name, now=now)


def hold_by_rule(event_pk: int, decider: Decider, facts: EventFacts, *, reason: str, now: datetime) -> Hold:
    """The same by a rule, for a locked event that nobody has decided or held."""
    return write_hold(
        facts,
        event_pk,
        text=f"The rule “{decider.rule.name if decider.rule else ''}” holds it: people decide. “{reason}”",
        reason=reason,
        rule=decider.rule,
        wording=decider.wording,
        via=decider.via,
        now=now,
    )


@transaction.atomic
def lift(*, event_id: str, by: User, via: str, now: datetime, token_name: str = "") -> Hold:
    """End the hold of an event. Raises Refused: `not-permitted`, `unknown-event`, `not-held`."""
    require_approve(by, verb="Lifting a hold")
    event_pk = row_id(event_id)
    folding.lock([event_pk])
    facts = load_facts([event_pk], now=now)[event_pk]
    require_approve(by, facts.place, verb="Lifting a hold")
    standing = Hold.objects.filter(event_id=event_pk, ended_at__isnull=True).select_related("by", "rule").first()
    if standing is None:
        raise Refused("not-held", "Nobody holds this event.")
    Hold.objects.filter(pk=standing.pk, ended_at__isnull=True).update(ended_at=now)
    text = f"{by.get_username()} lifted the hold of {name_of(standing)}."
    _note(EntryKind.HOLD_ENDED, text, event_pk, facts, by, via, token_name, "", now, "hold", name_of(standing), False)
    standing.refresh_from_db()
    return standing


def _check_holdable(facts: EventFacts, event_pk: int) -> None:
    if facts.status is not EventStatus.SCHEDULED:
        raise Refused("too-late", "The event is no longer waiting: there is nothing left to hold.")
    if facts.decision is not None:
        raise Refused(
            "already-decided",
            f"{facts.decision.by} has approved it already: withdraw that first, if it is not on its way.",
            by=facts.decision.by,
            at=_iso(facts.decision.at) if facts.decision.at else None,
            approval=facts.decision.approval_id,
        )
    if facts.hold is not None:
        raise Refused(
            "already-held",
            f"{facts.hold.by} holds it already.",
            by=facts.hold.by,
            at=_iso(facts.hold.at),
            reason=facts.hold.reason,
        )


def _note(
    kind: EntryKind,
    text: str,
    event_pk: int,
    facts: EventFacts,
    by: User,
    via: str,
    token_name: str,
    why: str,
    now: datetime,
    what: str,
    before: str | None,
    stands: bool,
) -> None:
    write(
        [
            entry(
                kind,
                text,
                at=now,
                event_id=event_pk,
                set_id=facts.set_id,
                actor=by.get_username(),
                via=via,
                token_name=token_name,
                why=why,
                before={what: before},
                after={what: by.get_username() if stands else None},
            )
        ]
    )
