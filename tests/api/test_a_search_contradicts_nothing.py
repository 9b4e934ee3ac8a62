"""Schemathesis searches the real server for an answer that the OpenAPI document does not describe: for failures of
ours, for statuses, shapes, media types and headers that are not in it, and for data that it forbids and that is taken.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import factories
from tests.access.world import busy_world
from tests.api.conftest import caller
from tests.architecture.sources import ROOT
from tests.browser.conftest import of_this_run
from tests.gateway_process import running_gateway

CONFIG = Path(__file__).parent / "schemathesis.toml"
SEED = 14
# For each role so long goes the search over the edges of every shape, so long the random one, so long that for
# sequences of calls; all of it together takes two minutes.
SECONDS = {"examples,coverage": 20, "fuzzing": 8, "stateful": 8}
ANONYMOUS = ""


@dataclass(slots=True)
class Searched:
    """A server over a fleet with something of everything, and the tokens of those who search."""

    url: str
    tokens: dict[str, str]
    document: Path

    def search(self, role: str, *options: str) -> dict[str, Any]:
        """Schemathesis' own report of a search in this role. Raises AssertionError with what it found."""
        report = self.document.parent / f"{role or 'nobody'}.json"
        token = self.tokens.get(role)
        header = ["--header", f"Authorization: Bearer {token}"] if token else []
        command = [str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(CONFIG), "run"]
        command += [str(self.document), "--url", self.url, *header, "--report-json-path", str(report), *options]
        own = {"PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.api.search_hooks", "NO_COLOR": "1"}
        ended = subprocess.run(
            command, cwd=report.parent, env={**os.environ, **own}, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr
        found: dict[str, Any] = json.loads(report.read_text())
        return found


@pytest.fixture
def searched(transactional_db: None, redis_url: str, tmp_path: Path) -> Iterator[Searched]:
    values = busy_world().values
    people = {"admin": factories.admin()}
    tokens = {name: caller(person).headers["authorization"].partition(" ")[2] for name, person in people.items()}
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(with_what_is_there(values), default=str))
    with running_gateway(of_this_run(), tmp_path, environment={"LOG_LEVEL": "ERROR", "LOG_FORMAT": "json"}) as gateway:
        yield Searched(gateway.url, tokens, document)


def with_what_is_there(values: dict[str, Any]) -> dict[str, Any]:
    """The document with what is there as examples of places, so that the search finds more than nothing."""
    document: dict[str, Any] = json.loads((ROOT / "docs" / "openapi.json").read_text())
    for methods in document["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path" and parameter["name"] in values:
                    parameter["examples"] = {"0": {"value": values[parameter["name"]]}}
    return document


@pytest.mark.long
@pytest.mark.parametrize("role", ["admin", ANONYMOUS])
def test_a_long_search_finds_nothing(searched: Searched, role: str) -> None:
    for phases, seconds in SECONDS.items():
        report = searched.search(role, "--phases", phases, "--max-time", str(seconds), "--seed", str(SEED))
        cases = report["test_cases"]["generated"]
        sys.stdout.write(f"{role or 'nobody'}, {phases}: {report['operations']['tested']} operations, {cases} cases\n")
        assert cases > 0


@pytest.mark.long
def test_a_short_search_finds_nothing(searched: Searched) -> None:
    report = searched.search("admin", "--phases", "fuzzing", "--max-examples", "1", "--seed", str(SEED))
    assert report["operations"]["tested"] == report["operations"]["total"]
