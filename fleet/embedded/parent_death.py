"""Starts a program that ends with its parent, even when the parent is killed and can clean up nothing.

Run as a script (`bound` builds the command): it switches to another user if requested, asks the kernel for a signal at
its parent's death, and becomes the program. The request outlives `exec`, and none of it runs between `fork` and `exec`
of a process with threads. It is bound to the *thread* that starts it: start long-lived programs from the main thread.

Only Linux supports this request. Elsewhere the program is started without it, and a program left after a kill is
stopped at the next start on the same folder.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def bound(
    command: Sequence[str], *, death_signal: signal.Signals = signal.SIGKILL, user: tuple[int, int] | None = None
) -> list[str]:
    """The command that runs `command` so that it ends with this process.

    `death_signal` is the signal at the parent's death; `user` is (uid, gid) to become, for root only. To be started by
    this very process, since it is the parent meant.
    """
    uid, gid = user or (-1, -1)
    # Isolated and without site: nothing of the environment or of the installation slows or bends the start.
    child = [str(os.getpid()), str(int(death_signal)), str(uid), str(gid), *command]
    return [sys.executable, "-I", "-S", __file__, *child]


def end_with_parent(death_signal: int) -> None:
    """Has the kernel send this process a signal when its parent dies. Does nothing where the kernel cannot."""
    if (
        sys.platform == "linux"
        and ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0
    ):
        raise OSError(ctypes.get_errno(), "prctl")


def become(parent: int, death_signal: int, uid: int, gid: int, command: list[str]) -> None:
    """Replaces this process and does not return."""
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    # After the change of user, which would take the wish away.
    end_with_parent(death_signal)
    # The parent may have died before the wish was made.
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
