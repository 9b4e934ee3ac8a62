"""Queue, badge and buttons show what somebody may decide; what others decide is one click away."""

from datetime import timedelta

import pytest
from django.test import Client

from fleet.domain.people import Rights
from fleet.models import Scope
from fleet.projections.desk import queue
from tests import factories
from tests.dashboard.conftest import logged_in, text_of

OTHER = "0A1B2C3D-0000-4000-8000-000000000001"


@pytest.fixture
def fleet(fleet: factories.Fleet) -> factories.Fleet:
    """An event in the set `web`, and one in the set `db`."""
    factories.announced(fleet, event_type="Reboot", resources=[f"vm{number}" for number in range(1, 7)])
    for name in ("db1", "db2"):
        fleet.enrol(name, availability_set="db")
    fleet.later(1)
    event = factories.listing(OTHER, resources=("db1",), not_before=fleet.now + timedelta(minutes=9))
    fleet.all_say(event, names=("db1", "db2"))
    return fleet


def scoped(name: str, group: str, pattern: str) -> Client:
    person = factories.person(name, group)
    Scope.objects.create(user=person, kind="name", pattern=pattern)
    return logged_in(person)


def test_an_operator_of_one_set_sees_the_other_one_a_click_away(fleet: factories.Fleet) -> None:
    client = scoped("dora", "operator", "db")
    page = client.get("/")
    said = text_of(page)
    assert "1 event needs a decision" in said
    assert "1 more event waits for a decision of others" in said
    assert said.count("Decide about") == 1
    assert "Decide about Freeze of db1" in said
    assert said.count("Look at Reboot of vm1") == 1
    assert 'data-waiting="1"' in page.content.decode()
    assert 'data-waiting="1"' in client.get("/machines/").content.decode()


def test_everybody_else_sees_all_of_it(fleet: factories.Fleet, operator: Client, viewer: Client) -> None:
    for client in (operator, viewer):
        said = text_of(client.get("/"))
        assert "2 events need a decision" in said
        assert "of others" not in said
        assert 'data-waiting="2"' in client.get("/machines/").content.decode()


def test_a_proposal_is_for_whoever_may_agree(fleet: factories.Fleet, operator: Client) -> None:
    fleet.approve()
    assert "1 more event waits for a decision of others" in text_of(operator.get("/"))
    assert "2 events need a decision" in text_of(logged_in(factories.approver()).get("/"))
    assert "1 event needs a decision" in text_of(scoped("anton", "approver", "web").get("/"))


def test_the_badge_costs_one_query_however_many_sets_there_are(
    fleet: factories.Fleet, django_assert_num_queries: object
) -> None:
    rights = Rights(frozenset({"operator"}), (("name", "db"),))
    with django_assert_num_queries(1):  # type: ignore[operator]
        assert queue.pulse(now=fleet.now, rights=rights).waiting == 1
    assert queue.decision_queue(now=fleet.now, rights=rights).pulse == queue.pulse(now=fleet.now, rights=rights)
