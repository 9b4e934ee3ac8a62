"""Deciding through the API: reasons, later, the second person, claims, holds, and what the answers hold."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from fleet.models import Approval, Claim, Hold
from tests import factories
from tests.api.conftest import Caller, caller, problem
from tests.approvals.asking import hook

ALL = tuple(f"vm{number}" for number in range(1, 7))


def approve(who: Caller, event_id: str, **body: Any) -> Any:
    return who.post(f"events/{event_id}/approvals/", {"comment": "drained", **body})


def test_a_guard_takes_its_reason_from_the_override_or_the_comment(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet, event_type="Redeploy")
    refused = problem(approve(operator, event.event_id), 409, "guarded")
    assert [(one["code"], one["needs"], one["overridable"]) for one in refused["guards"]] == [
        ("lost-for-good", "reason", False)
    ]
    shown = operator.get(f"events/{event.event_id}/").json()
    assert [one["code"] for one in shown["guards"]] == ["lost-for-good"]
    made = approve(operator, event.event_id, override=["lost-for-good"])
    assert made.status_code == 201, made.content
    assert [(one["code"], one["reason"]) for one in made.json()["overrides"]] == [("lost-for-good", "drained")]


def test_a_reason_of_its_own_goes_before_the_comment(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet, event_type="Redeploy")
    made = approve(operator, event.event_id, override=[{"code": "lost-for-good", "reason": "no data there"}])
    assert [one["reason"] for one in made.json()["overrides"]] == ["no data there"]


def test_when_prepared_waits_and_says_for_whom(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    hook(fleet, "vm1", event.event_id, "end", "nothing")
    made = approve(operator, event.event_id, when="prepared").json()
    assert (made["state"], made["when"], made["due_at"], made["granted_at"], made["orders"]) == (
        "WAITING",
        "prepared",
        None,
        None,
        [],
    )
    assert "vm2" in made["waits_for"]
    assert len(made["steps"]) > 3
    assert made["may_be_withdrawn"] is True
    shown = operator.get(f"events/{event.event_id}/").json()
    assert (shown["needs_decision"], shown["not_ready"]) == (False, ["vm2"])
    assert shown["approval"]["waits_for"] == made["waits_for"]
    gone = operator.delete(f"approvals/{made['id']}/", {"comment": "changed my mind"})
    assert (gone.status_code, gone.json()["state"], gone.json()["waits_for"]) == (200, "WITHDRAWN", "")


def test_a_time_may_be_said_in_any_zone(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=5)
    said = due.astimezone(timezone(timedelta(hours=2)))
    made = approve(operator, event.event_id, when=said.isoformat()).json()
    assert (made["when"], made["due_at"]) == ("time", due.isoformat().replace("+00:00", "Z"))
    assert f"{due:%Y-%m-%d %H:%M:%S} UTC" in made["waits_for"]


class TestTheSecondPerson:
    def proposed(self, fleet: factories.Fleet, who: Caller) -> dict[str, Any]:
        event = factories.announced(fleet, event_type="Reboot", resources=ALL)
        answer = approve(who, event.event_id)
        assert answer.status_code == 201, answer.content
        made: dict[str, Any] = answer.json()
        return made

    def test_a_proposal_needs_a_decision_still(self, fleet: factories.Fleet, operator: Caller) -> None:
        made = self.proposed(fleet, operator)
        assert (made["state"], bool(made["waits_for"])) == ("PROPOSED", True)
        shown = operator.get(f"events/{made['event_id']}/").json()
        assert shown["needs_decision"] is True
        listed = operator.get("events/?needs_decision=true").json()["results"]
        assert [one["event_id"] for one in listed] == [made["event_id"]]

    def test_an_approver_agrees_once_and_a_repeat_gets_the_same_answer(
        self, fleet: factories.Fleet, operator: Caller
    ) -> None:
        made = self.proposed(fleet, operator)
        anna = caller(factories.approver())
        done = anna.post(f"approvals/{made['id']}/consents/", {"comment": "seen"}, idempotency_key="k")
        assert done.status_code == 201, done.content
        shown = done.json()
        assert (shown["state"], shown["consented_by"], shown["consent_comment"]) == ("GRANTED", "anna", "seen")
        again = anna.post(f"approvals/{made['id']}/consents/", {"comment": "seen"}, idempotency_key="k")
        assert again.json() == shown
        assert again["Idempotency-Replayed"] == "true"
        problem(anna.post(f"approvals/{made['id']}/consents/", {}), 409, "too-late")


class TestClaims:
    def test_claimed_taken_over_and_given_back(self, fleet: factories.Fleet, operator: Caller) -> None:
        event = factories.announced(fleet)
        address = f"events/{event.event_id}/claims/"
        made = operator.post(address, {"comment": "draining"})
        assert made.status_code == 201, made.content
        assert (made.json()["by"], made.json()["comment"], made.json()["ended_at"]) == ("otto", "draining", None)
        shown = operator.get(f"events/{event.event_id}/").json()["claim"]
        assert shown == {"by": "otto", "at": made.json()["at"], "comment": "draining"}
        olga = caller(factories.operator("olga"))
        refused = problem(olga.post(address, {}), 409, "already-claimed")
        assert (refused["by"], refused["comment"]) == ("otto", "draining")
        assert olga.post(address, {"take_over": True}).json()["by"] == "olga"
        problem(operator.delete(address), 403, "not-permitted")
        assert olga.delete(address).json()["ended_at"] is not None
        problem(olga.delete(address), 409, "not-claimed")
        assert Claim.objects.filter(token_name="tests").count() == 2

    def test_an_unknown_event_is_unknown(self, fleet: factories.Fleet, operator: Caller) -> None:
        event = factories.announced(fleet)
        problem(operator.post("events/no-such/claims/", {}), 404, "unknown-event")
        problem(operator.post("events/no-such/holds/", {"reason": "x"}), 404, "unknown-event")
        problem(operator.post(f"events/{event.event_id}/claims/", {"coment": "x"}), 422, "validation")


class TestHolds:
    def test_held_and_lifted(self, fleet: factories.Fleet, operator: Caller) -> None:
        event = factories.announced(fleet)
        address = f"events/{event.event_id}/holds/"
        problem(operator.post(address, {}), 422, "validation")
        problem(operator.post(address, {"reason": " "}), 422, "validation")
        made = operator.post(address, {"reason": "the sale"}, idempotency_key="h")
        assert made.status_code == 201, made.content
        assert operator.post(address, {"reason": "the sale"}, idempotency_key="h").json() == made.json()
        shown = operator.get(f"events/{event.event_id}/").json()
        assert shown["hold"] == {"by": "otto", "at": made.json()["at"], "reason": "the sale", "by_rule": False}
        # Who holds it has decided: it shall run by itself.
        assert shown["needs_decision"] is False
        assert operator.get("events/?needs_decision=true").json()["results"] == []
        problem(operator.post(address, {"reason": "again"}), 409, "already-held")
        problem(approve(operator, event.event_id), 409, "guarded")
        assert operator.delete(address).json()["ended_at"] is not None
        problem(operator.delete(address), 409, "not-held")
        assert Hold.objects.count() == 1
        assert approve(operator, event.event_id).status_code == 201
        assert Approval.objects.get().overrides == []
