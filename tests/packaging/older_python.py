"""The oldest Python that machines have, where this one has it."""

import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

AGENT = Path(__file__).resolve().parents[2] / "agents" / "pyproject.toml"
OLDEST = tomllib.loads(AGENT.read_text())["project"]["requires-python"].removeprefix(">=")


@cache
def older_python() -> str | None:
    """Its program: one on the PATH that really runs, or one that uv knows of; None where there is none."""
    found = shutil.which(f"python{OLDEST}")
    asked = [sys.executable, "-m", "uv", "python", "find", OLDEST, "--no-python-downloads", "--quiet"]
    try:
        # A version manager leaves programs on the PATH that run nothing.
        if found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None
