"""A run of pytest inside a test, with this project's settings."""

import os
import subprocess
from pathlib import Path

from fleet.embedded.parent_death import bound
from tests.processes import PYTHON, ROOT
from tests.servers import KEPT


def run(folder: Path, sample: str, **environment: str) -> str:
    """What pytest prints over one file of tests."""
    (folder / "test_sample.py").write_text(sample)
    command = [PYTHON, "-m", "pytest", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"), str(folder)]
    ended = subprocess.run(
        bound([*command, "-p", "no:cacheprovider"]),
        cwd=ROOT,
        # With the servers of this run: it would start some of its own for a handful of tests.
        env={**{name: os.environ[name] for name in KEPT}, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout
