"""Backups of an embedded Postgres, taken and restored with its own programs, as `docs/admin/backup.md` has it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg

from fleet.embedded import held as held_folder
from fleet.embedded import postgres_server, temporary_folder
from fleet.embedded.parent_death import bound
from fleet.embedded.postgres import INSTALLATION, owner_of, wheel

ROLE = "app"


def run(program: str, *arguments: str) -> None:
    """One of Postgres' own programs, to its end; AssertionError with what it said."""
    command = [str(wheel() / INSTALLATION / "bin" / program), *arguments]
    ended = subprocess.run(bound(command), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{program}: {ended.stdout}{ended.stderr}"


def host_of(url: str) -> str:
    """The folder of the server's socket."""
    return parse_qs(urlsplit(url).query)["host"][0]


@contextmanager
def server() -> Iterator[str]:
    """A Postgres of its own, with few transactions so far."""
    with ExitStack() as stack:
        folder = stack.enter_context(held_folder(stack.enter_context(temporary_folder())))
        yield stack.enter_context(postgres_server(folder, durable=False)).url


@contextmanager
def server_of_copy(copied: Path) -> Iterator[str]:
    """A Postgres on the files that `copy_files` took."""
    with held_folder(copied):
        # Of the server that it was taken from.
        for socket in (copied / "postgres").glob(".s.PGSQL.*"):
            socket.unlink()
        owner = owner_of(copied / "postgres")
        if owner.user:
            for path in (copied / "postgres", *(copied / "postgres").rglob("*")):
                os.chown(path, *owner.user)
        with postgres_server(copied, durable=False) as server:
            yield server.url


def dump(url: str, file: Path) -> None:
    run("pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={file}", f"--dbname={url}")


def restore_dump(file: Path, url: str) -> str:
    """Into a new database of this server, as a role that may do nothing special; its URL."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {ROLE} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE")
        connection.execute(f"CREATE DATABASE {ROLE} OWNER {ROLE}")
    restored = f"postgresql://{ROLE}@/{ROLE}?{urlsplit(url).query}"
    run(
        "pg_restore", "--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction",
        f"--dbname={restored}", str(file),
    )  # fmt: skip
    return restored


def copy_files(url: str, folder: Path) -> None:
    """A physical backup of the running server."""
    run(
        "pg_basebackup",
        f"--dbname={url}",
        f"--pgdata={folder / 'postgres'}",
        "--checkpoint=fast",
        "--wal-method=stream",
    )
