"""The hooks folder: lists the programs for each phase in order, and refuses unsafe ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from drydock_agent.platforms import system

# Endings of backup files that editors and package managers leave.
_BACKUP_SUFFIXES = ("~", ".bak", ".orig", ".swp", ".dpkg-old", ".dpkg-new", ".dpkg-dist", ".rpmnew", ".rpmsave")


class FolderRefused(Exception):
    """The hooks folder is unsafe or cannot be read. The message states why."""


@dataclass(slots=True, frozen=True)
class Hook:
    """One hook program. `refused` is the reason for not running it, or empty."""

    name: str
    path: Path
    refused: str = ""

    def command(self) -> list[str]:
        """Return the command line that runs this hook."""
        return system.hook_command(self.path)


def list_hooks(root: Path, phase: str) -> list[Hook]:
    """Return the hooks in `<root>/<phase>.d`, sorted by name; an empty list if a folder does not exist. Raises
    `FolderRefused`.
    """
    folder = root.absolute() / f"{phase}.d"
    try:
        for each in (folder.parent, folder):
            if word := system.unsafe_reason(each):
                raise FolderRefused(f"Nothing in {folder} is run: {each} {word}.")
        found = [path for path in folder.iterdir() if not _is_ignored(path.name)]
        return [_hook(path) for path in sorted(found, key=lambda path: path.name) if _is_executable(path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FolderRefused(f"{folder} cannot be read: {error.strerror}.") from error


def _hook(path: Path) -> Hook:
    word = system.unsafe_reason(path)
    # Names are reported as text, even if their bytes are not valid text.
    name = path.name.encode("utf-8", "replace").decode()
    return Hook(name, path, f"{name} is not run: it {word}." if word else "")


def _is_ignored(name: str) -> bool:
    return name.startswith(".") or name.endswith(_BACKUP_SUFFIXES)


def _is_executable(path: Path) -> bool:
    # Call `stat` first, because a broken link is not a file.
    return path.is_file() and system.is_program(path)
