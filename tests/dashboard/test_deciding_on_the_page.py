"""The decision panel: what guards ask for, later, the second person, claims and holds. Plain forms, all of them."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from fleet.models import Approval, AvailabilitySet, Claim, Hold, Scope
from fleet.operations.people import step_up
from tests import factories
from tests.dashboard.conftest import logged_in, text_of

ALL = tuple(f"vm{number}" for number in range(1, 7))
HTMX = {"HX-Request": "true"}


@pytest.fixture
def approver(db: None) -> Client:
    return logged_in(factories.approver())


def proved(client: Client) -> Client:
    """The same, who has just proved who they are."""
    session = client.session
    step_up.note(session, at=timezone.now())
    session.save()
    return client


def post(client: Client, address: str, **fields: Any) -> Any:
    return client.post(address, fields, headers=HTMX)


def panel(client: Client, event_id: str) -> str:
    answer = client.get(f"/events/{event_id}/?part=decision", headers=HTMX)
    assert answer.status_code == 200
    return text_of(answer)


class TestReasons:
    def test_there_is_a_field_for_each_guard_that_takes_one(self, fleet: factories.Fleet, operator: Client) -> None:
        event = factories.announced(fleet, event_type="Redeploy")
        body = operator.get(f"/events/{event.event_id}/").content.decode()
        forms = body.split('name="when" value="')[1:]
        assert [(form.split('"')[0], form.count('name="reason-')) for form in forms] == [
            ("now", 1),
            ("prepared", 1),
            ("time", 1),
        ]
        assert 'name="reason-lost-for-good" maxlength="2000" autocomplete="off" value="" required' in body
        assert "What is lost does not come back: ephemeral disks. needs a reason" in text_of(
            operator.get(f"/events/{event.event_id}/")
        )

    def test_without_it_the_form_comes_back_with_what_was_typed(self, fleet: factories.Fleet, operator: Client) -> None:
        event = factories.announced(fleet, event_type="Redeploy")
        refused = post(operator, f"/events/{event.event_id}/approve/", comment="as I said")
        assert refused.status_code == 409
        assert "A guard speaks against it. What is lost does not come back" in text_of(refused)
        assert 'value="as I said"' in refused.content.decode()
        done = post(operator, f"/events/{event.event_id}/approve/", **{"reason-lost-for-good": "no data there"})
        assert done.status_code == 200
        assert "What is lost does not come back: ephemeral disks. no data there" in text_of(done)

    def test_only_an_approver_is_offered_to_go_past_what_blocks(
        self, fleet: factories.Fleet, operator: Client, approver: Client
    ) -> None:
        event = factories.announced(fleet)
        due = fleet.now + timedelta(minutes=9)
        other = factories.listing("OTHER-EVENT", resources=["vm3"], not_before=due)
        fleet.say("vm3", factories.listing(resources=("vm1", "vm2"), not_before=event.not_before), other)
        fleet.approve()
        seen = operator.get("/events/OTHER-EVENT/").content.decode()
        assert "reason-set-in-flight" not in seen
        assert "disabled" in seen.split("btn btn-primary approve")[1][:40]
        assert "an approver may override it, with a reason" in panel(operator, "OTHER-EVENT")
        assert "reason-set-in-flight" in approver.get("/events/OTHER-EVENT/").content.decode()
        done = post(approver, "/events/OTHER-EVENT/approve/", **{"reason-set-in-flight": "four stay up"})
        assert "four stay up" in text_of(done)


def test_each_way_of_deciding_is_a_form_of_its_own(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet)
    body = operator.get(f"/events/{event.event_id}/").content.decode()
    forms = [
        part.split("</form>")[0] for part in body.split("<form")[1:] if f"/events/{event.event_id}/approve/" in part
    ]
    # The first one's button stands beside it, where it can stay on the screen.
    assert [form.count('type="submit"') for form in forms] == [0, 1, 1]
    assert 'id="approve-now" form="approve" type="submit"' in body
    assert [form.count('name="when"') for form in forms] == [1, 1, 1]


class TestLater:
    def test_when_prepared_says_whom_it_waits_for_and_can_be_withdrawn(
        self, fleet: factories.Fleet, operator: Client
    ) -> None:
        event = factories.announced(fleet)
        assert "Waits until vm1, vm2 are prepared." in panel(operator, event.event_id)
        done = post(operator, f"/events/{event.event_id}/approve/", when="prepared")
        shown = text_of(done)
        assert "Approved, waits" in shown
        assert "It waits until vm1, vm2 are prepared." in shown
        assert "Machines prepared" in shown
        row = text_of(operator.get("/?part=queue", headers=HTMX))
        assert "Nothing needs a decision" in row
        assert "It waits until every machine that it hits is prepared." in row
        approval = Approval.objects.get()
        gone = post(operator, f"/approvals/{approval.pk}/withdraw/")
        assert "The event needs a decision again" in text_of(gone)
        assert "Start Freeze of vm1, vm2 now" in text_of(gone)

    def test_at_a_time(self, fleet: factories.Fleet, operator: Client) -> None:
        event = factories.announced(fleet)
        due = (fleet.now + timedelta(minutes=5)).replace(microsecond=0)
        done = post(operator, f"/events/{event.event_id}/approve/", when="time", at=f"{due:%Y-%m-%dT%H:%M:%S}")
        assert f"It waits until {due:%H:%M:%S}" in text_of(done)
        assert Approval.objects.get().due_at == due

    @pytest.mark.parametrize(
        ("at", "sentence"), [("", "Choose a time in the future"), ("soon", "Enter a date and a time of day.")]
    )
    def test_a_time_that_makes_no_sense_is_told(
        self, fleet: factories.Fleet, operator: Client, at: str, sentence: str
    ) -> None:
        event = factories.announced(fleet)
        refused = post(operator, f"/events/{event.event_id}/approve/", when="time", at=at)
        assert refused.status_code == 422
        assert sentence in text_of(refused)
        assert "open" in refused.content.decode().split('class="more-box later"')[1][:40]


class TestTheSecondPerson:
    def test_the_button_says_propose_and_the_queue_asks_on(
        self, fleet: factories.Fleet, operator: Client, approver: Client
    ) -> None:
        event = factories.announced(fleet, event_type="Reboot", resources=ALL)
        assert "Propose: start Reboot of vm1, vm2, vm3 and 3 more now" in panel(operator, event.event_id)
        done = text_of(post(operator, f"/events/{event.event_id}/approve/", comment="all at once"))
        assert "Proposed" in done
        assert "It waits for a second person." in done
        assert "You proposed it yourself: the second person has to be somebody else, an approver." in done
        queue = text_of(approver.get("/?part=queue", headers=HTMX))
        assert "1 event needs a decision" in queue
        assert "Waits for a second person: otto proposed it." in queue
        assert "Agree?" in queue

    def test_an_approver_agrees(self, fleet: factories.Fleet, operator: Client, approver: Client) -> None:
        event = factories.announced(fleet, event_type="Reboot", resources=ALL)
        post(operator, f"/events/{event.event_id}/approve/")
        approval = Approval.objects.get()
        shown = panel(approver, event.event_id)
        assert "Agree: start Reboot of vm1, vm2, vm3 and 3 more now" in shown
        assert "otto proposed it; you would be the second person." in shown
        # What speaks against it stays in view; that it is proposed is no reason against agreeing.
        assert "It takes down every live machine of the set: none stays up." in shown
        assert "has proposed it already" not in shown
        done = text_of(post(approver, f"/approvals/{approval.pk}/consent/", comment="seen"))
        assert "anna agreed as the second person: “seen”" in done
        assert "Send to vm1" in done

    def test_who_may_not_is_told_why(self, fleet: factories.Fleet, operator: Client, viewer: Client) -> None:
        event = factories.announced(fleet, event_type="Reboot", resources=ALL)
        post(operator, f"/events/{event.event_id}/approve/")
        olga = logged_in(factories.operator("olga"))
        for client in (olga, viewer):
            shown = panel(client, event.event_id)
            assert "Being the second person needs the right of an approver." in shown
            assert "Agree:" not in shown
        approval = Approval.objects.get()
        assert post(olga, f"/approvals/{approval.pk}/consent/").status_code == 403
        assert post(operator, "/approvals/999999/consent/").status_code == 404

    def test_an_admin_asks_for_two_in_a_set(self, fleet: factories.Fleet, admin: Client, operator: Client) -> None:
        event = factories.announced(fleet)
        address = f"/sets/{factories.the_set().pk}/"
        assert "Always ask for two" in text_of(admin.get(address))
        assert "Always ask for two" not in text_of(operator.get(address))
        assert operator.post(f"{address}second-person/", {"second_person": "1"}).status_code == 403
        seen = text_of(admin.post(f"{address}second-person/", {"second_person": "1"}, follow=True))
        assert "Approving here now always takes a second person." in seen
        assert "two people approve" in seen
        assert AvailabilitySet.objects.get().second_person
        assert "Propose: start Freeze of vm1, vm2 now" in panel(operator, event.event_id)
        assert admin.post(f"{address}second-person/", {}).status_code == 401
        proved(admin).post(f"{address}second-person/", {})
        assert AvailabilitySet.objects.get().second_person
        proved(logged_in(factories.admin("alma"))).post(f"{address}second-person/", {})
        assert not AvailabilitySet.objects.get().second_person

    def test_an_admin_says_what_a_set_needs(self, fleet: factories.Fleet, admin: Client, operator: Client) -> None:
        event = factories.announced(fleet)
        address = f"/sets/{factories.the_set().pk}/"
        assert operator.post(f"{address}needs/", {"needs_live": "5"}).status_code == 403
        seen = text_of(admin.post(f"{address}needs/", {"needs_live": "5"}, follow=True))
        assert "This set needs 5 live machines." in seen
        assert "ada said that it needs 5 live machines." in seen
        assert 'value="5"' in admin.get(address).content.decode()
        assert "4 of 6 stay up, it needs 5" in text_of(operator.get(f"/events/{event.event_id}/"))
        refused = admin.post(f"{address}needs/", {"needs_live": "many"})
        assert (refused.status_code, "1 to 1000" in text_of(refused)) == (422, True)
        assert admin.post(f"{address}needs/", {"needs_live": ""}).status_code == 401
        assert AvailabilitySet.objects.get().needs_live == 5
        seen = text_of(proved(admin).post(f"{address}needs/", {"needs_live": ""}, follow=True))
        assert "ada took back how many it needs." in seen
        assert AvailabilitySet.objects.get().needs_live is None


class TestClaims:
    def test_claim_take_over_and_give_back(self, fleet: factories.Fleet, operator: Client) -> None:
        event = factories.announced(fleet)
        address = f"/events/{event.event_id}"
        done = text_of(post(operator, f"{address}/claim/", comment="draining vm1"))
        assert "otto is on it, just now : “draining vm1”" in done or "otto is on it, just now: “draining vm1”" in done
        assert "Give back" in done
        olga = logged_in(factories.operator("olga"))
        assert "otto is on it since" in text_of(olga.get("/?part=queue", headers=HTMX))
        seen = panel(olga, event.event_id)
        assert "Take over" in seen
        assert "Give back" not in seen
        assert post(olga, f"{address}/claim/").status_code == 409
        assert "olga is on it" in text_of(post(olga, f"{address}/claim/", take_over="1"))
        assert post(operator, f"{address}/give-back/").status_code == 403
        plain = olga.post(f"{address}/give-back/", follow=True)
        assert "Given back: nobody is on it now." in text_of(plain)
        assert not Claim.objects.filter(ended_at=None).exists()


class TestHolds:
    def test_hold_and_lift(self, fleet: factories.Fleet, operator: Client) -> None:
        event = factories.announced(fleet)
        address = f"/events/{event.event_id}"
        assert "Azure is not told, and may start it from NotBefore on." in panel(operator, event.event_id)
        assert post(operator, f"{address}/hold/", reason=" ").status_code == 422
        done = text_of(post(operator, f"{address}/hold/", reason="the shop is open"))
        assert (
            "left it to Azure just now : “the shop is open”" in done
            or "left it to Azure just now: “the shop is open”" in done
        )
        assert "Nobody can postpone it: Azure may start it from NotBefore on." in done
        assert "reason-held" in operator.get(f"{address}/").content.decode()
        queue = text_of(operator.get("/?part=queue", headers=HTMX))
        assert "Nothing needs a decision" in queue
        assert "left to Azure by otto" in queue
        lifted = text_of(post(operator, f"{address}/lift/"))
        assert "Start Freeze of vm1, vm2 now" in lifted
        assert Hold.objects.get().ended_at is not None


def test_a_viewer_sees_it_all_and_no_form(fleet: factories.Fleet, operator: Client, viewer: Client) -> None:
    event = factories.announced(fleet, event_type="Redeploy")
    post(operator, f"/events/{event.event_id}/claim/", comment="mine")
    post(operator, f"/events/{event.event_id}/hold/", reason="sale")
    answer = viewer.get(f"/events/{event.event_id}/?part=decision", headers=HTMX)
    assert "<form" not in answer.content.decode()
    shown = text_of(answer)
    for seen in (
        "otto is on it",
        "otto left it to Azure",
        "needs a reason",
        "Approving needs the right of an operator.",
    ):
        assert seen in shown
    for act in ("claim", "give-back", "hold", "lift"):
        assert post(viewer, f"/events/{event.event_id}/{act}/", reason="x").status_code == 403


def test_somebody_whose_right_ends_elsewhere_reads_where(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet)
    Scope.objects.create(user=User.objects.get(username="otto"), kind="name", pattern="db*")
    answer = operator.get(f"/events/{event.event_id}/?part=decision", headers=HTMX)
    assert "<form" not in answer.content.decode()
    assert "Your right does not cover the set web: it covers name db*." in text_of(answer)
