"""What the tests of `agents/deploy` share: its folder, and the programs that `make test-long` installs for them."""

from pathlib import Path

import pytest

from tests.processes import PYTHON, ROOT

DEPLOY = ROOT / "agents" / "deploy"
PROGRAMS = Path(PYTHON).parent.parent / "deploy" / "bin"


def program(name: str) -> Path:
    """Return the path of an installed program; the test is skipped where there is none."""
    if not (PROGRAMS / name).exists():
        pytest.skip(f"no {name} here: `make .venv/ready-deploy` installs it")
    return PROGRAMS / name
