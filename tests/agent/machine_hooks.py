"""A machine with hooks for tests: a folder of real executables, and poller and hooks stepped by hand."""

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from drydock_agent import wire
from drydock_agent.clock import boot
from drydock_agent.hooks.events import EventHooks
from drydock_agent.metadata_service.client import Imds
from drydock_agent.metadata_service.scheduled_events import ScheduledEvents
from drydock_agent.spool.store import Spool

from tests.agent.agents import SteppedClock, context_of


def executable(path: Path, script: str, *, head: str = "#!/bin/sh\n", mode: int = 0o755) -> Path:
    """Write a program, in a new folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head}{script}\n", encoding="utf-8")
    path.chmod(mode)
    return path


class HookFolder:
    """A hooks folder. Each hook writes `<phase> <name> <event id>` into `ran` and then does what its script says."""

    def __init__(self, root: Path) -> None:
        self.root = root / "hooks"
        self.ran = root / "ran"
        self.root.mkdir()

    def add(self, phase: str, name: str, script: str = "", *, mode: int = 0o755) -> Path:
        note = f'echo "$DRYDOCK_PHASE {name} $DRYDOCK_EVENT_ID" >> "{self.ran}"'
        return executable(self.root / f"{phase}.d" / name, f"{note}\n{script}", mode=mode)

    def lines(self) -> list[str]:
        """What ran, in order."""
        return self.ran.read_text("utf-8").splitlines() if self.ran.exists() else []


def begun(pid_file: Path) -> bool:
    return pid_file.exists() and pid_file.read_text().strip() != ""


def in_short(reports: Iterable[dict[str, Any]]) -> list[str]:
    """Reports of hooks, such as `prepare hook 10-a succeeded`."""
    return [" ".join(filter(None, (data[field] for field in ("phase", "step", "hook", "outcome")))) for data in reports]


def alive(pid_file: Path) -> bool:
    """Whether the process whose id the file holds runs; one that has ended and was not yet taken note of does not."""
    try:
        return Path(f"/proc/{pid_file.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Machine:
    """web-vm1: a poller and hooks against the simulator, with a real spool that outlives it."""

    def __init__(
        self,
        folder: Path,
        root: Path,
        imds_url: str,
        clock: SteppedClock,
        *,
        name: str = "web-vm1",
        timeout: float = 10.0,
        boot: Callable[[], str] = boot,
        **settings: Any,
    ) -> None:
        self.clock = clock
        # The simulator announces events by the real time.
        clock.wall = max(clock.wall, datetime.now(timezone.utc))
        self.spool = Spool(folder / "spool.sqlite3")
        self.context = context = context_of(self.spool, clock, hooks_dir=root, hook_timeout_seconds=timeout, **settings)
        self.imds = Imds(imds_url)
        self.hooks = EventHooks(context, resource_name=lambda: name, this_boot=boot)
        self.poller = ScheduledEvents(
            context, imds=self.imds, on_document=lambda document: self.hooks.update_listed(document.body)
        )

    def poll(self) -> None:
        """A second passes, and the metadata service is asked once."""
        self.clock.advance(1)
        self.poller.step()

    def look(self) -> None:
        """One poll, and everything that follows from it."""
        self.poll()
        self.work()

    def work(self) -> None:
        while self.hooks.step() == 0.0:
            pass

    def reports(self) -> list[dict[str, Any]]:
        batch = self.spool.batch(200, 1 << 30)
        return [json.loads(report.data) for report in batch if report.kind == wire.HOOK]

    def said(self) -> list[str]:
        return in_short(self.reports())

    def close(self) -> None:
        self.spool.close()
        self.imds.close()
