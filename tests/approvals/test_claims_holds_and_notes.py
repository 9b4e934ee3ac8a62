"""Holds: an operator's hold has a reason, stops rules, requires a reason from approvers, and never reaches Azure."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.domain import actor
from fleet.domain.approvals.conditions import When
from fleet.models import Approval, AvailabilitySet, Claim, Entry, Hold, ScheduledEvent
from fleet.models.people import Scope
from fleet.operations.approvals import approve, claims
from fleet.operations.approvals.approve import Plan
from fleet.projections.events.rows import silenced_until
from tests import factories
from tests.api.conftest import caller, problem
from tests.approvals.asking import a_rule, by_rule, codes, entries, held, refused
from tests.dashboard.conftest import acts, logged_in, marks, text_of
from tests.factories import EVENT, Fleet, acting, after, announced, approver, listing, operator, the_event, told, who
from tests.words import code_of, sentence, text

pytestmark = pytest.mark.django_db


def lift(fleet: Fleet, by: User) -> Hold:
    return claims.lift(event_id=EVENT, actor=acting(by), now=fleet.now)


def test_a_hold_says_who_since_when_why_and_what_it_means(fleet: Fleet, event: ScheduledEvent) -> None:
    row = held(fleet, event, operator("olga"), "the shop is open")
    assert (row.at, row.reason, row.ended_at) == (fleet.now, "the shop is open", None)
    (line,) = entries("event_held")
    assert text(line) == "olga left the event to Azure: no rule approves it. “the shop is open”"
    assert (told(line).before, told(line).after, line.why) == (
        {"hold": None},
        {"hold": "olga"},
        "the shop is open",
    )


def test_approving_against_it_takes_a_reason_and_lifting_it_none(fleet: Fleet) -> None:
    event, olga = announced(fleet), operator("olga")
    assert refused(lambda: held(fleet, event, olga, " ")).reason.code == "hold-without-reason"
    held(fleet, event, olga)
    assert codes(refused(fleet.approve)) == ["held"]
    lift(fleet, operator("otto"))
    assert text(entries("hold_ended")[0]) == "otto no longer leaves the event to Azure, as olga did."
    assert fleet.approve().state == "GRANTED"


def test_second_hold_and_second_lift_are_refused(fleet: Fleet, event: ScheduledEvent) -> None:
    olga = operator("olga")
    held(fleet, event, olga)
    error = refused(lambda: held(fleet, event, operator()))
    assert (error.code, error.details["reason"]) == ("already-held", "the shop is open")
    lift(fleet, olga)
    assert refused(lambda: lift(fleet, olga)).code == "not-held"


def test_what_is_approved_cannot_be_held_and_the_answer_says_by_whom_and_when(fleet: Fleet) -> None:
    event = announced(fleet)
    approval = fleet.approve()
    error = refused(lambda: held(fleet, event, operator("olga")))
    assert (error.code, error.details["by"], error.details["approval"]) == ("already-decided", "otto", approval.pk)
    assert error.details["at"] == fleet.now.isoformat().replace("+00:00", "Z")


def test_it_ends_with_the_event_and_comes_too_late_for_one_that_started(fleet: Fleet, event: ScheduledEvent) -> None:
    row = held(fleet, event, operator())
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]))
    lift(fleet, operator())
    assert refused(lambda: held(fleet, event, operator())).code == "too-late"
    fleet.later(60)
    fleet.all_say()
    assert after(row).ended_at is not None


def test_it_beats_what_a_rule_has_decided_and_not_sent(fleet: Fleet, event: ScheduledEvent) -> None:
    approval = by_rule(fleet, event, Plan(when=When.PREPARED))
    held(fleet, event, operator("olga"))
    assert (after(approval).state, code_of(approval.reason)) == ("WITHDRAWN", "beaten-by-person")


def test_a_rule_holds_too_and_a_person_may_go_past_it(fleet: Fleet, event: ScheduledEvent) -> None:
    by_rule = actor.rule(a_rule(fleet), "Freeze: hold").because("people decide")
    with approve.decision_lock(event.pk):
        row = claims.hold_locked(event.pk, approve.load_facts_locked(event.pk, now=fleet.now), by_rule, now=fleet.now)
    assert (row.by, row.rule_wording) == (None, "Freeze: hold")
    error = refused(fleet.approve)
    assert "the rule “freezes” left the event to Azure" in sentence(error)
    assert fleet.approve(overrides={"held": "I looked"}).state == "GRANTED"
    assert Approval.objects.get().overrides[0]["reason"] == "I looked"


# Claims: an event has at most one open claim, which stays in Drydock and ends with the event.


def claim(
    fleet: Fleet,
    name: str = "olga",
    *,
    by: User | None = None,
    event_id: str = EVENT,
    comment: str = "",
    **how: Any,
) -> Claim:
    actor = acting(by or operator(name), why=comment)
    return claims.claim(event_id=event_id, actor=actor, now=fleet.now, **how)


def give_back(fleet: Fleet, by: User) -> Claim:
    return claims.give_back(event_id=EVENT.lower(), actor=acting(by), now=fleet.now)


def test_a_claim_has_a_name_a_time_and_a_comment(fleet: Fleet, event: ScheduledEvent) -> None:
    row = claim(fleet, comment="draining vm1")
    assert (row.by.username, row.at, row.comment, row.ended_at) == ("olga", fleet.now, "draining vm1", None)
    (line,) = entries("event_claimed")
    assert ("draining vm1" in text(line), who(line), line.why) == (True, "olga", "draining vm1")
    assert (told(line).before, told(line).after) == ({"claim": None}, {"claim": "olga"})


def test_second_claim_is_refused_unless_it_takes_over(fleet: Fleet, event: ScheduledEvent) -> None:
    first = claim(fleet, comment="mine")
    error = refused(lambda: claim(fleet, "otto"))
    assert error.code == "already-claimed"
    assert error.details == {"by": "olga", "at": fleet.now.isoformat().replace("+00:00", "Z"), "comment": "mine"}
    fleet.later(60)
    taken = claim(fleet, "otto", take_over=True)
    assert (after(first).ended_at, taken.ended_at) == (fleet.now, None)
    assert "olga" in text(entries("event_claimed")[-1])
    assert told(entries("event_claimed")[-1]).before == {"claim": "olga"}


def test_claim_is_assigned_to_a_user_who_may_decide_the_event(fleet: Fleet, event: ScheduledEvent) -> None:
    first = claim(fleet)
    row = claim(fleet, "otto", take_over=True, assign_to=approver("anna").username, comment="you know vm1")
    assert (after(first).ended_at, row.by.username, row.comment) == (fleet.now, "anna", "you know vm1")
    line = entries("event_claimed")[-1]
    assert (who(line), told(line).before, told(line).after) == (
        "otto",
        {"claim": "olga"},
        {"claim": "anna"},
    )
    # The assignee's claim, like any other, is another user's to `olga`; one's own can be passed on.
    assert refused(lambda: claim(fleet, assign_to="otto")).code == "already-claimed"
    assert claim(fleet, by=approver("anna"), assign_to="otto").by.username == "otto"
    assert Claim.objects.filter(ended_at=None).count() == 1


@pytest.mark.parametrize("name", ["vera", "bob", "gone", "nobody", "<b>otto</b>", "x" * 150])
def test_claim_is_not_assigned_to_a_user_who_may_not_decide_the_event(fleet: Fleet, name: str) -> None:
    """A viewer, an operator of other sets, a blocked one, and no user at all: the refusal does not tell which."""
    announced(fleet)
    factories.viewer("vera")
    Scope.objects.create(user=operator("bob"), kind="name", pattern="db*")
    User.objects.filter(pk=operator("gone").pk).update(is_active=False)
    standing = claim(fleet)
    error = refused(lambda: claim(fleet, "otto", take_over=True, assign_to=name))
    assert (error.code, error.reason.code) == ("validation", "claim-owner-without-right")
    assert [one["field"] for one in error.details["errors"]] == ["assign_to"]
    assert after(standing).ended_at is None


def test_claiming_again_changes_nothing_but_a_new_comment(fleet: Fleet, event: ScheduledEvent) -> None:
    first = claim(fleet, comment="a")
    assert claim(fleet).pk == first.pk
    assert claim(fleet, comment="a").pk == first.pk
    assert claim(fleet, comment="b").comment == "b"
    assert Claim.objects.filter(ended_at=None).count() == 1


def test_it_is_given_back_by_its_owner_or_an_approver(fleet: Fleet, event: ScheduledEvent) -> None:
    claim(fleet)
    error = refused(lambda: give_back(fleet, operator("otto")))
    assert error.reason.code == "claim-of-another"
    assert give_back(fleet, operator("olga")).ended_at == fleet.now
    claim(fleet)
    give_back(fleet, approver())
    assert text(entries("claim_ended")[-1]) == "anna released the claim of olga."
    assert refused(lambda: give_back(fleet, operator("olga"))).code == "not-claimed"


def test_it_ends_with_the_event_and_stays_through_started(fleet: Fleet, event: ScheduledEvent) -> None:
    row = claim(fleet)
    fleet.later(10)
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]))
    assert after(row).ended_at is None
    fleet.later(60)
    fleet.all_say()
    assert after(row).ended_at == fleet.now
    assert refused(lambda: claim(fleet)).code == "too-late"


def test_claim_is_of_a_known_event_and_does_not_block_decisions_of_others(fleet: Fleet, event: ScheduledEvent) -> None:
    assert refused(lambda: claim(fleet, event_id="NO-SUCH")).code == "unknown-event"
    assert refused(lambda: claim(fleet, comment="x" * 2001)).code == "validation"
    claim(fleet)
    assert fleet.approve(by=operator("otto")).state == "GRANTED"


# Notes that stay with an event, and silences of its notifications: who may write them, and where they are shown.

HOSTILE = "<script>alert(1)</script> [x](javascript:alert(1)) \u202egnp"
ADDRESS = f"/events/{EVENT}/"


@pytest.fixture
def today(db: None) -> Fleet:
    """A fleet of this moment, for pages and calls."""
    return Fleet(now=datetime.now(UTC))


def note(fleet: Fleet, text: str, by: Any = None) -> None:
    claims.note(event_id=EVENT, actor=acting(by or operator(), why=text), now=fleet.now)


def silence(fleet: Fleet, until: datetime | None, *, whole_set: bool = False) -> None:
    actor = acting(operator(), why="known")
    claims.silence(event_id=EVENT, whole_set=whole_set, until=until, actor=actor, now=fleet.now)


def test_notes_are_kept_with_name_and_time_also_after_the_event(fleet: Fleet, event: ScheduledEvent) -> None:
    note(fleet, "vm1 is the primary")
    fleet.later(60)
    fleet.all_say()
    note(fleet, "two lines\nof text", approver())
    lines = entries("event_noted")
    assert [(who(line), line.at, line.why) for line in lines] == [
        ("otto", fleet.now - factories.seconds(60), "vm1 is the primary"), ("anna", fleet.now, "two lines\nof text"),
    ]  # fmt: skip
    assert {(line.event_id, line.availability_set_id) for line in lines} == {(event.pk, event.availability_set_id)}


def test_note_is_bounded(fleet: Fleet, event: ScheduledEvent) -> None:
    for bad in ("", "\u200b \n", "x" * 2001):
        assert refused(lambda: note(fleet, bad)).code == "validation"  # noqa: B023
    note(fleet, "x" * 2000)
    assert len(entries("event_noted")) == 1


def test_notes_are_next_to_the_decision_and_in_the_report(today: Fleet) -> None:
    announced(today)
    for number in range(6):
        note(today, f"note {number}")
    note(today, HOSTILE)
    client = logged_in(operator())
    panel = client.get(f"{ADDRESS}?part=decision", headers={"HX-Request": "true"})
    assert "note 5" in text_of(panel) and "note 1" not in text_of(panel)
    assert "kind=event_noted" in panel.content.decode()
    for page in (panel, client.get(f"/reports{ADDRESS}")):
        assert "<script>alert" not in page.content.decode() and "javascript:alert" in text_of(page)
    assert "note 0" in text_of(client.get(f"/reports{ADDRESS}"))
    assert "\\<script\\>alert" in client.get(f"/reports{ADDRESS}report.md").content.decode()
    assert "note" in acts(panel)


def test_note_on_the_page_and_by_the_api(today: Fleet) -> None:
    announced(today)
    client = logged_in(operator())
    assert client.post(f"{ADDRESS}note/", {"note": "by page"}).status_code == 302
    for bad in ("", "\x00", "x" * 2001):
        assert client.post(f"{ADDRESS}note/", {"note": bad}).status_code == 422
    call = caller(operator(), "read", "approve")
    shown = call.post(f"events/{EVENT}/notes/", {"comment": HOSTILE}).json()
    assert (shown["kind"], shown["actor"], shown["via"]) == ("event_noted", "otto", "api")
    assert shown["why"].startswith("<script>")
    problem(call.post(f"events/{EVENT}/notes/", {"comment": "x" * 2001}), 422, "validation")
    assert [line.via for line in entries("event_noted")] == ["page", "api"]


def test_silence_has_an_end_and_leaves_a_line(fleet: Fleet, event: ScheduledEvent) -> None:
    for until in (fleet.now, fleet.now - factories.seconds(1), fleet.now + timedelta(hours=25)):
        assert refused(lambda: silence(fleet, until)).code == "validation"  # noqa: B023
    end = fleet.now + timedelta(hours=1)
    silence(fleet, end)
    silence(fleet, end)
    (line,) = entries("silence_changed")
    assert (who(line), line.event_id, line.why) == ("otto", event.pk, "known")
    assert line.after == {"silenced_until": end.isoformat().replace("+00:00", "Z")}
    assert silenced_until(the_event(), now=fleet.now) == end
    assert silenced_until(the_event(), now=end) is None
    silence(fleet, end + timedelta(hours=1), whole_set=True)
    assert entries("silence_changed")[-1].event_id is None
    silence(fleet, None)
    assert silenced_until(the_event(), now=fleet.now) == end + timedelta(hours=1)
    silence(fleet, None, whole_set=True)
    assert silenced_until(the_event(), now=fleet.now) is None
    # Nothing is left to end.
    silence(fleet, None)
    assert len(entries("silence_changed")) == 4


def test_silence_on_the_page_and_by_the_api(today: Fleet) -> None:
    announced(today)
    client: Client = logged_in(operator())
    for sent in ({}, {"hours": "2"}, {"hours": "1000"}, {"hours": "1", "comment": "x" * 2001}):
        assert client.post(f"{ADDRESS}silence/", sent).status_code == 422, sent
    client.post(f"{ADDRESS}silence/", {"hours": "4", "whole_set": "1"})
    row = AvailabilitySet.objects.get(pk=the_event().availability_set_id)
    assert row.silenced_until is not None and ScheduledEvent.objects.get().silenced_until is None
    assert "silence" in marks(client.get(ADDRESS), "data-key")
    assert "silenced until" in text_of(client.get(f"/sets/{row.pk}/"))
    call = caller(operator(), "read", "approve")
    assert call.get(f"events/{EVENT}/").json()["silenced_until"]
    assert call.get(f"sets/{row.pk}/").json()["silenced_until"]
    client.post(f"{ADDRESS}silence/", {"hours": "0"})
    assert call.get(f"events/{EVENT}/").json()["silenced_until"] is None
    until = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
    assert call.post(f"events/{EVENT}/silence/", {"until": until, "comment": "deploy"}).status_code == 204
    assert call.get(f"events/{EVENT}/").json()["silenced_until"]
    late = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    refusal = problem(call.post(f"events/{EVENT}/silence/", {"until": late}), 422, "validation")
    assert [error["field"] for error in refusal["errors"]] == ["until"]
    assert Entry.objects.filter(kind="silence_changed").count() == 3


def test_claim_is_assigned_on_the_page_and_by_the_api(today: Fleet) -> None:
    announced(today)
    approver()
    client = logged_in(operator())
    assert 'value="anna"' in client.get(ADDRESS).content.decode()
    version = the_event().version
    stale = client.post(f"{ADDRESS}claim/", {"assign_to": "anna", "expected_version": version + 1})
    assert marks(stale, "data-refusal") == ["version-changed"]
    client.post(f"{ADDRESS}claim/", {"assign_to": "anna", "expected_version": version})
    assert "Claimed by anna" in text_of(client.get(ADDRESS))
    refused_page = client.post(f"{ADDRESS}claim/", {"assign_to": "<i>x", "take_over": "1"})
    assert (refused_page.status_code, marks(refused_page, "data-refusal")) == (422, ["validation"])
    assert "<i>x" not in refused_page.content.decode()
    call = caller(operator(), "read", "approve")
    problem(call.post(f"events/{EVENT}/claims/", {"assign_to": "otto"}), 409, "already-claimed")
    stale_call = call.post(f"events/{EVENT}/claims/", {"take_over": True}, if_match='"999"')
    problem(stale_call, 412, "precondition-failed")
    body = {"assign_to": "otto", "take_over": True, "comment": "night shift"}
    assert call.post(f"events/{EVENT}/claims/", body).json()["by"] == "otto"
