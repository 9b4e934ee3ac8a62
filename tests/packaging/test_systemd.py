"""The example units of systemd: they are valid, confined, and run the commands that exist."""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest
from django.core.management import get_commands

from tests.processes import PYTHON, ROOT

pytestmark = pytest.mark.long

EXAMPLES = ROOT / "examples" / "systemd"
# By unit: its file, and the name under which it is checked.
UNITS = {"drydock-web@.service": "drydock-web@8000.service"}
UNITS |= {name: name for name in ("drydock-worker.service", "drydock-beat.service")}
# Tenths of the exposure that `systemd-analyze security` states.
MOST_EXPOSED = 30


def analyse(*words: str | Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here (Debian: systemd)")
    ended = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    assert (ended.returncode, "warning" in ended.stderr.lower()) == (0, False), ended.stdout + ended.stderr


@pytest.mark.parametrize("name", UNITS)
def test_each_unit_is_valid_and_confined(name: str, tmp_path: Path) -> None:
    unit = tmp_path / UNITS[name]
    # The program has to be there: the one of this environment.
    text = (EXAMPLES / name).read_text().replace("/opt/drydock/bin", str(Path(PYTHON).parent))
    unit.write_text(text)
    analyse("verify", "--man=no", unit)
    analyse("security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", unit)


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
