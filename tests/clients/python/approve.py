"""Approves the event with the least time left, through the client that is generated from the OpenAPI document."""

from uuid import uuid4

from drydock_client import AuthenticatedClient
from drydock_client.api.events import approve_event, list_events
from drydock_client.models import AlreadyDecidedProblem, Approval, Approve, EventPage, GuardedProblem


class NotApprovedError(Exception):
    """Why it was not approved, in one sentence."""


def approve_next(base_url: str, token: str, comment: str) -> Approval:
    with AuthenticatedClient(base_url=base_url, token=token) as drydock:
        listed = list_events.sync(client=drydock, needs_decision=True)
        if not isinstance(listed, EventPage):
            raise NotApprovedError(listed.detail if listed else "There was no answer.")
        if not listed.results:
            raise NotApprovedError("Nothing needs a decision.")
        event = listed.results[0]
        wanted = Approve(comment=comment, expected_version=event.version)
        answer = approve_event.sync(event.event_id, client=drydock, body=wanted, idempotency_key=str(uuid4()))
    match answer:
        case Approval():
            return answer
        case AlreadyDecidedProblem():
            raise NotApprovedError(f"{answer.by or 'Another user'} was first.")
        case GuardedProblem():
            raise NotApprovedError(" ".join(guard.sentence for guard in answer.guards or []))
        case None:
            raise NotApprovedError("There was no answer.")
        case _:
            raise NotApprovedError(answer.detail)
