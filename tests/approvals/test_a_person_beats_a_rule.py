"""People and rules: a person's decision replaces that of a rule until its order is sent."""

import pytest

from fleet.domain.approvals.conditions import When
from fleet.models import ScheduledEvent
from fleet.operations.approvals.approve import Plan
from tests.approvals.asking import by_rule, refused
from tests.factories import Fleet, after, listing, seconds
from tests.words import code_of, sentence

pytestmark = pytest.mark.django_db


def test_a_rules_waiting_approval_is_withdrawn_for_the_persons(fleet: Fleet, event: ScheduledEvent) -> None:
    planned = by_rule(fleet, event, Plan(when=When.PREPARED))
    fleet.later(5)
    mine = fleet.approve()
    assert (after(planned).state, mine.state) == ("WITHDRAWN", "GRANTED")
    assert code_of(planned.reason) == "beaten-by-person"


def test_sent_rule_approval_stays_and_the_refusal_names_the_rule(fleet: Fleet, event: ScheduledEvent) -> None:
    sent = by_rule(fleet, event, Plan())
    error = refused(fleet.approve)
    assert (error.code, error.details["approval"]) == ("already-decided", sent.pk)
    assert sentence(error.details["by"]) == "the rule “freezes”"


def test_where_the_person_is_refused_the_rules_decision_stays(fleet: Fleet, event: ScheduledEvent) -> None:
    planned = by_rule(fleet, event, Plan(when=When.PREPARED))
    fleet.later(1)
    assert refused(lambda: fleet.approve(expected_version=7)).code == "version-changed"
    assert refused(lambda: fleet.approve(when=When.TIME, due_at=fleet.now - seconds(1))).code == "validation"
    assert after(planned).state == "WAITING"


def test_rule_never_supersedes_a_person(fleet: Fleet, event: ScheduledEvent) -> None:
    fleet.approve(when=When.PREPARED)
    assert refused(lambda: by_rule(fleet, event, Plan())).code == "already-decided"
    fleet.all_say(listing(status="Started", resources=["vm1", "vm2"]))
    assert refused(lambda: by_rule(fleet, event, Plan())).code == "already-decided"
