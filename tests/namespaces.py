"""Network namespaces for tests: an own loopback with addresses that a machine at Azure has, and programs inside."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence

TOOLS = ("ip", "nsenter", "unshare")


@functools.cache
def missing() -> str:
    """Why there can be no network namespace here; empty where there can."""
    without = [tool for tool in TOOLS if shutil.which(tool) is None]
    if without:
        return f"no network namespaces without {', '.join(without)} (Debian: iproute2 and util-linux)"
    tried = subprocess.run(
        [*_apart(), "ip", "link", "set", "lo", "up"], capture_output=True, text=True, check=False, timeout=20
    )
    return "" if tried.returncode == 0 else f"network namespaces are not allowed here: {tried.stderr.strip()}"


class Namespace:
    """One namespace, for the length of a `with` block; `neighbour` names another one that it can be wired to."""

    def __init__(self, *addresses: str, neighbour: Namespace | None = None) -> None:
        self._addresses = addresses
        self._neighbour = neighbour
        self._holder: subprocess.Popen[str]

    def __enter__(self) -> Namespace:
        begin = _apart() if self._neighbour is None else [*self._neighbour.command(), "unshare", "--net"]
        # It holds the namespace until its input is closed, which the end of this process does as well.
        self._holder = subprocess.Popen(
            [*begin, "sh", "-c", "echo ready; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"
        self.run("ip", "link", "set", "lo", "up")
        for address in self._addresses:
            self.run("ip", "address", "add", address, "dev", "lo")
        return self

    def __exit__(self, *error: object) -> None:
        assert self._holder.stdin is not None and self._holder.stdout is not None
        self._holder.stdin.close()
        self._holder.wait(10)
        self._holder.stdout.close()

    @property
    def pid(self) -> int:
        """Of the process that holds it."""
        return self._holder.pid

    def command(self, *command: str) -> list[str]:
        """The command line that runs `command` inside."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={self.pid}", *user, "--net", "--", *command]

    def run(
        self, *command: str, env: dict[str, str] | None = None, given: str | None = None, seconds: float = 60
    ) -> str:
        """Run `command` inside to its end; what it printed. AssertionError where it fails."""
        done = subprocess.run(
            self.command(*command), env=env, input=given, capture_output=True, text=True, check=False, timeout=seconds
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout


def _apart() -> Sequence[str]:
    # Without root rights one becomes root of a namespace of users first.
    return ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--net"]
