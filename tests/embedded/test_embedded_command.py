"""`manage.py with_servers -- COMMAND`."""

import os
import signal
from pathlib import Path

import pytest

from fleet.embedded.folder import is_running
from tests.processes import PYTHON, Process, start, wait_for

BARE = {"DATABASE_URL": "", "REDIS_URL": "", "SECRET_KEY": ""}
SHOW = "import os; print(os.environ['DATABASE_URL'], os.environ['REDIS_URL'], len(os.environ['SECRET_KEY']) > 32)"
WAIT = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"


def with_servers(*command: str, log: Path, data: Path | None = None) -> Process:
    options = ["--data", str(data)] if data else []
    return start([PYTHON, "manage.py", "with_servers", *options, "--", *command], environment=BARE, log=log)


def test_the_command_finds_servers_and_its_exit_status_is_passed_on(tmp_path: Path) -> None:
    missing = with_servers("/no/such/program", log=tmp_path / "missing")
    process = with_servers(PYTHON, "-c", SHOW + "; raise SystemExit(7)", log=tmp_path / "log")
    assert (process.child.wait(30), missing.child.wait(30)) == (7, 127)
    assert process.said().startswith("postgresql://drydock@/drydock?host=/")
    assert process.said().endswith("True\n")
    assert missing.said() == "Cannot run /no/such/program: No such file or directory.\n"


def ended(folder: Path, number: signal.Signals) -> None:
    """Start a command with servers and send it a signal: the command and the servers have to end."""
    noted = folder / "pid"
    process = with_servers(PYTHON, "-c", WAIT, str(noted), log=folder / "log", data=folder / "data")
    pid = int(wait_for(lambda: noted.exists() and noted.read_text(), seconds=30, what="a command that runs"))
    server = int((folder / "data" / "postgres" / "postmaster.pid").read_text().splitlines()[0])
    os.kill(process.pid, number)
    process.child.wait(20)
    wait_for(lambda: not is_running(pid), seconds=20, what="the end of the command")
    wait_for(lambda: not is_running(server), seconds=20, what="the end of Postgres")


def test_it_ends_by_sigint_where_it_was_started_with_that_ignored(tmp_path: Path) -> None:
    # As a shell without job control starts a command in the background.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ended(tmp_path, signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.real_time
@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_however_it_is_ended_the_command_and_the_servers_end_too(tmp_path: Path, number: signal.Signals) -> None:
    ended(tmp_path, number)
