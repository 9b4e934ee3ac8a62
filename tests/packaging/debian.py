"""Debian root file systems for tests, and what building needs."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleet.embedded.parent_death import bound
from tests.namespaces import missing
from tests.processes import PYTHON, ROOT

# What finds programs and packages; nothing else of this environment reaches a build.
KEPT = ("PATH", "HOME", "TMPDIR", "LANG")
WAYS_TO_PACKAGES = ("PIP_", "UV_", "SSL_", "REQUESTS_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def need(*programs: str) -> None:
    """Skip the test where it cannot run; in CI this is a failure."""
    without = [program for program in programs if shutil.which(program) is None]
    reason = f"no {', '.join(without)} here (Debian: mmdebstrap, buildah, cpio, rpm)" if without else missing()
    if os.geteuid() != 0 or reason:
        pytest.skip(reason or "only root makes a root file system")


def build(script: str, *words: str | Path, root: Path = ROOT) -> str:
    """Run a script of `requirements/`; what it printed."""
    kept = {
        name: value for name, value in os.environ.items() if name in KEPT or name.upper().startswith(WAYS_TO_PACKAGES)
    }
    return run([PYTHON, root / "requirements" / script, *words], env=kept, cwd=root)


def run(
    command: Sequence[str | Path], *, status: int = 0, env: dict[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run it to its end, without input; what it printed. AssertionError if it ends with another status."""
    ended = subprocess.run(
        bound(list(map(str, command))),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False, timeout=600, env=env, cwd=cwd,
    )  # fmt: skip
    assert ended.returncode == status, ended.stdout
    return ended.stdout


class DebianRoot:
    """A root file system in which commands run as on a machine, without a network."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, *command: str, status: int = 0) -> str:
        variables = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"]
        variables.append("DEBIAN_FRONTEND=noninteractive")
        alone = ["unshare", "--net", "--mount", "chroot", str(self.root), "env", "-i", *variables]
        return run([*alone, *command], status=status)

    def path(self, name: str) -> Path:
        return self.root / name.removeprefix("/")

    def lists(self, pattern: str) -> list[str]:
        return sorted(f"/{path.relative_to(self.root)}" for path in self.root.glob(pattern.removeprefix("/")))
