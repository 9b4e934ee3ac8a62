"""Wording of orders: steps of the relay, answers of agents, and the manual fallback."""

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
    "not-listed": "its newest document does not list the event",
    "already-started": "its newest document lists the event as Started",
    "unreadable": "it could not read the order",
    "unsigned": "the order was not signed",
    "bad-signature": "the order's signature is not valid",
    "not-a-drill": "the event is a real one, and the order said that it was a drill",
    "real-event": "Azure has announced something real there",
    "another-drill": "it is still in another drill",
    "not-running": "its agent does not stay running",
}
# The path that brought an order to its machine.
PATHS = {
    "celery": "Celery's task",
    "beat": "Celery's tick",
    "ticker": "the gateway's ticker",
    "look": "the gateway's dispatcher",
    "report": "the answer to a report",
}
# Text of the settings page for each timeout.
TIMEOUTS = {
    "answer": "An order was not answered since it was delivered (or offered, before that): the next machine is asked.",
    "receipt": "The event moved while an order was out: until then the approval stays open for a late receipt.",
    "sent_overdue": "No machine has the order since the first was offered: pages and metrics call the step overdue.",
    "answered_overdue": "Azure's answer is missing since a machine got the order: that step is overdue.",
    "by_hand": "No machine has answered since the first order was offered: the page lists commands to approve by hand.",
    "doubted": "The event has not started since Azure's 200: another machine asks as well.",
}


def refusal(reason: str) -> str:
    """Return why an agent refused, as part of a sentence."""
    return REFUSALS.get(reason, spoken(reason) or "it gave no reason")


def no_machine_would(values: Mapping[str, Any], reader: Reader) -> str:
    agents = "; ".join(f"{name}: {refusal(reason)}" for name, reason in values["agents"])
    if not agents:
        return "Azure refused on every machine that could be asked."
    others = " Azure refused on the others." if values["azure"] else ""
    return f"No machine that could be asked has passed it on ({agents}).{others}"


def was_busy(values: Mapping[str, Any], reader: Reader) -> str:
    answers = listed([f"{status} ({counted(count, 'time')})" for status, count in values["answers"]])
    times_told = fill("from {first:time} to {last:time}", values, reader)
    return f"It answered {answers} {times_told}, asked again and again by {listed(values['machines'])}."


def no_agent_answers(values: Mapping[str, Any], reader: Reader) -> str:
    machines = listed(values["machines"]) or "The machine asked"
    have = "have" if len(values["machines"]) > 1 else "has"
    return f"{machines} {have} been asked, and no agent has brought Azure's answer yet."


def next_asked(values: Mapping[str, Any], reader: Reader) -> str:
    until = " if {silent} stays silent" if values["silent"] else ""
    return fill("{machine} is asked at {at:time}" + until + ".", values, reader)


SENTENCES: dict[str, Sentence] = {
    "ended-before-azure-was-asked": "The event ended before the approval reached Azure.",
    "not-before-came-first": "NotBefore came before any machine's order was accepted by Azure.",
    "started-late-without-receipt": (
        "The event started at NotBefore or later, and no machine reported that Azure had accepted its order."
    ),
    "started-while-order-was-out": "Started was seen while an order was out; its receipt never came.",
    "started-after-azure-was-asked": "Started was seen after a machine had asked Azure and got no answer.",
    "started-with-order-unconfirmed": (
        "The event started while an order was on its way. Its delivery was not confirmed, so it is not known whether"
        " this approval started the event."
    ),
    "started-without-approval": "The event started without this approval.",
    "started-after-azure-accepted": "Started was seen after Azure had answered 200.",
    "started-and-nobody-knows": (
        "Azure had answered {status}, which is neither yes nor no, and then the event started: it is unknown whether"
        " this approval started it."
    ),
    "cancelled-after-200": "Azure had answered 200, and then cancelled the event: it was gone without having started.",
    "accepted-and-not-started": "Azure answered 200 and the event has not started: another machine asks as well.",
    "gone-after-azure-accepted": "The event was gone after Azure had answered 200.",
    "asked-before": "The machine asked before {live:?has not answered|is no longer live}.",
    "nobody-would": no_machine_would,
    "azure-has-accepted": "Azure has accepted the approval from {machine}.",
    "next-asked": next_asked,
    "order-refused": lambda values, reader: f"Refused by the agent: {refusal(values['reason'])}.",
    "azure-was-busy": was_busy,
    "order-failed": "The agent got no answer: {reason:spoken}.",
    "by-hand-nobody-lists-it": "No live machine of the set lists the event, so no agent can ask Azure.",
    "by-hand-everyone-refused": "Every agent that could be asked has refused to ask Azure.",
    "by-hand-nobody-answers": no_agent_answers,
    "overlap-negative": "The overlap cannot be negative.",
    "signing-keys-unreadable": (
        "None of the current signing keys can be read: they were encrypted with another SECRET_KEY. Put that one into "
        "SECRET_KEY_FALLBACKS, or let every machine enrol again."
    ),
}


def delivered(row: TimelineRow, reader: Reader) -> str:
    path = PATHS.get(row.data["path"])
    return f"{row.data['machine']} has the order{f' by {path}' if path else ''}."


def answered(row: TimelineRow, reader: Reader) -> str:
    machine, reason = row.data["machine"], row.data["reason"]
    match row.data["outcome"]:
        case "answered":
            return f"Azure answered {row.data['azure_status']} to {machine}."
        case "refused":
            return f"{machine} did not ask Azure: {refusal(reason)}."
    return f"{machine} asked Azure and got no answer: {spoken(reason) or 'no reason given'}."


def late_receipt(row: TimelineRow, reader: Reader) -> str:
    if "machine" not in row.data:
        return "A receipt came for an order that this machine was never given."
    return answered(row, reader)


def key_made(row: TimelineRow, reader: Reader) -> str:
    by = row.data["introduced_by"]
    return f"The key {row.data['key']} signs orders from now on{f', introduced by {by}' if by else ''}."


ENDED = "Order to {machine} ended: {reason}"


def offered(row: TimelineRow, reader: Reader) -> str:
    why = " {reason}" if row.data.get("reason") else ""
    return fill("{machine} is asked to start the event at Azure." + why, row.data, reader)


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.ORDER_OFFERED: offered,
    EntryKind.ORDER_DELIVERED: delivered,
    EntryKind.ORDER_ANSWERED: answered,
    EntryKind.ORDER_SUPERSEDED: ENDED,
    EntryKind.ORDER_EXPIRED: ENDED,
    EntryKind.ORDER_CANCELLED: ENDED,
    EntryKind.LATE_RECEIPT: late_receipt,
    EntryKind.APPROVAL_ACCEPTED: "Azure answered 200 to {machine}: the approval is accepted.",
    EntryKind.APPROVAL_CORRECTED: (
        "Correction: Azure had answered 200 to {machine}, and the answer arrived late. The approval is accepted."
    ),
    EntryKind.APPROVAL_CONFIRMED: "{reason}",
    EntryKind.APPROVAL_WITHDRAWN: "{reason}",
    EntryKind.APPROVAL_REFUSED: "{reason}",
    EntryKind.APPROVAL_LAPSED: "{reason}",
    EntryKind.APPROVAL_VOID: "{reason}",
    EntryKind.SIGNING_KEY_MADE: key_made,
    EntryKind.SIGNING_KEY_RETIRED: "The key {key} signs orders until {retires_at:time}.",
}
