"""Starts a program that ends with its parent process, even if the parent is killed.

When run as a script (`bound` builds the command), it switches to another user if requested, asks the kernel for a
signal at its parent's death, and executes the program. The request survives `exec`, and no code runs between `fork` and
`exec` of a process with threads. The signal depends on the *thread* that starts the program, so start long-lived
programs in the main thread.

Only Linux supports this. On other systems the program starts without it, and a program left behind is stopped at the
next start in the same folder.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def bound(
    command: Sequence[str], *, death_signal: signal.Signals = signal.SIGKILL, user: tuple[int, int] | None = None
) -> list[str]:
    """Return a command that runs `command` so that it ends when this process ends.

    `death_signal` is the signal at the parent's death; `user` is the (uid, gid) to switch to, for root only. Start the
    command from this process, because it watches this process as its parent.
    """
    uid, gid = user or (-1, -1)
    # Isolated and without site: nothing of the environment or of the installation slows or bends the start.
    child = [str(os.getpid()), str(int(death_signal)), str(uid), str(gid), *command]
    return [sys.executable, "-I", "-S", __file__, *child]


def end_with_parent(death_signal: int) -> None:
    """Ask the kernel to send this process a signal when its parent dies. Does nothing if the kernel does not support
    it.
    """
    if (
        sys.platform == "linux"
        and ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0
    ):
        raise OSError(ctypes.get_errno(), "prctl")


def become(parent: int, death_signal: int, uid: int, gid: int, command: list[str]) -> None:
    """Switch to the user and execute `command` in this process. Does not return. `parent` is the process id of the
    expected parent.
    """
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    # After the change of user, because that would cancel the request to the kernel.
    end_with_parent(death_signal)
    # The parent may have died before the kernel received the request.
    if os.getppid() != parent:
        raise SystemExit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        # 127 is a shell's status for a program that is not available.
        sys.stderr.write(f"Cannot run {command[0]}: {error.strerror}.\n")
        raise SystemExit(127) from None


if __name__ == "__main__":
    parent, death_signal, uid, gid = (int(word) for word in sys.argv[1:5])
    become(parent, death_signal, uid, gid, sys.argv[5:])
