"""The hooks folder: lists the programs for each phase in order, and refuses unsafe ones."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

WINDOWS = os.name == "nt"

# Interpreters of scripts on Windows. Executables need none.
_RUNNERS: dict[str, tuple[str, ...]] = {
    ".ps1": ("powershell.exe", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File"),
    ".cmd": ("cmd.exe", "/d", "/c"),
    ".bat": ("cmd.exe", "/d", "/c"),
    ".exe": (),
}
# Endings of backup files that editors and package managers leave.
_BACKUP_SUFFIXES = ("~", ".bak", ".orig", ".swp", ".dpkg-old", ".dpkg-new", ".dpkg-dist", ".rpmnew", ".rpmsave")

# Missing on Windows.
_own_user = getattr(os, "geteuid", None)


class FolderRefused(Exception):
    """The hooks folder is unsafe or cannot be read. The message states why."""


@dataclass(slots=True, frozen=True)
class Hook:
    """One hook program. `refused` is the reason for not running it, or empty."""

    name: str
    path: Path
    refused: str = ""

    def command(self, *, windows: bool = WINDOWS) -> list[str]:
        """Return the command line that runs this hook."""
        runner = _RUNNERS.get(self.path.suffix.lower(), ()) if windows else ()
        return [*runner, str(self.path)]


def list_hooks(root: Path, phase: str) -> list[Hook]:
    """Return the hooks in `<root>/<phase>.d`, sorted by name; an empty list if a folder does not exist. Raises
    `FolderRefused`.
    """
    folder = root.absolute() / f"{phase}.d"
    try:
        for each in (folder.parent, folder):
            if word := _unsafe_reason(each.stat()):
                raise FolderRefused(f"Nothing in {folder} is run: {each} {word}.")
        found = [path for path in folder.iterdir() if not _is_ignored(path.name)]
        return [_hook(path) for path in sorted(found, key=lambda path: path.name) if _is_executable(path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FolderRefused(f"{folder} cannot be read: {error.strerror}.") from error


def _hook(path: Path) -> Hook:
    word = _unsafe_reason(path.stat())
    # Names are reported as text, even if their bytes are not valid text.
    name = path.name.encode("utf-8", "replace").decode()
    return Hook(name, path, f"{name} is not run: it {word}." if word else "")


def _is_ignored(name: str) -> bool:
    return name.startswith(".") or name.endswith(_BACKUP_SUFFIXES)


def _is_executable(path: Path) -> bool:
    # Call `stat` first, because a broken link is not a file.
    if not path.is_file():
        return False
    return path.suffix.lower() in _RUNNERS if WINDOWS else bool(path.stat().st_mode & 0o111)


def _unsafe_reason(found: os.stat_result) -> str:
    """Return the reason why users other than the owner could change this file, or an empty string. Always empty on
    Windows (see the documentation).
    """
    if _own_user is None:
        return ""
    if found.st_uid not in (0, _own_user()):
        return f"belongs to user {found.st_uid}, not to root or to the agent's user"
    if found.st_mode & 0o002:
        return "can be written by everybody"
    return ""
