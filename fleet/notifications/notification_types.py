"""Registry of notification types. Each type is declared once; router, texts, channels and documentation use the
declaration.

This module also computes the severity of events and cache maintenance.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fleet.domain.approvals.guards import EventFacts, MachineFacts
from fleet.domain.event_types import TYPES, Severity, event_type_of
from fleet.domain.intake import BAD_OUTCOMES
from fleet.domain.recommendation import OWN
from fleet.domain.states import ApprovalState, EventStatus
from fleet.domain.timeline import EntryKind

# A decision without effect: it has a notification of its own, or needs none.
WITHOUT_EFFECT = frozenset({ApprovalState.WITHDRAWN, ApprovalState.REFUSED, ApprovalState.LAPSED, ApprovalState.VOID})


# Reasons why a message is stale: a code, and the condition of the message's content (`MessageNews`) under which it
# applies. Conditions that read the event belong to types that are always about one.
Stale = tuple[str, Callable[[Any], bool]]
OVER: Stale = ("over", lambda news: not news.lasts)
LASTS: Stale = ("over", lambda news: news.lasts)
SUPERSEDED: Stale = (
    "superseded",
    lambda news: bool({NotificationType.CHANGED, NotificationType.STARTED, NotificationType.ENDED} & news.newer),
)
CLAIM_ENDED: Stale = ("claim-ended", lambda news: news.event.claim is None or news.event.claim.by != news.claimant)
NOT_UNDECIDED: Stale = ("decided", lambda news: not news.event.needs_decision)
CAME_TO_NOTHING: Stale = ("came-to-nothing", lambda news: news.approval_state in WITHOUT_EFFECT)
HOLD_ENDED: Stale = ("hold-ended", lambda news: news.approval_state is None and news.event.hold is None)
DECIDED_AGAIN: Stale = (
    "decided",
    lambda news: news.event.approval not in (None, news.approval) and news.event.approval.live,
)
ANSWERED: Stale = ("answered", lambda news: news.approval_state not in (ApprovalState.GRANTED, ApprovalState.RELAYING))
WATCHED: Stale = ("watched", lambda news: news.event is not None and news.event.watched)
SET_WATCHED: Stale = ("over", lambda news: news.event is None and not news.lasts)


@dataclass(frozen=True, slots=True)
class Declaration:
    """Properties of a notification type. `name` is the `type` in webhooks, and the name in routes.

    `label` is the name in sentences. `headline` precedes the event's name in messages, if it is always the same.
    `entries` are the kinds of timeline entries that cause the notification; `where` are the values that the data of the
    entry must have, by name. A type without entries becomes due at a
    time: `clock` lists the types or entries that start the wait, and `only_if` marks its messages. `severity` is None
    if it is that of the event or cache. `path` is the page for a subject without its own page. `stale` lists reasons
    why a message need not be sent any more.

    `always_notify`: an alarm is raised if no route matches. `followed`: channels that keep an incident or card of the
    event receive it without a route. `personal`: the user concerned receives it without a route. `also_named_by`:
    routes that name one of these types match it, too. `by_hand`: it contains the commands for a manual approval.
    `of_machine`: it is about one machine's part in an event, also after the event has ended.

    `informs`: it opens no incident, as those that end the subject (`ends`). `wakes`: it also alerts if one is open.
    `endless`: no later notification reports the end. `loud`: in channels with cards, it also notifies users, as those
    that wake.
    """

    name: str
    label: str
    entries: tuple[EntryKind, ...] = ()
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    headline: str = ""
    clock: tuple[str, ...] = ()
    only_if: str = ""
    severity: Severity | None = None
    path: str = ""
    stale: tuple[Stale, ...] = ()
    always_notify: bool = False
    followed: bool = False
    personal: bool = False
    also_named_by: tuple[str, ...] = ()
    by_hand: bool = False
    of_machine: bool = False
    informs: bool = False
    wakes: bool = False
    ends: bool = False
    endless: bool = False
    loud: bool = False

    @property
    def opens(self) -> bool:
        """Whether the notification opens an incident."""
        return not (self.informs or self.ends)


class NotificationType(StrEnum):
    """Notification types, in the order in which they usually happen. The value is the `type` in webhooks and the name
    in routes.
    """

    declared: Declaration

    # A lookup by value passes the name, and does not reach this method.
    def __new__(cls, declared: Any) -> "NotificationType":
        member = str.__new__(cls, declared.name)
        member._value_ = declared.name
        member.declared = declared
        return member

    FIRST_SEEN = Declaration(
        "event.first_seen", "event announced", (EntryKind.EVENT_SEEN,), always_notify=True, loud=True
    )
    CHANGED = Declaration(
        "event.changed",
        "event changed",
        (EntryKind.EVENT_CHANGED, EntryKind.EVENT_REOPENED),
        headline="Changed",
        stale=(SUPERSEDED,),
        followed=True,
        loud=True,
    )
    CLAIMED = Declaration(
        "event.claimed", "event claimed", (EntryKind.EVENT_CLAIMED,), stale=(CLAIM_ENDED,), followed=True, informs=True
    )
    UNCLAIMED = Declaration(
        "event.unclaimed",
        "event still unclaimed",
        clock=("event.first_seen",),
        only_if="unclaimed",
        stale=(NOT_UNDECIDED, ("claimed", lambda news: news.event.claim is not None)),
        wakes=True,
    )
    UNDECIDED = Declaration(
        "event.undecided",
        "event still undecided",
        clock=("event.first_seen", "event.changed"),
        only_if="undecided",
        stale=(NOT_UNDECIDED,),
        wakes=True,
    )
    PROPOSED = Declaration(
        "approval.proposed",
        "approval proposed",
        (EntryKind.APPROVAL_PROPOSED,),
        headline="A second person has to agree",
        stale=(("decided", lambda news: news.approval_state is not ApprovalState.PROPOSED),),
        loud=True,
    )
    DECIDED = Declaration(
        "approval.decided",
        "event decided",
        (EntryKind.APPROVAL_CONSENTED, EntryKind.APPROVAL_PLANNED, EntryKind.APPROVAL_GRANTED, EntryKind.EVENT_HELD),
        stale=(CAME_TO_NOTHING, HOLD_ENDED),
        followed=True,
        informs=True,
    )
    WITHDRAWN = Declaration(
        "approval.withdrawn",
        "approval withdrawn",
        (EntryKind.APPROVAL_WITHDRAWN,),
        stale=(DECIDED_AGAIN,),
        followed=True,
    )
    OVERDUE = Declaration(
        "approval.overdue",
        "approval overdue",
        headline="No agent answers, start the event by hand",
        clock=(EntryKind.APPROVAL_GRANTED, EntryKind.APPROVAL_CONSENTED, EntryKind.APPROVAL_DUE),
        only_if="unanswered",
        stale=(ANSWERED,),
        by_hand=True,
        wakes=True,
    )
    REFUSED = Declaration(
        "approval.refused",
        "approval refused or lapsed",
        (EntryKind.APPROVAL_REFUSED, EntryKind.APPROVAL_LAPSED),
        stale=(("started", lambda news: news.event.status is EventStatus.STARTED), DECIDED_AGAIN),
        followed=True,
        by_hand=True,
        wakes=True,
    )
    CORRECTED = Declaration(
        "approval.corrected",
        "approval corrected by a late answer of Azure",
        (EntryKind.APPROVAL_CORRECTED,),
        headline="Correction: Azure had accepted the approval",
        followed=True,
        also_named_by=("approval.withdrawn", "approval.refused", "event.started"),
        informs=True,
        loud=True,
    )
    PREPARE_FAILED = Declaration(
        "prepare.failed",
        "prepare failed",
        (EntryKind.HOOKS_ENDED,),
        where=(("phase", ("prepare",)), ("outcome", BAD_OUTCOMES)),
        stale=(("event-over", lambda news: news.event.status is EventStatus.ENDED),),
        of_machine=True,
        wakes=True,
    )
    STARTED = Declaration(
        "event.started", "event started", (EntryKind.EVENT_STARTED,), headline="Started", followed=True
    )
    ENDED = Declaration("event.ended", "event ended", (EntryKind.EVENT_ENDED,), followed=True, ends=True)
    RECOVER_FAILED = Declaration(
        "recover.failed",
        "recover failed",
        (EntryKind.HOOKS_ENDED,),
        where=(("phase", ("recover",)), ("outcome", BAD_OUTCOMES)),
        of_machine=True,
        wakes=True,
    )
    SERVES_AGAIN = Declaration(
        "machine.serves_again",
        "machine serves again",
        (EntryKind.HOOKS_ENDED,),
        where=(("phase", ("recover",)), ("outcome", ("succeeded",))),
        of_machine=True,
        ends=True,
    )
    SOURCE_QUIET = Declaration(
        "source.quiet",
        "agents or listeners stopped reporting",
        (EntryKind.SOURCE_QUIET,),
        severity=Severity.WARNING,
        stale=(OVER,),
        endless=True,
    )
    SET_UNWATCHED = Declaration(
        "set.unwatched",
        "no live agent in a set",
        (EntryKind.EVENT_UNWATCHED, EntryKind.SET_UNWATCHED),
        headline="No live agent",
        severity=Severity.WARNING,
        stale=(SET_WATCHED, WATCHED),
        wakes=True,
        endless=True,
    )
    SET_LOWERED = Declaration(
        "set.lowered",
        "requirement of a set lowered",
        (EntryKind.SET_LOWERED,),
        severity=Severity.WARNING,
        endless=True,
    )
    COVERAGE_OPENED = Declaration(
        "coverage.opened",
        "blind spot found",
        (EntryKind.COVERAGE_OPENED,),
        severity=Severity.WARNING,
        path="/blind-spots/",
        stale=(OVER,),
    )
    COVERAGE_CLOSED = Declaration(
        "coverage.closed",
        "blind spot resolved",
        (EntryKind.COVERAGE_CLOSED,),
        severity=Severity.INFO,
        path="/blind-spots/",
        stale=(LASTS,),
        ends=True,
    )
    MAINTENANCE_ANNOUNCED = Declaration(
        "maintenance.announced", "cache maintenance announced", (EntryKind.MAINTENANCE_SCHEDULED,), stale=(OVER,)
    )
    MAINTENANCE_ENDED = Declaration(
        "maintenance.ended",
        "cache maintenance ended",
        (EntryKind.MAINTENANCE_ENDED, EntryKind.MAINTENANCE_END_NOT_SEEN, EntryKind.MAINTENANCE_NEVER_STARTED),
        ends=True,
    )
    HANDOVER_SENT = Declaration(
        "handover.sent",
        "shift handed over",
        (EntryKind.HANDOVER_SENT,),
        severity=Severity.INFO,
        path="/handover/",
        informs=True,
        endless=True,
    )
    AUDIT_FAILED = Declaration(
        "audit.failed",
        "audit verification failed",
        (EntryKind.AUDIT_FAILED,),
        severity=Severity.CRITICAL,
        path="/audit/",
        endless=True,
    )
    STORAGE_TROUBLE = Declaration(
        "storage.trouble",
        "storage problem",
        (EntryKind.STORAGE_TROUBLE,),
        severity=Severity.CRITICAL,
        path="/timeline/",
        stale=(OVER,),
        endless=True,
    )
    EMERGENCY_SIGN_IN = Declaration(
        "break_glass.used",
        "emergency account used",
        (EntryKind.EMERGENCY_SIGN_IN,),
        severity=Severity.CRITICAL,
        path="/audit/",
        endless=True,
    )
    ACCOUNT = Declaration(
        "account.notice",
        "notice about your account",
        (
            EntryKind.PERSON_CHANGED,
            EntryKind.TOKEN_CREATED,
            EntryKind.TOKEN_EXPIRES,
            EntryKind.NEW_DEVICE,
            EntryKind.LOGINS_REFUSED,
        ),
        severity=Severity.WARNING,
        path="/you/sessions/",
        personal=True,
    )
    CHANNEL_FAILING = Declaration(
        "channel.failing",
        "channel failing",
        (EntryKind.CHANNEL_FAILING,),
        severity=Severity.WARNING,
        stale=(OVER,),
    )
    CHANNEL_WORKS = Declaration(
        "channel.works",
        "channel working again",
        (EntryKind.CHANNEL_WORKS,),
        severity=Severity.INFO,
        stale=(LASTS,),
        ends=True,
    )

    @property
    def severity(self) -> Severity:
        """The severity of a notification that is not about an event or cache."""
        return self.declared.severity or Severity.WARNING


def type_of_entry(kind: EntryKind, data: Mapping[str, Any]) -> NotificationType | None:
    """Return the notification type that a timeline entry with this data causes; None if it causes none."""
    for each in NotificationType:
        if kind in each.declared.entries and all(data.get(name) in values for name, values in each.declared.where):
            return each
    return None


# Sent only by steps of escalation.
STEPS = (NotificationType.UNCLAIMED, NotificationType.UNDECIDED)
# Held back while a user silences the event, unless they are critical. Failures and results are always sent.
SILENCEABLE = (*STEPS, NotificationType.FIRST_SEEN, NotificationType.CHANGED, NotificationType.STARTED)
# Kinds of entries that may cause a notification.
ROUTED_ENTRIES = frozenset(
    {kind for each in NotificationType for kind in each.declared.entries}
    | {EntryKind(kind) for kind in NotificationType.OVERDUE.declared.clock}
)


def why_stale(news: Any) -> str:
    """Return the code of the reason why a message with this content (`MessageNews`) need not be sent any more, or an
    empty string if it must be sent.
    """
    event, declared = news.event, news.moment.declared
    is_end = news.moment is NotificationType.ENDED
    is_over = event is not None and event.status is EventStatus.ENDED
    if is_over and not is_end and not declared.of_machine:
        return "event-over"
    if is_end and not is_over:
        return "event-open-again"
    is_silenced = event is not None and event.silenced_until is not None and news.severity != Severity.CRITICAL
    if is_silenced and news.moment in SILENCEABLE:
        return "silenced"
    return next((code for code, applies in declared.stale if applies(news)), "")


# Severity of events and of cache maintenance.


def stay_up(facts: EventFacts) -> int:
    """Return the number of live machines of the set that are affected neither by this event nor by another started
    one.
    """
    return sum(machine.live for machine in _not_named(facts))


def _not_named(facts: EventFacts) -> list[MachineFacts]:
    down = {name.casefold() for name in facts.resources}
    down |= {name.casefold() for other in facts.others if other.set_id == facts.set_id for name in other.taken}
    return [machine for machine in facts.machines if machine.name.casefold() not in down]


def severity(facts: EventFacts) -> Severity:
    """Return the severity of an event. It does not change when the event ends, so that a route by severity also reports
    the end.
    """
    if facts.min_live is not None and stay_up(facts) < facts.min_live:
        return Severity.CRITICAL
    # A set of at least two is interrupted as a whole, for longer than a pause and not at a user's request.
    lasting = facts.source != OWN and not event_type_of(facts.event_type).keeps_memory
    if lasting and len(facts.machines) >= 2 and not _not_named(facts):
        return Severity.CRITICAL
    return type_severity(facts.event_type, facts.source)


def type_severity(event_type: str, source: str) -> Severity:
    """Return the severity of an event type. A restart that the customer started is only information; the loss of a
    machine is more severe.
    """
    declared = event_type_of(event_type)
    own = source == OWN and event_type in TYPES and declared.severity is not Severity.CRITICAL
    return Severity.INFO if own else declared.severity


def cache_severity(tier: str) -> Severity:
    """Return the severity of maintenance of a cache, by the tier of the cache."""
    # Basic is unavailable during it; an unknown tier counts as Basic.
    return Severity.INFO if tier in ("standard", "premium") else Severity.WARNING
