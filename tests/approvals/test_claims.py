"""Claims: an event has at most one open claim, which stays in Drydock and ends with the event."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from fleet.models import Claim, ScheduledEvent
from fleet.models.people import Scope
from fleet.operations.approvals import claims
from tests.approvals.asking import entries, refused
from tests.factories import EVENT, Fleet, acting, after, announced, approver, listing, operator, told, viewer, who
from tests.words import text

pytestmark = pytest.mark.django_db


def claim(
    fleet: Fleet, name: str = "olga", *, by: User | None = None, event_id: str = EVENT, comment: str = "", **how: Any
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
    assert (who(line), told(line).before, told(line).after) == ("otto", {"claim": "olga"}, {"claim": "anna"})
    # The assignee's claim, like any other, is another user's to `olga`; one's own can be passed on.
    assert refused(lambda: claim(fleet, assign_to="otto")).code == "already-claimed"
    assert claim(fleet, by=approver("anna"), assign_to="otto").by.username == "otto"
    assert Claim.objects.filter(ended_at=None).count() == 1


@pytest.mark.parametrize("name", ["vera", "bob", "gone", "nobody", "<b>otto</b>", "x" * 150])
def test_claim_is_not_assigned_to_a_user_who_may_not_decide_the_event(fleet: Fleet, name: str) -> None:
    """A viewer, an operator of other sets, a blocked one, and no user at all: the refusal does not tell which."""
    announced(fleet)
    viewer("vera")
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
