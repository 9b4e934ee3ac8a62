"""API calls for several events. Each event is decided separately and has its own result."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import OperationalError
from django.http import QueryDict
from django.utils import timezone
from rest_framework.response import Response

from fleet.api.calls import Call, filtered
from fleet.api.problems import waits, wrong
from fleet.api.repeats import answered, completed, idempotency_key, once
from fleet.api.schema import describe
from fleet.api.shapes import answers as shapes
from fleet.api.shapes.requests import MAX_ITEMS, BulkApproveSerializer, BulkClaimSerializer
from fleet.api.views.approvals import claimed, grant
from fleet.domain.reasons import Refused
from fleet.operations.approvals import approve
from fleet.operations.approvals.approve import LockedFacts
from fleet.operations.idempotency import Answer
from fleet.projections import orders
from fleet.projections.events import rows as event_rows
from fleet.projections.filters import EventFilter

Body = dict[str, Any]
describe_bulk = partial(describe, needs="approve", by_parts=True, problems=("count-changed",))


class BulkApprovals(Call, at="bulk/approvals/"):
    @describe_bulk("approve_events", answer=shapes.BulkApprovals, body=BulkApproveSerializer)
    def post(self) -> Response:
        """Approve several events, with one result for each

        Each event is decided separately: events of one service in the order given, with a filter by time left. A
        refusal does not stop the others. With an `Idempotency-Key`, a repeated call continues where the first one was
        cut off.
        """
        versions = _versions(self)

        def act(event_id: str, ahead: LockedFacts | None) -> Body:
            return {"id": grant(self, event_id, versions.get(event_id), ahead)}

        return each(self, "approval", act, _approvals)


class BulkClaims(Call, at="bulk/claims/"):
    @describe_bulk("claim_events", answer=shapes.BulkClaims, body=BulkClaimSerializer)
    def post(self) -> Response:
        """Claim several events, with one result for each

        Each event is decided separately: events of one service in the order given, with a filter by time left. A
        refusal does not stop the others. With an `Idempotency-Key`, a repeated call continues where the first one was
        cut off.
        """
        versions = _versions(self)

        def act(event_id: str, _: LockedFacts | None) -> Body:
            body: Body = self.values(shapes.ClaimShape, claimed(self, event_id, versions.get(event_id)))
            return body

        return each(self, "claim", act)


def _versions(call: Call) -> dict[str, int]:
    """Return the versions that the caller has seen, by EventId in upper case."""
    return {event_id.strip().upper(): version for event_id, version in call.wanted["expected_versions"].items()}


def _approvals(call: Call, answers: Sequence[Body]) -> list[Body]:
    """Return the full rows of the approvals in `answers`, which contain only ids. They are read together after the last
    decision.
    """
    rows = orders.approvals([one["id"] for one in answers], now=call.now)
    return [call.values(shapes.ApprovalShape, rows[one["id"]]) if one["id"] in rows else one for one in answers]


def each(
    call: Call,
    what: str,
    act: Callable[[str, LockedFacts | None], Body],
    load: Callable[[Call, Sequence[Body]], list[Body]] | None = None,
) -> Response:
    """Call `act` for each selected event, and return the response with all results. With an `Idempotency-Key`, the
    selected ids are stored, because the filter may match other events at a repeat.

    With `load`, `act` returns only ids, and `load` returns the full rows, which are stored then. If the call was
    interrupted before that, a repeat returns the rows as they are at the repeat.
    """
    if idempotency_key(call.request) is None:
        event_ids = chosen(call)
    else:
        stored = once(call.request, lambda: {"events": chosen(call)}, now=call.now, status=200)
        if stored.status >= 400:
            return answered(stored)
        event_ids = stored.body["events"] if stored.body else []

    def answer(event_id: str, ahead: LockedFacts | None) -> Answer:
        return once(call.request, partial(act, event_id, ahead), now=call.now, part=event_id)

    def held(event_id: str, error: OperationalError) -> Answer:
        # A repeat of the call tries it again.
        body = waits(error)
        return Answer(status=body["status"], body=body)

    answers = approve.each(event_ids, answer, held, clock=timezone.now, ahead=load is not None)
    results: list[dict[str, Any]] = [
        {
            "event_id": event_id,
            "status": one.status,
            what: one.body if one.status < 400 else None,
            "problem": None if one.status < 400 else one.body,
        }
        for event_id, one in zip(event_ids, answers, strict=True)
    ]
    if load is not None:
        named = [one for one in results if one[what] is not None and one[what].keys() == {"id"}]
        for one, body in zip(named, load(call, [one[what] for one in named]), strict=True):
            one[what] = body
        completed(call.request, {one["event_id"]: one[what] for one in named})
    count = sum(one["problem"] is None for one in results)
    return Response({"done": count, "refused": len(results) - count, "results": results})


def chosen(call: Call) -> list[str]:
    """Return the selected EventIds. Raises Problem `validation`, or Refused `count-changed` if a filter matches another
    number of events than the caller expects.
    """
    wanted = call.wanted
    if "events" in wanted:
        found = list(dict.fromkeys(event_id.strip().upper() for event_id in wanted["events"]))
    else:
        query = QueryDict(mutable=True)
        for name, value in wanted["filter"].items():
            if name not in EventFilter.base_filters:
                raise wrong("filter", f"There is no filter `{name}`.")
            query.setlist(name, [str(one) for one in value] if isinstance(value, list) else [_text(value)])
        filters = filtered(call.request, EventFilter(query, now=call.now))
        found = event_rows.ids_by_time(filters, limit=MAX_ITEMS + 1)
        if len(found) > MAX_ITEMS:
            raise wrong("filter", f"It finds more than {MAX_ITEMS} events: narrow it.")
    expected = wanted["expected_count"]
    if expected is not None and expected != len(found):
        raise Refused("count-changed", f"These are {len(found)} events, and you expected {expected}.", count=len(found))
    return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
