"""Agent installation: machines install from their backend, so a package of the same name at an index never runs."""

from __future__ import annotations

import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from django.test import Client

from fleet.dashboard import agent_package
from fleet.wording.machines import PLATFORMS
from tests import factories
from tests.dashboard.conftest import logged_in
from tests.processes import ROOT

pytestmark = pytest.mark.django_db


def test_agent_package_needs_no_login_and_pip_checks_its_hash() -> None:
    requirement = agent_package.requirement()
    named = re.fullmatch(r"drydock-agent\[signed\] @ http\S+?(/agent/\S+\.whl)#sha256=([0-9a-f]{64})", requirement)
    assert named is not None
    answer = Client().get(named[1])
    assert answer.status_code == 200 and answer["Content-Type"] == "application/zip"
    assert sha256(answer.content).hexdigest() == named[2]


def test_each_process_makes_the_same_bytes() -> None:
    first = agent_package.package()
    agent_package.package.cache_clear()
    assert agent_package.package() == first


@pytest.mark.parametrize("name", ["drydock_agent-0.0.0-py3-none-any.whl", "x", "requests-2.32-py3-none-any.whl"])
def test_nothing_else_is_there(name: str) -> None:
    assert Client().get(f"/agent/{name}").status_code == 404


def test_it_installs_and_runs_and_holds_no_simulator(tmp_path: Path) -> None:
    found = agent_package.package()
    wheel = tmp_path / found.name
    wheel.write_bytes(found.content)
    place = tmp_path / "installed"
    uv = ROOT / ".venv" / "bin" / "uv"
    install = [str(uv), "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(place), str(wheel)]
    subprocess.run(install, check=True)
    assert {each.name for each in place.iterdir()} >= {
        "drydock_agent",
        f"drydock_agent-{found.name.split('-')[1]}.dist-info",
    }
    assert not (place / "azure_simulator").exists()
    ended = subprocess.run(
        [sys.executable, "-c", "import drydock_agent; print(drydock_agent.__path__)"],
        env={"PYTHONPATH": str(place)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert str(place) in ended.stdout


def test_no_line_names_a_package_of_an_index() -> None:
    page = logged_in(factories.admin()).post("/join-tokens/make/", {"comment": "for web", "hours": "24"})
    body = page.content.decode()
    assert len(PLATFORMS) > 2 and "/agent/drydock_agent-" in body
    assert bare_names(body) == []
    documents = [*ROOT.glob("*.md"), *ROOT.glob("agents/*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Dockerfile"]
    documents += [path for path in (ROOT / "examples").rglob("*") if path.is_file()]
    assert len(documents) > 30
    assert {path.name: found for path in documents if (found := bare_names(path.read_text()))} == {}


def test_the_agent_carries_the_licence_of_the_whole() -> None:
    assert (ROOT / "agents" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def bare_names(text: str) -> list[str]:
    """Our names where an installer is given one that it would ask an index for: no address, and no file."""
    lines = re.findall(
        r"\b(?:pip3?(?:\.exe)?|pipx|uv tool|uv pip|uv|poetry)['\"]? (?:install|run|add)\b([^`;&|\n]*)", text
    )
    words = re.compile(r"(?<![\w./-])drydock(?:-fleet|-agent)?(?:\[[\w,]*\])?(?![\w.[-])(?!\s*@)")
    return [found for line in lines for found in words.findall(line)]


def test_a_bare_name_would_be_found() -> None:
    for bare in (
        "pip install drydock",
        "pip.exe' install --quiet 'drydock-agent[signed]'",
        "pip install -U drydock-fleet",
    ):
        assert len(bare_names(bare)) == 1, bare
    for well in (
        "pip install 'drydock-agent[signed] @ https://x/y.whl'",
        "pip install -r drydock-fleet.txt",
        "drydock-fleet web",
    ):
        assert bare_names(well) == [], well
