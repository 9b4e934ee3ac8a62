"""Decision panel: it works as plain forms and as a live part. tests/approvals proves the decisions themselves."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.models import Approval, AvailabilitySet, Claim, Hold, Scope
from tests import accounts, factories
from tests.dashboard.conftest import acts, codes, logged_in, marks, states, text_of

ALL = tuple(f"vm{number}" for number in range(1, 7))
HTMX = {"HX-Request": "true"}


@pytest.fixture
def approver(db: None) -> Client:
    return logged_in(factories.approver())


def post(client: Client, address: str, **fields: Any) -> Any:
    return client.post(address, fields, headers=HTMX)


def panel(client: Client, event_id: str = factories.EVENT) -> Any:
    answer = client.get(f"/events/{event_id}/?part=decision", headers=HTMX)
    assert answer.status_code == 200
    return answer


def body_of(answer: Any) -> str:
    return str(answer.content.decode())


def is_off(answer: Any) -> bool:
    """Whether the button that starts it cannot be pressed."""
    return " disabled" in body_of(answer).split("btn btn-primary approve")[1].partition(">")[0]


def test_a_plain_form_approves_and_comes_back_to_the_event(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet)
    address = f"/events/{event.event_id}/"
    assert operator.get(f"{address}approve/").status_code == 405
    sent = {"comment": "drained", "expected_version": event.version}
    answer = operator.post(f"{address}approve/", sent, follow=True)
    assert answer.redirect_chain == [(address, 302)]
    assert "drained" in text_of(answer)
    assert states(panel(operator))[0] == "RELAYING" or "GRANTED" in states(panel(operator))
    approval = Approval.objects.get()
    assert (approval.via, approval.comment, approval.event_version) == ("page", "drained", event.version)
    # An order was offered: there is no way back, and no button that promises one.
    assert "withdraw" not in acts(panel(operator))
    assert post(operator, f"/approvals/{approval.pk}/withdraw/").status_code == 409


def test_htmx_answer_is_the_panel_and_names_the_winner_of_a_race(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet)
    address = f"/events/{event.event_id}/approve/"
    answer = post(operator, address, expected_version=event.version)
    assert answer.status_code == 200
    assert body_of(answer).lstrip().startswith('<section id="decision"')
    assert "step-send" in codes(answer)
    assert "approve" not in acts(answer)
    olga = logged_in(factories.operator("olga"))
    for lost in (post(olga, address), olga.post(address)):
        assert (lost.status_code, marks(lost, "data-refusal")) == (409, ["already-decided"])
        assert "otto" in text_of(lost)
    assert Approval.objects.count() == 1


def test_what_was_typed_stays_in_a_form_that_is_refused(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet, event_type="Redeploy")
    address = f"/events/{event.event_id}/approve/"
    shown = operator.get(f"/events/{event.event_id}/")
    forms = body_of(shown).split('name="when" value="')[1:]
    # Each way of deciding has a field for the guard that takes a reason; the first button is outside its form.
    found = [(form.split('"')[0], form.count('name="reason-')) for form in forms]
    assert found == [("now", 1), ("prepared", 1), ("time", 1)]
    assert 'name="reason-lost-for-good" maxlength="2000" autocomplete="off" value="" required' in body_of(shown)
    assert 'id="approve-now" form="approve" type="submit"' in body_of(shown)
    fleet.later(5)
    fleet.all_say(
        factories.listing(event_type="Redeploy", resources=("vm1", "vm2", "vm3"), not_before=event.not_before)
    )
    for sent, code in (({"expected_version": event.version}, "version-changed"), ({}, "guarded")):
        refused = post(operator, address, comment="as I said", **sent)
        assert (refused.status_code, marks(refused, "data-refusal")) == (409, [code])
        assert 'value="as I said"' in body_of(refused)
    event.refresh_from_db()
    assert f'name="expected_version" value="{event.version}"' in body_of(refused)
    for sent in ({"comment": "x" * 2001}, {"when": "time", "at": ""}, {"when": "time", "at": "soon"}):
        refused = post(operator, address, **sent)
        assert refused.status_code == 422, sent
    assert "open" in body_of(refused).split('class="more-box later"')[1][:40]
    assert not Approval.objects.exists()
    done = post(operator, address, **{"reason-lost-for-good": "no data there"})
    assert done.status_code == 200
    assert "lost-for-good" in codes(done) and "no data there" in text_of(done)


def test_too_late_offers_no_button(fleet: factories.Fleet, operator: Client) -> None:
    fleet.now = datetime.now(UTC) - timedelta(seconds=30)
    event = factories.announced(fleet, not_before=fleet.now + timedelta(seconds=20))
    shown = panel(operator)
    assert "too-late" in codes(shown) and is_off(shown)
    refused = post(operator, f"/events/{event.event_id}/approve/")
    assert (refused.status_code, marks(refused, "data-refusal")) == (409, ["too-late"])


def test_only_an_approver_is_offered_to_go_past_what_blocks(
    fleet: factories.Fleet, operator: Client, approver: Client
) -> None:
    event = factories.announced(fleet)
    other = factories.listing("OTHER-EVENT", resources=["vm3"], not_before=fleet.now + timedelta(minutes=9))
    fleet.say("vm3", factories.listing(resources=("vm1", "vm2"), not_before=event.not_before), other)
    fleet.approve()
    seen = panel(operator, "OTHER-EVENT")
    assert "reason-set-in-flight" not in body_of(seen)
    assert "set-in-flight" in codes(seen) and is_off(seen)
    assert "reason-set-in-flight" in body_of(panel(approver, "OTHER-EVENT"))
    done = post(approver, "/events/OTHER-EVENT/approve/", **{"reason-set-in-flight": "four stay up"})
    assert "four stay up" in text_of(done)


def test_unknown_event_is_404(fleet: factories.Fleet, operator: Client) -> None:
    for address in ("/events/NO-SUCH/approve/", "/approvals/999999/withdraw/", "/approvals/999999/consent/"):
        assert operator.post(address).status_code == post(operator, address).status_code == 404
    assert operator.get("/events/NO-SUCH/").status_code == 404


def test_deciding_for_later(fleet: factories.Fleet, operator: Client) -> None:
    event = factories.announced(fleet)
    address = f"/events/{event.event_id}/approve/"
    done = post(operator, address, when="prepared")
    assert "WAITING" in states(done) and "step-prepared" in codes(done)
    queue = operator.get("/?part=queue", headers=HTMX)
    assert marks(queue, "data-rows") == ["under-way"]
    gone = post(operator, f"/approvals/{Approval.objects.get().pk}/withdraw/")
    assert "approve" in acts(gone) and "WITHDRAWN" in states(gone)
    # A withdrawn approval did not fail.
    assert "step-taken-back" in codes(gone) and "step-failed" not in body_of(gone)
    due = (fleet.now + timedelta(minutes=5)).replace(microsecond=0)
    assert "waits-for-time" in codes(post(operator, address, when="time", at=f"{due:%Y-%m-%dT%H:%M:%S}"))
    assert Approval.objects.latest("pk").due_at == due


def test_a_second_person_agrees(fleet: factories.Fleet, operator: Client, viewer: Client, approver: Client) -> None:
    event = factories.announced(fleet, event_type="Reboot", resources=ALL)
    done = post(operator, f"/events/{event.event_id}/approve/", comment="all at once")
    assert "PROPOSED" in states(done) and "consent" not in acts(done)
    queue = approver.get("/?part=queue", headers=HTMX)
    assert marks(queue, "data-rows") == ["waiting"]
    address = f"/approvals/{Approval.objects.get().pk}/consent/"
    for client in (logged_in(factories.operator("olga")), viewer):
        assert "consent" not in acts(panel(client))
        assert post(client, address).status_code == 403
    shown = panel(approver)
    assert "consent" in acts(shown)
    # The guards stay in view; the proposal itself does not block the consent.
    assert "last-live-machines" in codes(shown) and "already-decided" not in codes(shown)
    done = post(approver, address, comment="seen")
    assert "anna" in text_of(done) and "seen" in text_of(done)
    assert "step-send" in codes(done)


def test_an_admin_says_what_a_set_asks_for(fleet: factories.Fleet, admin: Client, operator: Client) -> None:
    factories.announced(fleet)
    address = f"/sets/{factories.the_set().pk}/"
    assert {"second-person", "needs"} <= acts(admin.get(address))
    assert not {"second-person", "needs"} & acts(operator.get(address))
    forms = (("second-person", "second_person", "1", None), ("needs", "min_live", "5", "many"))
    for path, field, value, wrong in forms:
        assert admin.post(f"{address}{path}/", {field: value}).status_code == 302
        assert getattr(AvailabilitySet.objects.get(), field) == int(value)
        if wrong:
            assert admin.post(f"{address}{path}/", {field: wrong}).status_code == 422
        # Lowering it asks who that is; tests/sets/test_requirements_are_not_switched_off.py has the rest.
        assert admin.post(f"{address}{path}/", {field: ""} if wrong else {}).status_code == 401
    assert "set-wants-second" in codes(panel(operator))
    assert accounts.prove(admin).post(f"{address}needs/", {"min_live": ""}).status_code == 302


def test_claim_take_over_and_give_back(fleet: factories.Fleet, operator: Client) -> None:
    address = f"/events/{factories.announced(fleet).event_id}"
    done = post(operator, f"{address}/claim/", comment="draining vm1")
    assert "draining vm1" in text_of(done) and "give-back" in acts(done)
    olga = logged_in(factories.operator("olga"))
    assert "otto" in text_of(olga.get("/?part=queue", headers=HTMX))
    assert 'name="take_over"' in body_of(panel(olga)) and "give-back" not in acts(panel(olga))
    assert post(olga, f"{address}/claim/").status_code == 409
    assert post(olga, f"{address}/claim/", take_over="1").status_code == 200
    assert post(operator, f"{address}/give-back/").status_code == 403
    assert olga.post(f"{address}/give-back/").status_code == 302
    assert not Claim.objects.filter(ended_at=None).exists()


def test_leave_it_to_azure_and_take_it_back(fleet: factories.Fleet, operator: Client) -> None:
    address = f"/events/{factories.announced(fleet).event_id}"
    assert post(operator, f"{address}/hold/", reason=" ").status_code == 422
    done = post(operator, f"{address}/hold/", reason="the shop is open")
    assert "the shop is open" in text_of(done) and "lift" in acts(done)
    page = body_of(operator.get(f"{address}/"))
    assert "reason-held" in page
    # The button that starts it all the same is folded away.
    assert 0 < page.index('data-key="all-the-same"') < page.index('id="approve-now"')
    queue = operator.get("/?part=queue", headers=HTMX)
    assert marks(queue, "data-rows") == ["under-way"] and "otto" in text_of(queue)
    assert "lift" not in acts(post(operator, f"{address}/lift/"))
    assert Hold.objects.get().ended_at is not None


def test_a_viewer_sees_it_all_and_no_form(fleet: factories.Fleet, operator: Client, viewer: Client) -> None:
    event = factories.announced(fleet, event_type="Redeploy")
    post(operator, f"/events/{event.event_id}/claim/", comment="mine")
    post(operator, f"/events/{event.event_id}/hold/", reason="sale")
    seen = panel(viewer)
    assert "<form" not in body_of(seen)
    assert {"held", "lost-for-good"} <= set(codes(seen))
    assert "mine" in text_of(seen) and "sale" in text_of(seen)


def test_scoped_user_reads_where_their_right_applies(fleet: factories.Fleet, operator: Client) -> None:
    factories.announced(fleet)
    Scope.objects.create(user=User.objects.get(username="otto"), kind="name", pattern="db*")
    assert "<form" not in body_of(panel(operator))
    assert "db*" in text_of(panel(operator))
