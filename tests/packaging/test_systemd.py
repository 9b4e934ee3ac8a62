"""Units of systemd, the examples and the agent's: they are valid, confined, and run the commands that exist."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from django.core.management import get_commands

from fleet.domain.machines.enrolment import HOOKS_DROP_IN, UNIT
from tests.processes import PYTHON, ROOT

pytestmark = pytest.mark.long

EXAMPLES = ROOT / "examples" / "systemd"
# By unit: its file, and the name under which it is checked.
UNITS = {"drydock-web@.service": "drydock-web@8000.service"}
UNITS |= {name: name for name in ("drydock-worker.service", "drydock-beat.service")}
AGENT = "drydock-agent.service"
# Tenths of the exposure that `systemd-analyze security` states.
MOST_EXPOSED = 30


def analyse(*words: str | Path) -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here (Debian: systemd)")
    ended = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    assert (ended.returncode, "warning" in ended.stderr.lower()) == (0, False), ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.fixture(params=[*UNITS, AGENT])
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The file of a unit. Its program has to exist, so it is one of here; the settings of the agent do not exist."""
    name = request.param
    unit = tmp_path / UNITS.get(name, name)
    if name == AGENT:
        unit.write_text(UNIT.replace("/opt/drydock-agent/bin/drydock-agent", "/bin/true").replace("=/etc/", "=-/etc/"))
    else:
        unit.write_text((EXAMPLES / name).read_text().replace("/opt/drydock/bin", str(Path(PYTHON).parent)))
    return unit


def test_each_unit_is_valid_and_confined(unit: Path) -> None:
    assert analyse("verify", "--man=no", unit) == ""
    analyse("security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", unit)


@pytest.mark.parametrize("unit", [AGENT], indirect=True)
def test_the_drop_in_for_hooks_is_valid_and_lifts_each_restriction(unit: Path) -> None:
    drop_in = unit.with_name(f"{AGENT}.d") / "hooks.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(HOOKS_DROP_IN)
    assert analyse("verify", "--man=no", unit) == ""
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", analyse("security", "--offline=true", unit))
    assert found and float(found[1]) > 9


def test_every_process_has_a_unit_with_a_command_and_a_user_without_rights() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == set(UNITS)
    for name in UNITS:
        unit = configparser.RawConfigParser(strict=False)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read(EXAMPLES / name)
        words = unit["Service"]["ExecStart"].split()
        assert words[0] == "/opt/drydock/bin/drydock-fleet" and words[1] in get_commands()
        assert name.startswith(f"drydock-{words[1]}")
        assert (unit["Service"]["User"], unit["Service"]["NoNewPrivileges"]) == ("drydock", "yes")
        assert unit["Service"]["Restart"] == "always"
