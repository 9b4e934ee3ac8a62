"""Texts about orders: steps of the relay, answers of agents, and the manual fallback."""

from collections.abc import Mapping
from typing import Any

from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.sentences import EntryText, Sentence, counted, fill, listed, spoken
from fleet.wording.times import Reader

# Why an agent did not carry out an order, by the reason in its receipt.
REFUSALS = {
    "expired": "the order had expired by the backend's clock",
    "wrong-machine": "the order was for another machine",
    "not-listed": "the newest document of the machine does not list the event",
    "already-started": "the newest document of the machine lists the event as Started",
    "unreadable": "the agent could not read the order",
    "unsigned": "the order was not signed",
    "bad-signature": "the order's signature is not valid",
    "not-a-drill": "the event is real, but the order was for a drill",
    "real-event": "Azure has announced a real event for the machine",
    "another-drill": "the machine still takes part in another drill",
    "not-running": "the agent does not keep running",
}
# The path that brought an order to its machine.
PATHS = {
    "celery": " from a Celery task",
    "beat": " from the Celery schedule",
    "ticker": " from the schedule of the gateway",
    "look": " from the dispatcher of the gateway",
    "report": " from the answer to a report",
}
# Text of the settings page for each timeout.
TIMEOUTS = {
    "answer": "Time without an answer after an order was delivered (or offered). Then the next machine receives the"
    " order.",
    "receipt": "Time for which an approval stays open for a late receipt, if the event changed while an order was"
    " open.",
    "sent_overdue": "Time after the first offer without delivery to a machine. Then pages and metrics show the step"
    " as overdue.",
    "answered_overdue": "Time after delivery without an answer of Azure. Then the step is overdue.",
    "by_hand": "Time after the first offer without an answer. Then the page lists commands to start the event by hand.",
    "doubted": "Time after the answer 200 without a start. Then another machine sends the approval, too.",
}


def refusal(reason: str) -> str:
    """Return the reason why an agent refused an order, as part of a sentence."""
    return REFUSALS.get(reason, spoken(reason) or "no reason given")


def no_machine_would(values: Mapping[str, Any], reader: Reader) -> str:
    agents = "; ".join(f"{name}: {refusal(reason)}" for name, reason in values["agents"])
    if not agents:
        return "Azure refused the approval on every available machine."
    others = " Azure refused it on the other machines." if values["azure"] else ""
    return f"No available machine sent the approval to Azure ({agents}).{others}"


def was_busy(values: Mapping[str, Any], reader: Reader) -> str:
    answers = listed([f"{status} ({counted(count, 'time')})" for status, count in values["answers"]])
    rest = fill("from {first:time} to {last:time} to repeated requests by {machines:list}.", values, reader)
    return f"Azure answered {answers} {rest}"


SENTENCES: dict[str, Sentence] = {
    "ended-before-azure-was-asked": "The event ended before the approval reached Azure.",
    "not-before-came-first": "NotBefore passed before Azure accepted an order.",
    "started-late-without-receipt": "The event started at NotBefore or later, and no machine reported that Azure had"
    " accepted its order.",
    "started-while-order-was-out": "The event started while an order was open, and the agent sent no receipt.",
    "started-after-azure-was-asked": "The event started after a machine had sent the approval and received no answer.",
    "started-with-order-unconfirmed": "The event started while an order was being delivered. The agent did not confirm"
    " it, so it is unknown whether this approval started the event.",
    "started-without-approval": "The event started without this approval.",
    "started-after-azure-accepted": "The event started after Azure had answered 200.",
    "started-and-nobody-knows": "The event started after Azure had answered {status}, which neither accepts nor"
    " refuses: it is unknown whether this approval started the event.",
    "cancelled-after-200": "Azure answered 200, then cancelled the event before its start.",
    "accepted-and-not-started": "Azure answered 200, but the event has not started: Drydock sends the approval"
    " through another machine, too.",
    "gone-after-azure-accepted": "The event ended after Azure had answered 200.",
    "asked-before": "The machine before {live:?has not answered|is no longer live}.",
    "nobody-would": no_machine_would,
    "azure-has-accepted": "Azure has accepted the approval from {machine}.",
    "next-asked": "{machine} receives the next order at {at:time}{silent:? if {silent} does not answer}.",
    "order-refused": lambda values, reader: f"Refused by the agent: {refusal(values['reason'])}.",
    "azure-was-busy": was_busy,
    "order-failed": "The agent got no answer: {reason:spoken}.",
    "by-hand-nobody-lists-it": "No live machine of the set lists the event, so no agent can send the approval.",
    "by-hand-everyone-refused": "Every available agent has refused to send the approval.",
    "by-hand-nobody-answers": "{machines:?{machines:list} {machines:has/have}|The machine has} the order, and no agent"
    " has reported an answer of Azure yet.",
    "overlap-negative": "The overlap cannot be negative.",
    "signing-keys-unreadable": "No signing key can be read: the keys were encrypted with another SECRET_KEY. Add that"
    " key to SECRET_KEY_FALLBACKS, or let every machine enrol again.",
}


def answered(row: TimelineRow, reader: Reader) -> str:
    machine, reason = row.data["machine"], row.data["reason"]
    match row.data["outcome"]:
        case "answered":
            return f"Azure answered {row.data['azure_status']} to {machine}."
        case "refused":
            return f"{machine} did not send the approval: {refusal(reason)}."
    return f"{machine} sent the approval and received no answer (reason: {spoken(reason) or 'not stated'})."


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.ORDER_OFFERED: "Drydock sends the approval through {machine}.{reason:? {reason}}",
    EntryKind.ORDER_DELIVERED: lambda row, reader: (
        f"{row.data['machine']} received the order{PATHS.get(row.data['path'], '')}."
    ),
    EntryKind.ORDER_ANSWERED: answered,
    **dict.fromkeys(
        (EntryKind.ORDER_SUPERSEDED, EntryKind.ORDER_EXPIRED, EntryKind.ORDER_CANCELLED),
        "Order to {machine} ended: {reason}",
    ),
    EntryKind.LATE_RECEIPT: lambda row, reader: (
        answered(row, reader)
        if "machine" in row.data
        else "A machine sent a receipt for an order that it never received."
    ),
    EntryKind.APPROVAL_ACCEPTED: "Azure answered 200 to {machine}: the approval is accepted.",
    EntryKind.APPROVAL_CORRECTED: "Correction: Azure had answered 200 to {machine}, and the answer arrived late. The"
    " approval is accepted.",
    EntryKind.APPROVAL_CONFIRMED: "{reason}",
    EntryKind.APPROVAL_WITHDRAWN: "{reason}",
    EntryKind.APPROVAL_REFUSED: "{reason}",
    EntryKind.APPROVAL_LAPSED: "{reason}",
    EntryKind.APPROVAL_VOID: "{reason}",
    EntryKind.SIGNING_KEY_MADE: "The key {key} now signs orders{introduced_by:?, introduced by {introduced_by}|}.",
    EntryKind.SIGNING_KEY_RETIRED: "The key {key} signs orders until {retires_at:time}.",
}
