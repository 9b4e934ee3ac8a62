"""Spool: reports keep their numbers and order, and no written report is ever lost."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from drydock_agent.clock import Clock, from_text
from drydock_agent.spool.store import Spool, SpoolError
from drydock_agent.spool.store import tables as spool_tables
from drydock_agent.state_folder import Credential, StateError, StateFolder

from tests.agent.agents import SteppedClock

AT = datetime(2026, 11, 20, 9, 0, tzinfo=timezone.utc)

# Writes for as long as it lives, and says each number only when `add` has returned.
WRITER = """
import sys
from datetime import datetime, timezone
from pathlib import Path
from drydock_agent.spool.store import Spool
spool = Spool(Path(sys.argv[1]))
while True:
    print(spool.add("document", datetime.now(timezone.utc), {"body": "x" * 500}), flush=True)
"""


def add(spool: Spool, count: int) -> list[int]:
    return [spool.add("document", AT, {"number": number}) for number in range(count)]


def waiting(spool: Spool) -> list[int]:
    return [report.seq for report in spool.batch(1000, 1 << 30)]


@contextlib.contextmanager
def opened(folder: Path, **more: Any) -> Iterator[Spool]:
    """The spool in the folder, closed after the block as by an agent that ends."""
    with contextlib.closing(Spool(folder / "spool.sqlite3", **more)) as spool:
        yield spool


def test_numbers_begin_at_one_and_are_never_used_twice(tmp_path: Path, spool: Spool) -> None:
    assert add(spool, 3) == [1, 2, 3]
    assert spool.acknowledge(0, {}) and waiting(spool) == [1, 2, 3]
    assert spool.acknowledge(3, {}) and waiting(spool) == []
    spool.close()
    with opened(tmp_path) as again:
        assert add(again, 2) == [4, 5]


def test_an_acknowledgement_deletes_everything_up_to_it(spool: Spool) -> None:
    add(spool, 5)
    waiting(spool)
    assert spool.acknowledge(3, {})
    assert waiting(spool) == [4, 5]
    assert spool.acknowledge(1, {}), "an old acknowledgement changes nothing"
    assert waiting(spool) == [4, 5]
    assert spool.acknowledged == 3


def test_refused_reports_are_kept_with_reasons_up_to_a_bound(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    add(spool, 3)
    waiting(spool)
    spool.acknowledge(3, {2: "too deep"})
    assert waiting(spool) == []
    [(report, reason)] = spool.quarantined()
    assert (report.seq, json.loads(report.data), reason) == (2, {"number": 1}, "too deep")
    monkeypatch.setattr(spool_tables, "MAX_QUARANTINED", 5)
    for seq in add(spool, 8):
        spool.quarantine(seq, "no")
    assert [report.seq for report, _ in spool.quarantined()] == [7, 8, 9, 10, 11]


def test_a_batch_is_bounded_by_number_and_bytes_but_never_empty(spool: Spool) -> None:
    for size in (10, 5000, 10, 10):
        spool.add("document", AT, {"body": "x" * size})
    assert [report.seq for report in spool.batch(2, 1 << 20)] == [1, 2]
    assert [report.seq for report in spool.batch(10, 1000)] == [1]
    spool.acknowledge(1, {})
    assert [report.seq for report in spool.batch(10, 1000)] == [2]


@pytest.mark.fault
def test_what_was_written_survives_kill_9(tmp_path: Path) -> None:
    written: list[int] = []
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "spool.sqlite3")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            written += [int(writer.stdout.readline()) for _ in range(40)]
            writer.kill()
            written += [int(line) for line in writer.stdout.read().splitlines() if line]
    assert written == sorted(set(written))
    with opened(tmp_path) as spool:
        assert set(written) <= set(waiting(spool))


def test_a_state_folder_that_was_put_back_begins_a_new_spool_and_loses_nothing(tmp_path: Path) -> None:
    path, backup = tmp_path / "spool.sqlite3", tmp_path / "backup"
    with opened(tmp_path) as spool:
        old_id = spool.id
        add(spool, 3)
        waiting(spool)
        spool.acknowledge(2, {})
    shutil.copy(path, backup)
    with opened(tmp_path) as spool:
        add(spool, 4)
        waiting(spool)
        spool.acknowledge(7, {})
    shutil.copy(backup, path)

    with opened(tmp_path) as spool:
        spool.receipt("order-1", "{}", "receipt", AT, {"order_id": "order-1"})
        assert not spool.acknowledge(7, {}), "the backend knows numbers that this spool never sent"
        assert spool.id != old_id
        assert [(report.seq, report.kind) for report in spool.batch(10, 1 << 20)] == [(1, "document"), (2, "receipt")]
        assert [order.receipt_seq for order in spool.orders()] == [2]
        assert spool.acknowledge(2, {}) and waiting(spool) == []
        renewed = spool.id
    with opened(tmp_path) as spool:
        assert (spool.id, spool.acknowledged) == (renewed, 2)


def test_a_cloned_disk_begins_a_new_spool_and_keeps_the_old_file(tmp_path: Path) -> None:
    state = StateFolder(tmp_path, Clock())
    with contextlib.closing(state.open_spool("machine-a")) as spool:
        add(spool, 3)
    with contextlib.closing(state.open_spool("machine-b")) as other:
        assert other.id != spool.id and waiting(other) == []
    [kept] = tmp_path.glob("spool-machine-a-*.sqlite3")
    with contextlib.closing(Spool(kept)) as old:
        assert (old.id, waiting(old)) == (spool.id, [1, 2, 3])


@pytest.mark.parametrize("damage", [b"", b"this is no database, and longer than a header of one hundred bytes " * 4])
def test_damaged_spool_is_renamed_and_the_agent_continues(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "spool.sqlite3").write_bytes(damage)
    with contextlib.closing(StateFolder(tmp_path, Clock()).open_spool("machine-a")) as spool:
        assert add(spool, 1) == [1]
    assert len(list(tmp_path.glob("spool-damaged-*.sqlite3"))) == bool(damage)


def test_the_credential_is_readable_by_its_owner_alone_and_the_machine_id_made_once(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "a" / "b", Clock())
    state.prepare()
    credential = Credential("machine", "imds", "secret")
    state.keep_credential(credential)
    state.keep_credential(credential)
    assert state.credential() == credential
    if os.name == "posix":
        assert (state.root / "credential.json").stat().st_mode & 0o777 == 0o600
    (state.root / "credential.json").write_text("{", encoding="utf-8")
    assert state.credential() is None
    assert state.own_machine_id() == StateFolder(state.root, Clock()).own_machine_id()


def test_a_state_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StateError, match=r"^The state folder .*file.state cannot be written: .+\.$"):
        StateFolder(tmp_path / "file" / "state", Clock()).prepare()


def test_a_write_that_fails_raises_and_changes_nothing(spool: Spool) -> None:
    add(spool, 1)
    for write in (
        lambda: spool.set("half of a pair: \ud800", "value"),
        lambda: spool.acknowledge(0, {2**70: "too large a number"}),
        lambda: spool._call(lambda db: (db.execute("DELETE FROM reports"), db.execute("no such statement"))),
    ):
        with pytest.raises(SpoolError):
            write()
    assert waiting(spool) == [1] and add(spool, 1) == [2]


HOUR = 3600.0


def times(spool: Spool) -> list[datetime | None]:
    return [from_text(report.at) for report in spool.batch(10, 1 << 20)]


# A clock that drifts by less than a second is not taken for one that was set.
@pytest.mark.parametrize(("step", "correction"), [(-HOUR, -HOUR), (HOUR, HOUR), (0.4, 0)])
def test_a_wrong_clocks_time_is_corrected(tmp_path: Path, clock: SteppedClock, step: float, correction: float) -> None:
    with opened(tmp_path, clock=clock) as spool:
        spool.add("document", clock.now(), {})
        recorded = clock.now()
        clock.advance(30)
        clock.step(step)
        spool.add("document", recorded + timedelta(seconds=30 + correction), {})
        clock.advance(5)
        expected = [recorded + timedelta(seconds=correction), recorded + timedelta(seconds=30 + correction)]
        assert times(spool) == expected
    # Also by the agent's next run, and once the reports have new numbers.
    with opened(tmp_path, clock=clock) as again:
        again.acknowledge(99, {})
        assert times(again) == expected


@pytest.mark.parametrize("known", [True, False])
def test_over_a_reboot_the_offsets_to_the_backend_correct_it(tmp_path: Path, clock: SteppedClock, known: bool) -> None:
    with opened(tmp_path, clock=clock) as spool:
        spool.ahead = lambda: HOUR if known else None
        spool.add("document", clock.now(), {})
    rebooted = SteppedClock()
    rebooted.boot, rebooted.wall = "the next", clock.now() + timedelta(seconds=HOUR + 60)
    with opened(tmp_path, clock=rebooted) as again:
        again.ahead = lambda: 0.0
        assert times(again) == [clock.now() + timedelta(seconds=HOUR if known else 0)]


def test_a_spool_of_an_older_agent_is_continued_with_its_times(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "spool.sqlite3")) as old:
        old.executescript(
            "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
            "CREATE TABLE reports (seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, at TEXT NOT NULL,"
            " data TEXT NOT NULL);"
            "INSERT INTO reports (kind, at, data) VALUES ('document', '2026-11-20T09:00:00.000000Z', '{}');"
        )
    with opened(tmp_path) as spool:
        spool.add("document", AT + timedelta(minutes=1), {})
        assert times(spool) == [AT, AT + timedelta(minutes=1)]
