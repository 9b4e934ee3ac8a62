"""New reports in a delivery: the offset of its spool tells which are new, and not an index over all observations.

Here the database does not reject a second copy of a row: partitions of that table have such an index, the whole table
does not.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from django.db import transaction
from pytest_django.plugin import DjangoDbBlocker

from fleet.models import Observation, Spool
from fleet.models.driver import query
from fleet.operations import reports
from fleet.operations.intake import keep
from tests.databases import database, django_on
from tests.factories import Agent, Fleet, listing
from tests.holding import blocked

UNIQUE = """
SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint
WHERE conname LIKE 'report_once%' AND conparentid = 0
"""


@pytest.fixture(scope="module")
def unguarded(migrated_template: str, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with database(migrated_template) as name, django_db_blocker.unblock(), django_on(name):
        for (statement,) in query(UNIQUE):
            query(statement)
        yield


@pytest.fixture
def fleet(unguarded: None) -> Fleet:
    fleet = Fleet()
    fleet.enrol("vm1", availability_set="")
    return fleet


@pytest.fixture
def agent(fleet: Fleet) -> Agent:
    return replace(fleet.agents["vm1"], spool="an unknown spool", seq=0)


def documents(fleet: Fleet, agent: Agent, count: int) -> list[keep.ParsedReport]:
    return [agent.document(listing(), at=fleet.now) for _ in range(count)]


def kept(agent: Agent) -> list[int]:
    rows = Observation.objects.filter(machine=agent.machine, kind="document")
    return list(rows.order_by("seq", "id").values_list("seq", flat=True))


def test_of_a_delivery_that_comes_again_with_more_only_the_rest_is_kept(fleet: Fleet, agent: Agent) -> None:
    sent = documents(fleet, agent, 5)
    for upto in (2, 2, 5, 5, 1):
        fleet.record(agent.delivery(*sent[:upto]))
    assert kept(agent) == [1, 2, 3, 4, 5]


def test_late_delivery_fills_the_gap_once(fleet: Fleet, agent: Agent) -> None:
    sent = documents(fleet, agent, 5)
    fleet.record(agent.delivery(sent[0]))
    fleet.record(agent.delivery(*sent[3:]))
    for _ in range(2):
        fleet.record(agent.delivery(*sent[1:4]))
    assert kept(agent) == [1, 2, 3, 4, 5]


def test_a_mark_that_was_put_back_doubles_nothing(fleet: Fleet, agent: Agent) -> None:
    sent = documents(fleet, agent, 4)
    fleet.record(agent.delivery(*sent[:3]))
    # As a person would, by hand; a backup brings back the observations of its time, too.
    Spool.objects.filter(machine=agent.machine, spool=agent.spool).update(acknowledged=2)
    Observation.objects.filter(machine=agent.machine, seq=3).delete()
    fleet.record(agent.delivery(*sent[1:]))
    assert kept(agent) == [1, 2, 3, 4]


def test_a_commit_that_fails_leaves_the_mark_where_it_was(fleet: Fleet, agent: Agent) -> None:
    sent = documents(fleet, agent, 2)
    with transaction.atomic():
        fleet.record(agent.delivery(sent[0]))
        transaction.set_rollback(True)
    fleet.record(agent.delivery(*sent))
    assert kept(agent) == [1, 2]


@pytest.mark.parametrize("known", [False, True], ids=["of a new spool", "of a known spool"])
def test_the_same_delivery_at_two_gateways_at_once_is_kept_once(fleet: Fleet, agent: Agent, known: bool) -> None:
    sent = documents(fleet, agent, 3)
    if known:
        fleet.record(agent.delivery(sent[0]))
    both = [agent.delivery(*sent[known:])]

    with blocked() as begin, transaction.atomic():
        reports.record(deliveries=both, now=fleet.now)
        begin(partial(reports.record, deliveries=both, now=fleet.now))
    assert kept(agent) == [1, 2, 3]
    assert Spool.objects.get(machine=agent.machine, spool=agent.spool).acknowledged == 3
