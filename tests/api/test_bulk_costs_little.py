"""Bulk approvals: a hundred in one call query shared facts once."""

from datetime import timedelta

from django.db import connection
from django.test.utils import CaptureQueriesContext

from fleet.models import StoredAnswer
from tests import factories
from tests.api.conftest import Caller

IDS = [f"0A1B2C3D-0000-4000-8000-0000000000{number:02d}" for number in range(6)]
# Two of them begin and end its part of the transaction, one keeps the answer for a repeat, and two write: approval and
# order. The key is taken by the driver's own cursor, which is not counted; the entries of all go together.
MOST = 5


def test_each_further_approval_costs_little_more_than_itself(fleet: factories.Fleet, operator: Caller) -> None:
    for number, event_id in enumerate(IDS):
        fleet.enrol(f"m{number}", availability_set=f"set{number}")
        due = fleet.now + timedelta(minutes=5 + number)
        fleet.say(f"m{number}", factories.listing(event_id, resources=[f"m{number}"], not_before=due))

    def cost(event_ids: list[str], key: str) -> int:
        with CaptureQueriesContext(connection) as caught:
            answer = operator.post("bulk/approvals/", {"events": event_ids, "comment": "x"}, idempotency_key=key)
        assert [one["approval"]["state"] for one in answer.json()["results"]] == ["GRANTED"] * len(event_ids)
        return len(caught)

    two, four = cost(IDS[:2], "two"), cost(IDS[2:], "four")
    assert (four - two) / 2 <= MOST


def test_a_repeat_after_a_call_that_was_cut_off_before_it_told_tells_it_whole(
    fleet: factories.Fleet, operator: Caller
) -> None:
    fleet.enrol("m", availability_set="set")
    fleet.say("m", factories.listing(IDS[0], resources=["m"], not_before=fleet.now + timedelta(minutes=5)))
    body = {"events": [IDS[0]], "comment": "x"}
    first = operator.post("bulk/approvals/", body, idempotency_key="k").json()
    # As it stands between the last decision and the answer.
    kept = StoredAnswer.objects.get(key__endswith=IDS[0])
    assert kept.body is not None
    StoredAnswer.objects.filter(pk=kept.pk).update(body={"id": kept.body["id"]})
    again = operator.post("bulk/approvals/", body, idempotency_key="k").json()
    assert again["results"][0]["approval"].keys() == first["results"][0]["approval"].keys()
    body_again = StoredAnswer.objects.get(pk=kept.pk).body
    assert body_again is not None
    assert body_again.keys() == kept.body.keys()
