"""The example that backs up the database and restores it, as a role of Postgres without any right."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from fleet.embedded.postgres import INSTALLATION, wheel
from tests.processes import PYTHON, ROOT, manage
from tests.restoring import ROLE, server

pytestmark = pytest.mark.long

SCRIPT = ROOT / "examples" / "backup" / "drydock-backup"


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """Two databases of a role that may do nothing special: Drydock's own, and the one for the check."""
    with server() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {ROLE} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE")
            for name in (ROLE, f"{ROLE}_check"):
                connection.execute(f"CREATE DATABASE {name} OWNER {ROLE}")
        own, check = (f"postgresql://{ROLE}@/{name}?{urlsplit(url).query}" for name in (ROLE, f"{ROLE}_check"))
        programs = f"{Path(PYTHON).parent}{os.pathsep}{wheel() / INSTALLATION / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {"DATABASE_URL": own, "CHECK_DATABASE_URL": check, "PATH": programs}
        manage("migrate", "--noinput", environment=environment)
        manage("create_person", "ada", "--group", "admin", environment=environment)
        yield environment


def people(url: str) -> list[tuple[str]]:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT username FROM auth_user").fetchall()


def backed_up(folder: Path, environment: dict[str, str]) -> int:
    ended = subprocess.run([SCRIPT, folder], env={**os.environ, **environment}, cwd=folder, check=False, timeout=300)
    return ended.returncode


def test_each_backup_is_restored_and_verified(environment: dict[str, str], tmp_path: Path) -> None:
    for count in (1, 2):
        # The second one overwrites what the first one restored.
        assert backed_up(tmp_path, environment) == 0
        assert {path.suffix for path in tmp_path.iterdir()} == {".dump"} and len(list(tmp_path.iterdir())) == count
        assert people(environment["CHECK_DATABASE_URL"]) == [("ada",)]
    own = environment["DATABASE_URL"]
    assert backed_up(tmp_path, environment | {"CHECK_DATABASE_URL": own}) == 2, "it overwrites no other database"
    assert people(own) == [("ada",)]
    # A dump that cannot be restored is no backup.
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "pg_dump").write_text(
        '#!/bin/sh\nfor word; do file="${word#--file=}"; [ "$file" = "$word" ] || echo > "$file"; done\n'
    )
    (programs / "pg_dump").chmod(0o755)
    damaged = environment | {"PATH": f"{programs}{os.pathsep}{environment['PATH']}"}
    assert backed_up(tmp_path, damaged) not in (0, 2)
    assert len(list(tmp_path.glob("*.dump"))) == 2 and len(list(tmp_path.glob("*.unchecked"))) == 1
