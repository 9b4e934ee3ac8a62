"""One line for each platform installs the agent: quoted so that a shell takes it as it is, and carried out here."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from pathlib import Path

import pytest

from fleet.domain.machines.enrolment import SETTINGS_FILE, UNIT, UNIT_FILE, install_lines
from fleet.wording.machines import PLATFORMS

URL, TOKEN = "https://desk.example.org", "join_abc-DEF_123"
PACKAGE = f"drydock-agent[signed] @ {URL}/agent/drydock_agent-1-py3-none-any.whl#sha256=0a1b"
LINES = {line.platform: line.text for line in install_lines(fleet_url=URL, join_token=TOKEN, package=PACKAGE)}


def test_each_platform_has_a_line_and_a_name_and_only_scripts_have_two() -> None:
    assert set(LINES) == set(PLATFORMS)
    assert {name: text.count("\n") for name, text in LINES.items()} == {
        "linux": 0, "windows": 0, "azure-cli": 0, "cloud-init": 1, "other": 1,
    }  # fmt: skip
    for text in LINES.values():
        assert URL in text and TOKEN in text


@pytest.fixture
def pretended(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder that stands for the root of a machine, with programs that only say that they were called."""
    programs = tmp_path / "programs"
    for folder in (programs, tmp_path / "etc/systemd/system", tmp_path / "opt/drydock-agent/bin"):
        folder.mkdir(parents=True)
    note = f'#!/bin/sh\necho "$(basename "$0") $*" >> {tmp_path}/calls\n'
    for path in (programs / "python3", programs / "systemctl", tmp_path / "opt/drydock-agent/bin/pip"):
        path.write_text(note)
        path.chmod(0o755)
    (programs / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (programs / "sudo").chmod(0o755)
    return tmp_path, {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}


@pytest.mark.parametrize("platform", ["linux", "cloud-init", "azure-cli"])
def test_install_lines_run_in_a_shell_and_protect_the_token(
    pretended: tuple[Path, dict[str, str]], platform: str
) -> None:
    root, environment = pretended
    text = LINES[platform]
    if platform == "azure-cli":
        words = shlex.split(text)
        assert words[: words.index("--scripts")][-2:] == ["--command-id", "RunShellScript"]
        text = words[-1]
    for _ in range(2):
        script = text.replace("/etc/", f"{root}/etc/").replace("/opt/", f"{root}/opt/")
        subprocess.run(["/bin/sh", "-c", script], check=True, env=environment, umask=0o022)
    settings = Path(f"{root}{SETTINGS_FILE}")
    assert settings.read_text() == f"DRYDOCK_FLEET_URL={URL}\nDRYDOCK_JOIN_TOKEN={TOKEN}\n"
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    unit = Path(f"{root}{UNIT_FILE}").read_text()
    assert unit == UNIT.replace("/etc/", f"{root}/etc/").replace("/opt/", f"{root}/opt/")
    calls = (root / "calls").read_text().splitlines()
    assert calls[:2] == [f"python3 -m venv {root}/opt/drydock-agent", f"pip install --quiet {PACKAGE}"]
    assert calls[2:4] == ["systemctl daemon-reload", "systemctl enable --now drydock-agent"]


def test_what_a_shell_would_take_for_its_own_stays_text(pretended: tuple[Path, dict[str, str]]) -> None:
    root, environment = pretended
    hostile = "https://x.example/$(touch${IFS}owned)`id`'\"%s\\"
    lines = install_lines(fleet_url=hostile, join_token="t", package=f"agent @ {hostile}")
    text = {line.platform: line.text for line in lines}["linux"]
    script = text.replace("/etc/", f"{root}/etc/").replace("/opt/", f"{root}/opt/")
    subprocess.run(["/bin/sh", "-c", script], check=True, env=environment, cwd=root)
    assert Path(f"{root}{SETTINGS_FILE}").read_text().splitlines()[0] == f"DRYDOCK_FLEET_URL={hostile}"
    assert not (root / "owned").exists()


def test_powershell_gets_strings_in_which_nothing_is_special() -> None:
    lines = install_lines(fleet_url="https://o'hara", join_token="t", package=PACKAGE)
    text = {line.platform: line.text for line in lines}["windows"]
    assert "'fleet_url = \"https://o''hara\"'" in text
    assert text.replace("''", "").count("'") % 2 == 0
