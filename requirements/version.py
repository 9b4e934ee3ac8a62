"""The version of this build, from the changelog and the commit: `python requirements/version.py` prints it.

A release is what the changelog names first. Below `## Unreleased`, a build is a development version of the next minor
release: `0.2.0.dev20261126101001+gaea227721234` with the time and the hash of the commit, followed by `.d` and a digest
of the sources if they differ from it. A source tree without Git has only the digest. A source distribution states its
version, and the file VERSION states that of a tree from which the rest was left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What a build contains, or is made by.
SOURCES = ("CHANGELOG.md", "agents", "fleet", "pyproject.toml", "templates")
HEADING = re.compile(r"^## (?:(Unreleased)|(\d+)\.(\d+)\.(\d+) \()", re.MULTILINE)


def version(root: Path = ROOT) -> str:
    """Return the version of the source tree in this folder, in the form of PEP 440."""
    stated = root / "VERSION"
    if stated.is_file():
        return stated.read_text(encoding="utf-8").strip()
    headings = HEADING.findall((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    major, minor, patch = next(tuple(map(int, numbers)) for unreleased, *numbers in headings if not unreleased)
    is_release = not headings[0][0]
    base = f"{major}.{minor}.{patch}" if is_release else f"{major}.{minor + 1}.0"
    commit = _commit(root)
    if commit is None:
        return f"{base}+d{_digest(root)}" if is_release else f"{base}.dev0+d{_digest(root)}"
    at, revision, is_changed = commit
    local = f"g{revision}" + (f".d{_digest(root)}" if is_changed else "")
    if is_release:
        return f"{base}+{local}" if is_changed else base
    return f"{base}.dev{at}+{local}"


def _commit(root: Path) -> tuple[str, str, bool] | None:
    """Return time and hash of the commit, and whether the sources differ from it; None if this is no Git work tree."""
    if not (root / ".git").exists():
        return None
    try:
        said = _git(root, "log", "-1", "--format=%cd %H", "--date=format-local:%Y%m%d%H%M%S").split()
        return said[0], said[1][:12], bool(_git(root, "status", "--porcelain", "--", *SOURCES))
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *words: str) -> str:
    # A hook of Git states another repository in its variables.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        ["git", *words], cwd=root, env=environment | {"TZ": "UTC"}, capture_output=True, text=True, check=True
    ).stdout


def _digest(root: Path) -> str:
    """Return a digest of the sources, the same wherever they lie."""
    parts = [root / name for name in SOURCES]
    files = [path for part in parts for path in (sorted(part.rglob("*")) if part.is_dir() else [part])]
    digest = sha256()
    for path in files:
        name = path.relative_to(root).as_posix()
        if path.is_file() and not name.startswith("fleet/site/") and not re.search(r"__pycache__|\.egg-info", name):
            digest.update(f"{name} {sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    sys.stdout.write(f"{version()}\n")
