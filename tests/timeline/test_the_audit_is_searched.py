"""Audit search: users search, page and download who did what, with the indexes made for it."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from fleet.audit import queries as audit_queries
from fleet.dashboard.export import defused
from fleet.domain.actor import COMMAND_LINE, Actor, ActorKind
from fleet.domain.timeline import EntryKind
from fleet.domain.trace import Trace
from fleet.models import Entry
from fleet.operations.timeline.entries import asked_by, entry, tell, write
from tests import factories
from tests.api.conftest import Caller, caller, problem
from tests.dashboard.conftest import logged_in, text_of
from tests.plans import is_answered_by

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
EVIL = '=HYPERLINK("http://192.0.2.1")'


@pytest.fixture
def told(db: None) -> factories.Fleet:
    """A fleet with an event, and acts of people and of a rule."""
    fleet = factories.Fleet(now=NOW)
    event = factories.announced(fleet)
    acts = (
        (EntryKind.EVENT_CLAIMED, Actor(ActorKind.PERSON, "otto", "page")),
        (
            EntryKind.APPROVAL_GRANTED,
            Actor(ActorKind.PERSON, "otto", "api", token_name="deploys", why="-1 is unknown"),
        ),
        (EntryKind.APPROVAL_GRANTED, Actor(ActorKind.RULE, "rule: freezes", "rule")),
        (EntryKind.SET_NAMED, Actor(ActorKind.PERSON, "ada", "page")),
    )
    with transaction.atomic(), asked_by(Trace("req-1"), "192.0.2.7"):
        for number, (kind, who) in enumerate(acts):
            row = entry(
                kind,
                who,
                at=NOW + timedelta(minutes=10 + number),
                event_id=event.pk if number < 3 else None,
                set_id=event.availability_set_id,
                machine_id=fleet.agents["vm1"].machine.pk if number == 0 else None,
                before={"state": None},
                after={"state": "x"},
            )
            # As entries were written that held their sentence.
            row.text = EVIL if who.name == "ada" else f"{who.name} did number {number}"
            write([row])
    return fleet


@pytest.fixture
def reader(db: None) -> Caller:
    return caller(factories.viewer())


def found(reader: Caller, query: str) -> list[str]:
    answer = reader.get(f"audit/?{query}")
    assert answer.status_code == 200, answer.content
    return [f"{row['actor']} {row['kind']}" for row in answer.json()["results"] if row["actor"] in NAMES]


ADA = Actor(ActorKind.PERSON, "ada", "page", why="Moved to another team")
NAMES = ("otto", "ada", "rule: freezes")
CLAIM, APPROVED, RULED, NAMED = (
    "otto event_claimed", "otto approval_granted", "rule: freezes approval_granted", "ada set_named",
)  # fmt: skip


def test_acts_are_found(told: factories.Fleet, reader: Caller) -> None:
    for query, rows in (
        ("", [NAMED, RULED, APPROVED, CLAIM]),
        ("person=otto", [APPROVED, CLAIM]),
        ("person=rule: freezes", [RULED]),
        ("actor_kind=person", [NAMED, APPROVED, CLAIM]),
        ("actor_kind=rule", [RULED]),
        ("actor_kind=command", []),
        ("via=api&via=rule", [RULED, APPROVED]),
        ("kind=approval_granted", [RULED, APPROVED]),
        ("kind=approval_granted&person=otto", [APPROVED]),
        (f"event={factories.EVENT.lower()}", [RULED, APPROVED, CLAIM]),
        ("since=2026-11-20T12:11:00Z&until=2026-11-20T12:12:30Z", [RULED, APPROVED]),
        ("q=NUMBER 2", [RULED]),
        ("q=unknown", [APPROVED]),
        ("q=deploys", [APPROVED]),
        ("person=nobody", []),
    ):
        assert found(reader, query) == rows
    of_commands = reader.get("audit/?actor_kind=command").json()["results"]
    assert {row["actor"] for row in of_commands} == {COMMAND_LINE.name}


def test_words_are_found_in_entries_that_are_worded_where_they_are_read(told: factories.Fleet, reader: Caller) -> None:
    with transaction.atomic():
        tell(
            EntryKind.PERSON_CHANGED,
            ADA,
            at=NOW + timedelta(minutes=20),
            before={"scopes": ["service: shop"]},
            after={"scopes": ["service: payments-*"]},
            person="Berta",
            did="changed",
        )
    for query, rows in (
        # Of an entry that was written with its sentence: the sentence; of one that was not: what the words are made of.
        ("q=did number 2", [RULED]),
        ("q=berta", ["ada person_changed"]),
        ("q=Payments-", ["ada person_changed"]),
        ("q=moved to another team", ["ada person_changed"]),
        # The kind as people call it.
        ("q=person CHANGED", ["ada person_changed"]),
        ("q=approved", [RULED, APPROVED]),
        ("q=ad", ["ada person_changed", NAMED]),
        # The search does not match names of fields.
        ("q=scopes", []),
    ):
        assert found(reader, query) == rows


def test_acts_are_found_by_machine_and_set_and_carry_everything(told: factories.Fleet, reader: Caller) -> None:
    machine = told.agents["vm1"].machine
    assert found(reader, f"machine={machine.pk}") == [CLAIM]
    assert found(reader, f"set={machine.availability_set_id}") == [NAMED, RULED, APPROVED, CLAIM]
    row = reader.get("audit/?via=api&person=otto").json()["results"][0]
    assert (row["token_name"], row["why"], row["before"], row["after"]) == (
        "deploys", "-1 is unknown", {"state": None}, {"state": "x"},
    )  # fmt: skip
    assert (row["request_id"], row["address"]) == ("req-1", "192.0.2.7")
    # What machines say is no act.
    assert Entry.objects.filter(via="agent").exists()
    ways = {row["via"] for row in reader.get("audit/?page_size=500").json()["results"]}
    assert ways <= {"page", "api", "rule", "command"}
    problem(reader.get("audit/?via=agent"), 422, "validation")
    problem(reader.get("audit/?since=yesterday"), 422, "validation")


@pytest.mark.parametrize("edge", ["api", "page"])
def test_files_hold_all_rows_and_no_formula(told: factories.Fleet, reader: Caller, edge: str) -> None:
    client = logged_in(factories.viewer())

    def get(name: str, query: str) -> str:
        address = f"audit/export.{name}{query}"
        answer: Any = reader.get(address) if edge == "api" else client.get(f"/{address}")
        assert (answer.status_code, answer.streaming) == (200, True)
        assert "attachment" in answer["Content-Disposition"]
        return b"".join(answer).decode()

    rows = list(csv.DictReader(io.StringIO(get("csv", ""))))
    assert [int(row["id"]) for row in rows] == [row.pk for row in audit_queries.acts().order_by("-at", "-pk")]
    named = next(row for row in rows if row["actor"] == "ada")
    assert named["text"] == f"'{EVIL}"
    approved = next(row for row in rows if row["token_name"] == "deploys")
    assert approved["why"] == "'-1 is unknown"
    assert json.loads(approved["after"]) == {"state": "x"}
    assert approved["at"] == "2026-11-20T12:11:00Z"
    lines = [json.loads(line) for line in get("jsonl", "?person=otto").splitlines()]
    assert [line["kind"] for line in lines] == ["approval_granted", "event_claimed"]
    assert lines[0]["before"] == {"state": None}


@pytest.mark.parametrize("cell", ["=1", "+1", "-1", "@x", "\t=1", "\r=1"])
def test_every_beginning_of_a_formula_is_defused(cell: str) -> None:
    assert defused(cell) == f"'{cell}"
    assert defused(f"x{cell}") == f"x{cell}"


def test_the_page_shows_acts_with_their_filter_and_each_object_links_to_its_own(told: factories.Fleet) -> None:
    session = logged_in(factories.viewer())
    page = session.get("/audit/?person=otto")
    assert "otto did number 1" in text_of(page)
    assert "rule: freezes did" not in text_of(page)
    assert "token “deploys” from 192.0.2.7" in text_of(page)
    assert "/audit/export.csv?person=otto" in page.content.decode()
    assert "These filters could not be read and were ignored: Since." in text_of(session.get("/audit/?since=yesterday"))
    machine = told.agents["vm1"].machine
    for address, link in (
        (f"/events/{factories.EVENT}/", f"/audit/?event={factories.EVENT}"),
        (f"/sets/{machine.availability_set_id}/", f"/audit/?set={machine.availability_set_id}"),
        (f"/machines/{machine.pk}/", f"/audit/?machine={machine.pk}"),
    ):
        body = session.get(address).content.decode()
        assert link in body, address
        assert "Before and after" in body, address


def test_searching_goes_by_the_indexes_of_acts(told: factories.Fleet) -> None:
    indexes = {"entry_acts_by_actor": {"person": "otto"}, "entry_acts_by_via": {"via": ["slack"]}, "entry_acts": {}}
    for index, query in indexes.items():
        assert is_answered_by(audit_queries.AuditFilter(query).qs.order_by("-at", "-pk")[:51], index), index
