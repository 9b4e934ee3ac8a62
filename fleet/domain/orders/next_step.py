"""The next step of the relay for one approval, and the timeouts. It does no I/O: the caller performs the step."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Self
from zlib import crc32

from fleet.domain.approvals.conditions import Objection
from fleet.domain.approvals.guards import EventFacts, MachineFacts, start_candidates
from fleet.domain.reasons import Reason
from fleet.domain.scheduling import SOON, first_after
from fleet.domain.states import (
    CORRECTABLE_APPROVALS,
    OPEN_ORDERS,
    ApprovalState,
    EndedAs,
    EventStatus,
    OrderState,
    Presence,
)


@dataclass(frozen=True, slots=True)
class OrderFacts:
    """One order of an approval. `refused`: asking the same machine again would not help."""

    order_id: Any
    machine_id: int
    state: OrderState
    offered_at: datetime
    delivered_at: datetime | None = None
    answered_at: datetime | None = None
    outcome: str = ""
    azure_status: int | None = None
    # How often its machine has asked Azure, and Azure's delay in seconds until a retry, where known.
    posts: int | None = None
    retry_after_seconds: float | None = None
    reason: str = ""

    @property
    def open(self) -> bool:
        return self.state in OPEN_ORDERS

    @property
    def last_seen_at(self) -> datetime:
        """When the order was delivered to the machine; when it was offered, if delivery is not known."""
        return self.delivered_at or self.offered_at

    @property
    def refused(self) -> bool:
        if self.outcome == "refused":
            return True
        # 404, 410, 429 and 5xx mean "later" at the metadata service.
        return self.outcome == "answered" and self.azure_status in (400, 401, 403, 405, 422)

    @property
    def accepted(self) -> bool:
        return self.outcome == "answered" and self.azure_status == 200

    @property
    def busy(self) -> bool:
        """Whether Azure's answer means "try again later", so that the effect is unknown."""
        return is_busy(self.outcome, self.azure_status)

    @property
    def asked(self) -> int:
        """How many requests to Azure this order caused, at most."""
        if self.outcome == "refused":
            return 0
        # An agent of 0.1.0 does not report it: it asked up to three times where Azure was busy.
        unknown = 3 if self.busy else int(self.delivered_at is not None)
        return unknown if self.posts is None else self.posts


def is_busy(outcome: str, azure_status: int | None) -> bool:
    """Return whether Azure's answer to an order means "try again later": 202, 429 or 5xx."""
    status = azure_status or 0
    return outcome == "answered" and (status in (202, 429) or status >= 500)


def answered_at(order: OrderFacts) -> datetime:
    """Return when the order was answered; when it was offered, if that is not known."""
    return order.answered_at or order.offered_at


# Limits of requests to Azure for one approval, and the pauses while it is busy.


EVER = datetime.min.replace(tzinfo=UTC)
NEVER = datetime.max.replace(tzinfo=UTC)
# The most calls to Azure of one approval; the last ones are reserved for the last minute before NotBefore.
MOST_POSTS = 20
KEPT_POSTS = 3
LAST_MINUTE = timedelta(seconds=60)
# While Azure is busy: after 1, 2, 4 ... seconds, up to this.
MOST_PAUSE = timedelta(seconds=30)
LAST_PAUSE = timedelta(seconds=15)


def last_minute_start(facts: EventFacts) -> datetime:
    """Return when the last minute before NotBefore begins; `NEVER` without NotBefore."""
    if facts.not_before is None:
        return NEVER
    # A stated time may be any: the first day of the calendar has no day before it.
    return facts.not_before - LAST_MINUTE if facts.not_before.year > 1 else facts.not_before


# Timeouts of the relay: each is a multiple of the setting ORDER_ANSWER_SECONDS. `docs/admin/settings.md` lists them.

MULTIPLES = {"answer": 1, "receipt": 2, "sent_overdue": 2, "answered_overdue": 3, "by_hand": 5, "doubted": 20}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of the relay for one approval.

    `answer`: another machine is asked if one does not answer. `receipt`: how long to wait for a receipt if the event
    changes after Azure may have been asked. `sent_overdue`, `answered_overdue`: the step is shown as overdue.
    `by_hand`: users get instructions to approve by hand. `doubted`: another machine asks too if the event has not
    started this long after Azure's 200.
    """

    answer: timedelta
    receipt: timedelta
    sent_overdue: timedelta
    answered_overdue: timedelta
    by_hand: timedelta
    doubted: timedelta

    @classmethod
    def of(cls, answer: timedelta) -> Self:
        return cls(**{name: count * answer for name, count in MULTIPLES.items()})


# What the relay does next for one approval. Pure: the caller carries the step out.


class Do(StrEnum):
    NOTHING = "nothing"
    WAKE = "wake"
    OFFER = "offer"
    CONFIRM = "confirm"
    VOID = "void"
    LAPSE = "lapse"
    REFUSE = "refuse"
    RETURN = "return"


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next step of the relay. `machine` is the machine that gets the order or is woken. `inferred`: concluded
    without an answer of Azure.
    """

    do: Do
    reason: Reason | str = ""
    machine: MachineFacts | None = None
    inferred: bool = False


NOTHING = NextStep(Do.NOTHING)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The machine that will be asked next, and when, if nothing else happens. `silent`: the machine whose answer is
    awaited.
    """

    machine: MachineFacts
    at: datetime
    silent: MachineFacts | None = None


@dataclass(frozen=True, slots=True)
class Relay:
    """An approval on its way to Azure, as it is now: its state (None without an approval), the facts of its event, and
    its orders, oldest first.
    """

    state: ApprovalState | None
    facts: EventFacts
    orders: list[OrderFacts]
    now: datetime
    timeouts: Timeouts

    @property
    def too_late(self) -> bool:
        """Whether NotBefore has passed."""
        return self.facts.not_before is not None and self.facts.not_before <= self.now

    def next_step(self) -> NextStep:
        """Return the next step of the relay.

        There is a step only for an approval in GRANTED, RELAYING or ACCEPTED, or for a closed one whose order Azure
        accepted.
        """
        facts, orders, state = self.facts, self.orders, self.state
        if state is ApprovalState.ACCEPTED:
            return self._after_acceptance()
        if state in CORRECTABLE_APPROVALS and any(o.accepted for o in orders) and facts.started_at is not None:
            return NextStep(Do.CONFIRM, Reason("started-after-azure-accepted"))
        if state not in (ApprovalState.GRANTED, ApprovalState.RELAYING):
            return NOTHING
        # A machine may have asked Azure although its receipt has not arrived.
        out = any(order.delivered_at is not None and not order.outcome for order in orders)
        fresh = any(self.now - order.last_seen_at < self.timeouts.receipt for order in orders if not order.outcome)
        untold = any(self.receipt_may_arrive(order) for order in orders)
        if facts.status is EventStatus.STARTED:
            return NOTHING if fresh else self._after_start(out=out, untold=untold)
        if facts.status is EventStatus.ENDED or self.too_late:
            if untold or (fresh and out):
                return NOTHING
            if facts.status is EventStatus.ENDED and facts.started_at is not None:
                # It was Started for less time than a receipt may take.
                return self._after_start(out=out, untold=False)
            if facts.status is EventStatus.ENDED:
                return NextStep(Do.VOID, Reason("ended-before-azure-was-asked"))
            return NextStep(Do.LAPSE, Reason("not-before-came-first"))
        return self._whom_to_ask()

    def with_objection(self, step: NextStep, objection: Objection) -> NextStep:
        """Return the next step if an objection prevents further orders: no machine is asked, and users decide again.

        An order that a machine already has cannot be recalled: its answer is awaited first. Azure's acceptance remains
        valid.
        """
        if step.do not in (Do.OFFER, Do.WAKE, Do.NOTHING):
            return step
        asked = [order for order in self.orders if not order.outcome]
        known = [order for order in asked if order.delivered_at is not None]
        awaited = any(self.now - order.last_seen_at < self.timeouts.receipt for order in known)
        if self.state is ApprovalState.ACCEPTED or awaited or self._start_is_on_its_way() or not objection.returns:
            return NOTHING
        names = {machine.machine_id: machine.name for machine in self.facts.machines}
        machines = sorted({names[order.machine_id] for order in known if order.machine_id in names})
        # It is unknown whether a machine that has the order has asked Azure.
        reason = Reason("returned-after-delivery", reason=objection.reason, machines=machines)
        return NextStep(Do.RETURN, reason if machines else objection.reason, inferred=bool(asked))

    def receipt_may_arrive(self, order: OrderFacts) -> bool:
        """Return whether the receipt of an order may still arrive: its machine is live or late and has unsent reports.

        This happens after Postgres or the gateway was unavailable. Azure may have answered in that time, and even the
        delivery of the order may not be recorded yet.
        """
        machine = next((m for m in self.facts.machines if m.machine_id == order.machine_id), None)
        if order.outcome or machine is None or machine.presence not in (Presence.LIVE, Presence.LATE):
            return False
        return machine.last_poll_at is None or machine.last_poll_at < order.last_seen_at + self.timeouts.receipt

    def _after_start(self, *, out: bool, untold: bool) -> NextStep:
        facts, orders = self.facts, self.orders
        # Started before NotBefore: an approver has approved it, possibly Drydock.
        early = facts.started_at is not None and (facts.not_before is None or facts.started_at < facts.not_before)
        failed = any(order.outcome == "failed" for order in orders)
        if (out or failed) and not early:
            # Azure starts an event automatically from NotBefore on: the start does not show that our order caused it.
            return NextStep(Do.LAPSE, Reason("started-late-without-receipt"), inferred=True)
        if out:
            return NextStep(Do.CONFIRM, Reason("started-while-order-was-out"), inferred=True)
        if failed:
            return NextStep(Do.CONFIRM, Reason("started-after-azure-was-asked"), inferred=True)
        if untold and early:
            return NOTHING
        if any(not order.outcome for order in orders):
            # An order whose delivery was never confirmed may still have been carried out.
            return NextStep(Do.VOID, Reason("started-with-order-unconfirmed"), inferred=True)
        busy = [order.azure_status for order in orders if order.busy]
        if busy:
            return NextStep(Do.VOID, Reason("started-and-nobody-knows", status=busy[-1]), inferred=True)
        return NextStep(Do.VOID, Reason("started-without-approval"))

    def _after_acceptance(self) -> NextStep:
        facts, orders, now = self.facts, self.orders, self.now
        if facts.started_at is not None:
            return NextStep(Do.CONFIRM, Reason("started-after-azure-accepted"))
        if facts.status is EventStatus.ENDED:
            if facts.ended_as is EndedAs.CANCELLED:
                # No document was missed in which it could have been Started.
                return NextStep(Do.VOID, Reason("cancelled-after-200"))
            return NextStep(Do.CONFIRM, Reason("gone-after-azure-accepted"), inferred=True)
        # Other tenants on the host must agree too: that may last beyond NotBefore and is not overdue. But the answer
        # comes from one machine only: another one asks as well, and once more when time runs out. Azure starts an event
        # once.
        accepted = min((order for order in orders if order.accepted), key=answered_at, default=None)
        if facts.drill or accepted is None:
            return NOTHING
        since = [order for order in orders if order is not accepted and order.offered_at >= answered_at(accepted)]
        at_last = last_minute_start(facts)
        doubted = not since and now - answered_at(accepted) >= self.timeouts.doubted
        last_call = at_last <= now and all(order.offered_at < at_last for order in since)
        if not (doubted or last_call) or self.too_late:
            return NOTHING
        asked = {order.machine_id: order.offered_at for order in orders}
        others = [m for m in start_candidates(facts) if m.machine_id != accepted.machine_id]
        others.sort(key=lambda m: (m.machine_id in asked, asked.get(m.machine_id, now)))
        return NextStep(Do.OFFER, Reason("accepted-and-not-started"), machine=others[0]) if others else NOTHING

    def _whom_to_ask(self) -> NextStep:
        facts, orders, now = self.facts, self.orders, self.now
        open_order = next((order for order in orders if order.open), None)
        refused = {order.machine_id for order in orders if order.refused}
        askable = start_candidates(facts)
        candidates = [m for m in askable if m.machine_id not in refused]
        reason: Reason | str = ""
        if open_order is not None:
            # A machine that has stopped listing the event is waited for like any other: most likely the event is
            # ending.
            machine = next((m for m in facts.machines if m.machine_id == open_order.machine_id and m.live), None)
            waiting = machine is not None and now - open_order.last_seen_at < self.timeouts.answer
            candidates = [m for m in candidates if m.machine_id != open_order.machine_id]
            if waiting or not candidates:
                # Without another machine to ask, the order stays where it is until it is answered or too late.
                return NextStep(Do.WAKE, machine=machine) if machine and open_order.delivered_at is None else NOTHING
            reason = Reason("asked-before", live=machine is not None)
        else:
            if self._start_is_on_its_way() or now < self._retry_at():
                return NOTHING
            if askable and not candidates:
                said = {order.machine_id: order.reason for order in orders if order.outcome == "refused"}
                agents = [[m.name, said[m.machine_id]] for m in askable if m.machine_id in said]
                by_azure = any(o.refused and o.outcome == "answered" for o in orders)
                return NextStep(Do.REFUSE, Reason("nobody-would", agents=agents, azure=by_azure))
        kept = 0 if last_minute_start(facts) <= now else KEPT_POSTS
        if sum(order.asked for order in orders) >= MOST_POSTS - kept:
            return NOTHING
        last_asked = {order.machine_id: order.offered_at for order in sorted(orders, key=lambda o: o.offered_at)}
        new = [m for m in candidates if m.machine_id not in last_asked]
        if new:
            return NextStep(Do.OFFER, reason, machine=new[0])
        # Every machine was asked and stayed silent: begin again with the one asked longest ago, but not at once.
        again = sorted(candidates, key=lambda m: last_asked[m.machine_id])
        if again and now - last_asked[again[0].machine_id] >= self.timeouts.answer:
            return NextStep(Do.OFFER, reason, machine=again[0])
        return NOTHING

    def _start_is_on_its_way(self) -> bool:
        """Return whether an agent answered that the event has started, so that its document will arrive with the next
        report.
        """
        refused = [order for order in self.orders if order.reason == "already-started" and order.refused]
        return any(self.now - order.offered_at < self.timeouts.receipt for order in refused)

    def _retry_at(self) -> datetime:
        """Return when to send the next request after Azure answered "try again later".

        The pause doubles each time, with jitter, and respects Retry-After. In the last minute before NotBefore the
        pause is shorter.
        """
        answered = sorted((order for order in self.orders if order.outcome), key=answered_at)
        times = next((number for number, order in enumerate(reversed(answered)) if not order.busy), len(answered))
        if not times:
            return EVER
        last = answered[-1]
        since, at_last = answered_at(last), last_minute_start(self.facts)
        jitter = 0.75 + crc32(str(last.order_id).encode()) % 512 / 1024
        pause = min(timedelta(seconds=2 ** min(times - 1, 10)), MOST_PAUSE) * jitter
        if since >= at_last:
            return since + min(pause, LAST_PAUSE)
        asked_for = max(pause, timedelta(seconds=last.retry_after_seconds or 0))
        return min(since + asked_for, max(since + min(pause, LAST_PAUSE), at_last))

    def _timeout_ends(self) -> set[datetime]:
        """Return the times at which timeouts of the approval end. Some may be in the past."""
        timeouts, ends = self.timeouts, {self._retry_at(), last_minute_start(self.facts)}
        for order in self.orders:
            ends |= {order.offered_at + timeouts.answer, order.last_seen_at + timeouts.answer}
            ends |= {order.offered_at + timeouts.receipt, order.last_seen_at + timeouts.receipt}
            ends.add(answered_at(order) + timeouts.doubted)
        return ends

    def forecast(self) -> Forecast | None:
        """Return which machine `next_step` will ask next, and when; None if no machine will be asked.

        It evaluates `next_step` at each time at which a timeout ends, because the result changes only then.
        """
        for at in [self.now, *sorted(end for end in self._timeout_ends() if end > self.now)]:
            step = replace(self, now=at).next_step()
            if step.do is Do.OFFER and step.machine is not None:
                waited_for = next((order.machine_id for order in self.orders if order.open), None)
                silent = next((m for m in self.facts.machines if m.machine_id == waited_for), None)
                return Forecast(machine=step.machine, at=at, silent=silent)
        return None

    def due_at(self) -> datetime:
        """Return when to compute the next step again if no machine reports anything until then."""
        over = self.facts.status is not EventStatus.SCHEDULED or self.too_late
        # Polls, which change no presence, show what a spool may still contain; a machine without its order is woken
        # again.
        untold = over and any(self.receipt_may_arrive(order) for order in self.orders)
        ends = {*self._timeout_ends(), self.facts.not_before}
        if untold or any(order.state is OrderState.OFFERED for order in self.orders):
            ends.add(self.now + SOON)
        return first_after(self.now, ends)
