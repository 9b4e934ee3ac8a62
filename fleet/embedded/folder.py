"""Data folder of embedded servers: lock for one user at a time, short socket paths, and removal of leftover servers."""

import fcntl
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class ServerProblem(Exception):
    """Raised if the servers are not available; the text is one sentence for the user who started them."""


# A socket's whole path fits into 107 bytes on Linux and 103 elsewhere; this leaves room for the file's name.
LONGEST_FOLDER = 80
TEMPORARY = "drydock-servers-"
LEFTOVER_SECONDS = 10.0
LOCK = "in-use-by"
PLAIN_PATH = re.compile(r"[A-Za-z0-9._/-]+")


@contextmanager
def held(folder: Path) -> Iterator[Path]:
    """Create the folder and lock it against other processes inside the block. Yield its absolute path. Raises
    ServerProblem.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder.resolve()
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ServerProblem(f"Cannot write to the folder {folder}: {error.strerror}.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 20).decode(errors="replace").strip()
            raise ServerProblem(
                f"The folder {path} is in use by process {owner or 'unknown'}; stop it first."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield path
    finally:
        os.close(descriptor)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder for servers with temporary data. Also remove earlier such folders whose process was killed."""
    for left in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
        if is_abandoned(left):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=TEMPORARY))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_abandoned(folder: Path) -> bool:
    """Return whether the folder belongs to this user, is older than a minute, and is locked by no process."""
    try:
        found = folder.stat()
        if found.st_uid != os.geteuid() or time.time() - found.st_mtime < 60:
            return False
        with (folder / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def short_path(folder: Path) -> Iterator[Path]:
    """Yield the folder, or a link to it if its path is too long or has characters that a socket or URL does not
    allow.
    """
    if len(os.fsencode(folder)) <= LONGEST_FOLDER and PLAIN_PATH.fullmatch(str(folder)):
        yield folder
        return
    home = Path(tempfile.mkdtemp(prefix="drydock-link-"))
    link = home / "s"
    link.symlink_to(folder)
    try:
        yield link
    finally:
        link.unlink(missing_ok=True)
        home.rmdir()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # A child of ours that ended but was not waited for is not running.
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def stop_leftover(pid_file: Path, program: str, *, first: signal.Signals) -> None:
    """Stop the server that an earlier, killed process left running in this folder. Do nothing if the process in
    `pid_file` is not `program`. `first` is the first signal to send.
    """
    try:
        pid = int(pid_file.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return
    if not is_running(pid):
        return
    if works_elsewhere(pid, pid_file.parent):
        # The folder is a copy of one in use: the process is that one's server, and ours would not start with its file
        # present.
        pid_file.unlink()
        return
    if not runs(pid, program):
        return
    with suppress(ProcessLookupError):
        os.kill(pid, first)
        deadline = time.monotonic() + LEFTOVER_SECONDS
        while is_running(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                deadline += LEFTOVER_SECONDS
            time.sleep(0.02)


def works_elsewhere(pid: int, folder: Path) -> bool:
    """Return whether the process certainly works in another folder. Embedded servers start in their data folder."""
    try:
        return not Path(f"/proc/{pid}/cwd").samefile(folder)
    except OSError:
        return False


def runs(pid: int, program: str) -> bool:
    """Return whether the process is certainly this program. Its number may have been reused, so the answer in doubt is
    False.
    """
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith(program)
    except OSError:
        return False
