"""Which programs of the machine's owner there are for a phase, in order, and which of them may not be run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

WINDOWS = os.name == "nt"

# How Windows runs a script; a program runs by itself.
_RUNNERS: dict[str, tuple[str, ...]] = {
    ".ps1": ("powershell.exe", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File"),
    ".cmd": ("cmd.exe", "/d", "/c"),
    ".bat": ("cmd.exe", "/d", "/c"),
    ".exe": (),
}
# What editors and package managers leave beside a file that they replaced.
_LEFT_BEHIND = ("~", ".bak", ".orig", ".swp", ".dpkg-old", ".dpkg-new", ".dpkg-dist", ".rpmnew", ".rpmsave")

# Of the system that has them; the agent runs where there are none, too.
_own_user = getattr(os, "geteuid", None)


class FolderRefused(Exception):
    """Nothing of the folder may be run; the sentence says why."""


@dataclass(slots=True, frozen=True)
class Hook:
    """One program. `refused` is empty, or a sentence that says why it must not be run."""

    name: str
    path: Path
    refused: str = ""

    def command(self, *, windows: bool = WINDOWS) -> list[str]:
        """What to start."""
        runner = _RUNNERS.get(self.path.suffix.lower(), ()) if windows else ()
        return [*runner, str(self.path)]


def hooks_of(root: Path, phase: str) -> list[Hook]:
    """The hooks in `<root>/<phase>.d`, sorted by name; none where a folder is missing. Raises `FolderRefused`."""
    folder = root.absolute() / f"{phase}.d"
    try:
        for each in (folder.parent, folder):
            if word := _unsafe(each.stat()):
                raise FolderRefused(f"Nothing in {folder} is run: {each} {word}.")
        found = [path for path in folder.iterdir() if not _passed_over(path.name)]
        return [_hook(path) for path in sorted(found, key=lambda path: path.name) if _executable(path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FolderRefused(f"{folder} cannot be read: {error.strerror}.") from error


def _hook(path: Path) -> Hook:
    word = _unsafe(path.stat())
    # A name is reported as text, whatever bytes the file system has for it.
    name = path.name.encode("utf-8", "replace").decode()
    return Hook(name, path, f"{name} is not run: it {word}." if word else "")


def _passed_over(name: str) -> bool:
    return name.startswith(".") or name.endswith(_LEFT_BEHIND)


def _executable(path: Path) -> bool:
    # `stat` first: a link that leads nowhere is no file.
    if not path.is_file():
        return False
    return path.suffix.lower() in _RUNNERS if WINDOWS else bool(path.stat().st_mode & 0o111)


def _unsafe(found: os.stat_result) -> str:
    """What lets somebody else decide what the agent runs; empty where nothing does, and on Windows (see the docs)."""
    if _own_user is None:
        return ""
    if found.st_uid not in (0, _own_user()):
        return f"belongs to user {found.st_uid}, not to root or to the agent's user"
    if found.st_mode & 0o002:
        return "can be written by everybody"
    return ""
