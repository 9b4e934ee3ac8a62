"""Instructions to approve an event by hand when no agent can, with commands to copy. This module does no I/O."""

import json
import shlex
from dataclasses import dataclass

from fleet.domain.approvals.guards import MachineFacts, affected_machines, start_candidates
from fleet.domain.event_types import is_advice
from fleet.domain.orders.next_step import Relay
from fleet.domain.reasons import Reason
from fleet.domain.states import ApprovalState, EventStatus

# The newest version of the document that Microsoft describes ("Scheduled Events for Linux VMs in Azure", 2023-01-25).
API_VERSION = "2020-07-01"
URL = f"http://169.254.169.254/metadata/scheduledevents?api-version={API_VERSION}"
# The metadata service must not be called through a proxy.
CURL = "curl --silent --show-error --fail-with-body --noproxy '*' --max-time 20 --header Metadata:true"


@dataclass(frozen=True, slots=True)
class ByHand:
    """Instructions to approve an event by hand, and why they are needed.

    One command must be run on any one of `machines`: `linux` in a shell, or `windows` in PowerShell.
    """

    reason: Reason
    event_id: str
    machines: tuple[MachineFacts, ...]
    linux: str
    windows: str


def linux_command(event_id: str) -> str:
    """Return the command that approves the event, for a shell with curl. Any user of the machine may run it."""
    return f"{CURL} --data {shlex.quote(_body(event_id))} {shlex.quote(URL)}"


def look_command() -> str:
    """Return a command that shows which events Azure has announced to the machine, for a shell with curl."""
    return f"{CURL} {shlex.quote(URL)}"


def windows_command(event_id: str) -> str:
    """Return the command that approves the event, for Windows PowerShell and PowerShell 7."""
    body = _body(event_id).replace("'", "''")
    return (
        "[System.Net.WebRequest]::DefaultWebProxy = $null; "
        "Invoke-RestMethod -Method Post -TimeoutSec 20 -Headers @{ Metadata = 'true' } "
        f"-Body '{body}' -Uri '{URL}'"
    )


def _body(event_id: str) -> str:
    return json.dumps({"StartRequests": [{"EventId": event_id}]}, separators=(",", ":"))


def by_hand(relay: Relay) -> ByHand | None:
    """Return instructions to approve the event by hand; None while they are not needed.

    `relay` is about the open approval, else about the newest one.
    """
    facts = relay.facts
    if facts.drill or facts.status is not EventStatus.SCHEDULED or is_advice(facts.event_type) or relay.too_late:
        return None
    reason = _reason(relay)
    if reason is None:
        return None
    hit = {machine.machine_id for machine in affected_machines(facts)}
    # Machines that list it first, then affected ones: a user is most likely signed in to those.
    machines = sorted(facts.machines, key=lambda m: (not m.lists_it, m.machine_id not in hit, m.name.lower()))
    event_id = next((machine.spelled for machine in machines if machine.spelled), facts.event_id)
    return ByHand(
        reason=reason,
        event_id=event_id,
        machines=tuple(machines),
        linux=linux_command(event_id),
        windows=windows_command(event_id),
    )


def _reason(relay: Relay) -> Reason | None:
    state, facts, orders = relay.state, relay.facts, relay.orders
    if state is ApprovalState.ACCEPTED:
        return None
    if not start_candidates(facts):
        return Reason("by-hand-nobody-lists-it")
    if state is ApprovalState.REFUSED and any(order.outcome == "refused" for order in orders):
        return Reason("by-hand-everyone-refused")
    relayed = state in (ApprovalState.GRANTED, ApprovalState.RELAYING)
    if relayed and orders and relay.now - min(order.offered_at for order in orders) >= relay.timeouts.by_hand:
        asked = {order.machine_id for order in orders}
        names = [machine.name for machine in facts.machines if machine.machine_id in asked]
        return Reason("by-hand-nobody-answers", machines=names)
    return None
