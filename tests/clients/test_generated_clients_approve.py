"""Clients that others would generate from the OpenAPI document are whole, well typed, and approve a real event."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.models import Approval
from tests import factories
from tests.api.conftest import caller
from tests.architecture.sources import ROOT
from tests.browser.conftest import of_this_run
from tests.gateway_process import Gateway, running_gateway

DOCUMENT = ROOT / "docs" / "openapi.json"
HERE = Path(__file__).parent
TOOLS = Path(sys.executable).parent
COMMENT = "Drained by a script."


def done(command: Sequence[str], folder: Path) -> str:
    """What a command printed; it has to end well."""
    environment = {**os.environ, "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.fixture
def gateway(transactional_db: None, redis_url: str, tmp_path: Path) -> Iterator[Gateway]:
    with running_gateway(of_this_run(), tmp_path) as it:
        yield it


def approved_by(command: Sequence[str], folder: Path, gateway: Gateway) -> None:
    """The command gets an address, a token and a comment, and prints the approval's id: of the event that waits."""
    event = factories.announced(factories.Fleet(now=datetime.now(UTC)))
    token = caller(factories.operator(), "read", "approve").headers["authorization"].partition(" ")[2]
    printed = done([*command, gateway.url, token, COMMENT], folder)
    [approval] = Approval.objects.filter(event=event)
    assert int(printed.strip().splitlines()[-1]) == approval.pk
    assert (approval.comment, approval.via, approval.event_version) == (COMMENT, "api", event.version)


@pytest.mark.long
def test_a_python_client_is_generated_and_approves(gateway: Gateway, tmp_path: Path) -> None:
    shutil.copytree(HERE / "python", tmp_path, dirs_exist_ok=True)
    generate = ["generate", "--path", str(DOCUMENT), "--config", "generate.yml", "--meta", "none"]
    said = done(["openapi-python-client", *generate, "--output-path", "drydock_client"], tmp_path)
    assert "WARNING" not in said, said
    done(["mypy", "--config-file=", "--strict", "approve.py", "drydock_client"], tmp_path)
    run = "import sys; from approve import approve_next; print(approve_next(*sys.argv[1:]).id)"
    approved_by([sys.executable, "-c", run], tmp_path, gateway)


@pytest.mark.long
@pytest.mark.node
@pytest.mark.skipif(
    not (shutil.which("node") and shutil.which("npm")), reason="no Node and npm here; Debian has both as packages"
)
def test_a_typescript_client_is_generated_and_approves(gateway: Gateway, tmp_path: Path) -> None:
    shutil.copytree(HERE / "typescript", tmp_path, dirs_exist_ok=True)
    done(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], tmp_path)
    # Without this option a field that has a default would have to be said.
    generate = [str(DOCUMENT), "--default-non-nullable=false", "--output", "drydock.d.ts"]
    done(["node_modules/.bin/openapi-typescript", *generate], tmp_path)
    done(["node_modules/.bin/tsc", "--project", "."], tmp_path)
    run = (
        'import { approveNext } from "./built/approve.js";'
        "console.log((await approveNext(...process.argv.slice(1))).id);"
    )
    approved_by(["node", "--input-type=module", "--eval", run, "--"], tmp_path, gateway)


@pytest.mark.parametrize("folder", [HERE / "typescript", HERE.parent / "people" / "conforming"])
def test_no_lock_says_where_packages_come_from(folder: Path) -> None:
    lock = (folder / "package-lock.json").read_text()
    assert "resolved" not in lock
    packages = json.loads(lock)["packages"]
    assert all(one.get("integrity") for name, one in packages.items() if name)
    assert "omit-lockfile-registry-resolved=true" in (folder / ".npmrc").read_text()
