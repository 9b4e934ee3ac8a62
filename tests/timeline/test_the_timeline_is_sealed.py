"""A chain of hashes over the timeline: whatever is done to a row or a seal behind our back is found, and named.

Everything is tampered with in a real Postgres, by its superuser, with the triggers that refuse it out of the way. A
process recomputes some seals every few minutes, and reports a changed row unasked.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.utils import DatabaseError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.audit import seals as sealing
from fleet.audit import tasks
from fleet.domain.timeline import NO_HASH, EntryKind
from fleet.models import Entry, LastRun, OpenTrouble, Seal
from fleet.models.timeline import COLUMNS
from fleet.operations import blind_spots, reconcile
from tests.archive.shelves import NOW, findings, under_seals, written
from tests.holding import session
from tests.words import sentence, text

# An entry without any of what is optional.
BARE = (
    "INSERT INTO fleet_entry (xid, at, kind, actor, via, text, data) VALUES"
    " (pg_current_xact_id()::text::bigint, now(), 'set_named', 'ada', 'page', %s, '{}')"
)
PER_SEAL = 5
SEALS = 4


@pytest.fixture
def sealed(transactional_db: None) -> list[Seal]:
    """Four seals over five rows each."""
    under_seals(SEALS, PER_SEAL)
    return list(Seal.objects.order_by("number"))


@contextmanager
def behind_our_back(*statements: str) -> Iterator[Any]:
    """A cursor without the triggers, after these statements; whatever is done is undone at the end."""
    with transaction.atomic(), connection.cursor() as cursor:
        for table in ("fleet_entry", "fleet_seal"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        for statement in statements:
            cursor.execute(statement)
            assert cursor.rowcount > 0, statement
        yield cursor
        transaction.set_rollback(True)


def ids_of(seal: Seal) -> list[int]:
    """The rows that a seal is over."""
    rows = Entry.objects.order_by("xid", "id").values_list("pk", flat=True)
    return list(rows[(seal.number - 1) * PER_SEAL : seal.number * PER_SEAL])


def test_each_seal_is_over_all_rows_since_the_one_before_it_and_the_chain_can_be_computed_by_others(
    sealed: list[Seal],
) -> None:
    assert [seal.number for seal in sealed] == [1, 2, 3, 4]
    assert [seal.rows for seal in sealed] == [PER_SEAL] * SEALS
    assert sealed[0].previous_hash == NO_HASH
    assert [seal.previous_hash for seal in sealed[1:]] == [seal.hash for seal in sealed[:-1]]
    assert findings() == []
    assert findings(heads={seal.number: seal.hash for seal in sealed}) == []
    # The definition, followed by hand.
    seal = sealed[1]
    whole = f"drydock-seal-1\n2\n{sealed[0].hash}\n2026-11-20T12:02:00.000000+00:00\n"
    for row in Entry.objects.filter(pk__in=ids_of(seal)).order_by("xid", "id"):
        # jsonb puts shorter names first.
        before, after, data = (
            json.dumps(dict(sorted(value.items(), key=lambda item: len(item[0]))), ensure_ascii=False)
            for value in (row.before, row.after, row.data)
        )
        values = [
            str(row.xid), str(row.pk), f"{row.at.timestamp():.6f}", f"{row.recorded_at.timestamp():.6f}", row.kind,
            *["\\N"] * 6, row.actor, row.via, "", row.text, row.why,
            before, after, "", "", data,
        ]  # fmt: skip
        escaped = [
            value if value == "\\N" else value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
            for value in values
        ]
        whole += "\t".join(escaped) + "\n"
    whole += f"end {PER_SEAL} {seal.last_xid} {seal.last_id}\n"
    assert hashlib.sha256(whole.encode()).hexdigest() == seal.hash


def test_every_column_is_sealed() -> None:
    assert set(COLUMNS) == {field.column for field in Entry._meta.concrete_fields}


def test_nothing_new_makes_no_seal_and_much_makes_several(transactional_db: None) -> None:
    assert sealing.seal(now=NOW, via="beat").heads == ()
    written(12)
    found = sealing.seal(now=NOW, via="beat", most_rows=5)
    assert [head.number for head in found.heads] == [1, 2, 3]
    assert list(Seal.objects.order_by("number").values_list("rows", flat=True)) == [5, 5, 2]
    assert sealing.seal(now=NOW, via="beat", most_rows=5).heads == ()
    written(12)
    assert len(sealing.seal(now=NOW, via="beat", most_rows=5, most_seals=2).heads) == 2
    assert findings() == []
    assert LastRun.objects.get(name="seal").ran_at == NOW


def test_a_row_whose_transaction_is_still_open_is_sealed_later_and_nothing_slips_in_before_it(
    transactional_db: None,
) -> None:
    with session() as other:
        other.execute(BARE, ["still open"])
        written(3)
        assert sealing.seal(now=NOW, via="beat").rows == 0
        other.commit()
    assert sealing.seal(now=NOW, via="beat").rows == 4
    assert findings() == []


def test_while_celery_seals_the_gateway_has_nothing_to_do(transactional_db: None) -> None:
    written(3)
    assert sealing.seal(now=NOW, via="beat").rows == 3
    quiet = partial(reconcile.run_if_quiet, sealing.SEAL_RUN, sealing.seal, quiet_seconds=90)
    assert quiet(now=NOW + timedelta(seconds=80)) is None
    assert quiet(now=NOW + timedelta(seconds=100)).ran
    tasks.seal()
    assert LastRun.objects.get(name="seal").via == "beat"


INSERT = (
    "INSERT INTO fleet_entry (id, xid, at, kind, actor, via, text, data) SELECT -1, {}, at, kind, actor, via, text,"
    " data FROM fleet_entry WHERE id = {{row}}"
)
CHANGES = (
    ("UPDATE fleet_entry SET text = text || ' ' WHERE id = {row}", 3, "Seal 3 .* is broken: one of its 5 rows"),
    ("DELETE FROM fleet_entry WHERE id = {row}", 3, "Seal 3 .* 5 rows, but 4 exist: rows were deleted"),
    ("DELETE FROM fleet_entry WHERE id IN {rows}", 3, "Seal 3 .* 5 rows, but 0 exist: rows were deleted"),
    (INSERT.format("xid"), 3, "5 rows, but 6 exist: rows were inserted"),
    (INSERT.format(-5), 1, "Seal 1 .* 5 rows, but 6 exist"),
    ("UPDATE fleet_seal SET hash = repeat('0', 64) WHERE number = 3", 3, "The hash of seal 3 .* was edited"),
    ("UPDATE fleet_seal SET hash = repeat('0', 64) WHERE number = 4", 4, "Seal 4 .* is broken"),
    ("UPDATE fleet_seal SET previous_hash = repeat('1', 64) WHERE number = 3", 3, "not follow the hash of seal 2"),
    ("UPDATE fleet_seal SET previous_hash = repeat('1', 64) WHERE number = 1", 1, "must be the first of the chain"),
    ("UPDATE fleet_seal SET sealed_at = sealed_at + interval '1 microsecond' WHERE number = 3", 3, "broken"),
    ("UPDATE fleet_seal SET rows = 6 WHERE number = 3", 3, "6 rows, but 5 exist"),
    ("UPDATE fleet_seal SET last_id = last_id - 1 WHERE number = 3", 3, "5 rows, but 4 exist"),
    ("UPDATE fleet_seal SET last_xid = 1 WHERE number = 3", 3, "ends before the previous seal"),
    ("DELETE FROM fleet_seal WHERE number = 3", 3, "Seal 3 is missing"),
    ("DELETE FROM fleet_seal WHERE number IN (2, 3)", 2, "Seals 2 to 3 are missing"),
    ("DELETE FROM fleet_seal WHERE number = 1", 1, "Seal 1 is missing"),
    ("UPDATE fleet_entry SET at = 'infinity' WHERE id = {row}", 3, "Seal 3 .* is broken"),
)


def test_whatever_is_done_to_rows_and_seals_is_found(sealed: list[Seal]) -> None:
    rows = ids_of(sealed[2])
    for statement, number, said in CHANGES:
        with behind_our_back(statement.format(row=rows[2], rows=tuple(rows))):
            found = findings()
        assert (found[0].seal, bool(re.search(said, sentence(found[0].reason)))) == (number, True), found
        # A seal whose predecessor is gone is still checked by itself, and the others are whole.
        assert len(found) == 1 or "missing" not in said


def test_a_tail_that_was_cut_is_found_by_a_head_out_of_the_log_and_by_rows_without_a_seal(sealed: list[Seal]) -> None:
    heads = {seal.number: seal.hash for seal in sealed}
    with behind_our_back() as cursor:
        # Seals alone: their rows are old and have none.
        cursor.execute("DELETE FROM fleet_seal WHERE number > 2")
        late = findings(now=datetime.now(UTC) + timedelta(minutes=10))
        assert [finding.seal for finding in late] == [None]
        assert re.search("10 rows since .* have no seal", sentence(late[0].reason))
        # With their rows: only what was written down elsewhere tells.
        cursor.execute("DELETE FROM fleet_entry WHERE (xid, id) > (%s, %s)", [sealed[1].last_xid, sealed[1].last_id])
        assert findings() == []
        assert [finding.seal for finding in findings(heads=heads)] == [3, 4]
        assert "the newest entries were deleted" in sentence(findings(heads=heads)[0].reason)


def test_rebuilt_chain_is_found_by_a_logged_head(sealed: list[Seal]) -> None:
    edit = f"UPDATE fleet_entry SET text = 'it was another user' WHERE id = {ids_of(sealed[0])[0]}"
    with behind_our_back(edit, "DELETE FROM fleet_seal"):
        sealing.seal(now=NOW, via="beat")
        assert findings() == []
        found = findings(heads={1: sealed[0].hash})
    said = [(each.seal, sentence(each.reason)) for each in found]
    assert said == [(1, "Seal 1 differs from the log: the chain was created again.")]


def test_rows_out_of_time_are_found(sealed: list[Seal]) -> None:
    with behind_our_back(
        "INSERT INTO fleet_entry (xid, at, recorded_at, kind, actor, via, text, data)"
        " VALUES (9000000000000000000, now(), now() + interval '1 day', 'set_named', 'x', 'page', 'x', '{}')"
    ):
        found = " ".join(sentence(finding.reason) for finding in findings())
    assert "1 rows have a transaction number of the future" in found
    assert "1 rows have a time in the future" in found


# A value of each column's kind that differs from the stored one.
OTHERS: dict[str, st.SearchStrategy[str]] = {
    "era": st.sampled_from(["era + 1", "era - 1"]),
    "xid": st.sampled_from(["xid - 1", "xid + 1"]),
    "id": st.sampled_from(["id + 100000"]),
    "at": st.sampled_from(["at + interval '1 microsecond'", "at - interval '1 day'", "'-infinity'"]),
    "recorded_at": st.sampled_from(["recorded_at + interval '1 microsecond'", "'infinity'"]),
    **{
        name: st.sampled_from([f"coalesce({name} || ' ', 'x')", f"coalesce({name}, '') || E'\\n'", "'x\ty'", "'\\N'"])
        for name in ("kind", "actor", "via", "token_name", "text", "why", "request_id", "address")
    },
    **dict.fromkeys(
        ("before", "after", "data"), st.sampled_from(["'{\"n\": 7}'", "'null'", "'[]'", "'\"\\\\\\\\N\"'"])
    ),
    "maintenance_id": st.sampled_from(["7", "0"]),
}
REFERENCES = ("event_id", "availability_set_id", "machine_id", "approval_id", "cache_id")


# Each example is undone before the next.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    change=st.sampled_from(sorted([*OTHERS, *REFERENCES])).flatmap(
        lambda name: st.tuples(st.just(name), OTHERS.get(name, st.sampled_from(["77777", "0"])))
    ),
    row=st.integers(min_value=0, max_value=PER_SEAL * SEALS - 1),
)
def test_any_single_change_in_any_column_of_any_row_is_found(
    sealed: list[Seal], change: tuple[str, str], row: int
) -> None:
    column, value = change
    ids = list(Entry.objects.order_by("xid", "id").values_list("pk", flat=True))
    # References are checked when the transaction ends, which this one never does.
    with behind_our_back(f'UPDATE fleet_entry SET "{column}" = {value} WHERE id = {ids[row]}'):
        assert findings(), (column, value, row)


def test_verifying_can_begin_in_the_middle(sealed: list[Seal]) -> None:
    with behind_our_back(f"UPDATE fleet_entry SET text = 'x' WHERE id = {ids_of(sealed[0])[0]}") as cursor:
        assert findings(first=2) == []
        assert [finding.seal for finding in findings(first=1)] == [1]
        cursor.execute("DELETE FROM fleet_seal WHERE number = 1")
        assert [sentence(finding.reason) for finding in findings(first=2)] == ["Seal 1 is missing."]


def run(*words: str) -> str:
    out = StringIO()
    call_command("verify_audit", *words, stdout=out)
    return out.getvalue()


def test_the_command_says_what_is_wrong_and_ends_with_a_status(sealed: list[Seal]) -> None:
    head = f"4:{sealed[3].hash}"
    assert f"4 seals over 20 rows were computed again; head: {head}." in run("--head", head)
    with pytest.raises(CommandError, match="1 findings"):
        run("--head", f"5:{'a' * 64}")
    with pytest.raises(CommandError, match="is no head"):
        run("--head", "5")
    with pytest.raises(CommandError, match="numbered from 1"):
        run("--from", "0")


@pytest.mark.parametrize("statement", ["DELETE FROM {}", "TRUNCATE {}", "TRUNCATE {} CASCADE"])
@pytest.mark.parametrize("table", ["fleet_entry", "fleet_seal"])
def test_the_database_refuses_to_empty_the_timeline_and_its_seals(db: None, statement: str, table: str) -> None:
    refused = f"append-only: {statement.split(maxsplit=1)[0]} of {table} is refused"
    with pytest.raises(DatabaseError, match=refused), transaction.atomic(), connection.cursor() as cursor:
        # As everywhere but in the databases of tests.
        cursor.execute("SET LOCAL drydock.may_truncate = ''")
        cursor.execute(statement.format(table))


# The check by the way.


def checked(times: int = 1) -> list[int | None]:
    return [sealing.check(now=NOW + timedelta(minutes=number), via="beat") for number in range(times)]


OF_THE_NEWEST = (
    "UPDATE fleet_entry SET actor = 'stranger' WHERE id = (SELECT max(id) FROM fleet_entry)",
    "DELETE FROM fleet_entry WHERE id = (SELECT max(id) FROM fleet_entry)",
    "UPDATE fleet_seal SET hash = md5('x') WHERE number = 9",
    "UPDATE fleet_seal SET previous_hash = md5('x') WHERE number = 9",
    "UPDATE fleet_seal SET rows = 7 WHERE number = 9",
    "DELETE FROM fleet_seal WHERE number = 8",
)


def test_what_is_as_it_was_sealed_holds_and_whatever_is_changed_among_the_newest_shows_at_once(
    transactional_db: None,
) -> None:
    assert checked() == [None]
    under_seals(9, 1)
    assert checked(5) == [None] * 5
    for statement in OF_THE_NEWEST:
        with behind_our_back(statement):
            assert checked() == [9], statement


def test_what_lies_further_back_shows_when_its_turn_comes(transactional_db: None) -> None:
    under_seals(12, 1)
    with behind_our_back("UPDATE fleet_entry SET actor = 'stranger' WHERE id = (SELECT min(id) + 4 FROM fleet_entry)"):
        assert checked(2) == [None, 5]
    LastRun.objects.filter(name=sealing.RUN).update(newest_id=0)
    # Three at a time, and then from the beginning again.
    assert checked(5) == [None] * 5
    assert LastRun.objects.get(name=sealing.RUN).newest_id in range(13)


def test_broken_seal_is_reported_once_and_its_end_once(transactional_db: None) -> None:
    under_seals(4, 1)
    # After the last seal: a seal of later than now would be trouble of its own.
    blind_spots.compare(now=NOW + timedelta(minutes=4), via="beat")
    with behind_our_back(OF_THE_NEWEST[0]):
        for minutes in (10, 16, 17, 22):
            blind_spots.compare(now=NOW + timedelta(minutes=minutes), via="beat")
        (line,) = Entry.objects.filter(kind=EntryKind.AUDIT_FAILED.value)
        assert "seal 4 does not match its rows" in text(line)
        assert OpenTrouble.objects.filter(code="audit-failed").count() == 1
        with connection.cursor() as cursor:
            cursor.execute("UPDATE fleet_entry SET actor = 'ada' WHERE actor = 'stranger'")
        blind_spots.compare(now=NOW + timedelta(minutes=28), via="beat")
        (over,) = Entry.objects.filter(kind=EntryKind.COVERAGE_CLOSED.value)
        assert text(over) == "Resolved: The timeline does not match its seals."
