"""Runs the owner's hooks: prepare when an event that names this machine appears, recover when it is listed no more.

Only a document that could be read counts. What the newest one lists is compared with what this machine has done, and
that is kept in the spool: so nothing happens on boot alone, and what was begun before a restart is ended after it.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import wire
from .clock import Clock
from .document import Document
from .hooks_folder import FolderRefused, Hook, hooks_of
from .hooks_state import (
    FAILED,
    NOTHING,
    OUTPUT_CHARACTERS,
    PREPARE,
    RECOVER,
    RUNNING,
    Event,
    Memory,
    Progress,
    boot,
    events_of,
    memory_of,
    names,
    next_due,
    real_names,
    started,
)
from .late import Late
from .quiet import Quiet
from .rehearsal import is_drill_id
from .spool import Spool, SpoolError

if TYPE_CHECKING:
    from . import hooks_process as process
else:
    process = Late(f"{__package__}.hooks_process")

IDLE_SECONDS = 3600.0
# How often it looks whether the machine's name has become known.
NAMELESS_SECONDS = 60.0
RETRY_SECONDS = 1.0
# Reports kept in memory while the disk cannot be written.
UNWRITTEN = 1000
# No system takes a longer variable from everybody.
VARIABLE_CHARACTERS = 30000

log = logging.getLogger("drydock_agent")


class Hooks:
    """`saw` is called by whoever reads documents, from any thread; `step` runs one hook in a thread of its own."""

    name = "hooks"

    def __init__(
        self,
        *,
        folder: Path,
        timeout: float,
        machine_id: str,
        resource_name: Callable[[], str],
        spool: Spool,
        clock: Clock,
        quiet: Quiet,
        reported: Callable[[], None],
        rehearsed: Callable[[], dict[str, Event]] = dict,
        this_boot: Callable[[], str] = boot,
    ) -> None:
        self.wake = threading.Event()
        self._folder = folder
        self._timeout = timeout
        self._machine_id = machine_id
        self._resource_name = resource_name
        self._spool = spool
        self._clock = clock
        self._quiet = quiet
        self._reported = reported
        self._rehearsed = rehearsed
        self._stopping = threading.Event()
        # Set as long as something real names this machine: a drill's hooks make way.
        self._make_way = threading.Event()
        self._lock = threading.Lock()
        # What the newest document lists; None before the first of this run.
        self._listed: dict[str, Event] | None = None
        # The newest word on each event since the last step, also of those that are gone again.
        self._words: dict[str, Event] = {}
        self._unwritten: deque[tuple[datetime, dict[str, Any]]] = deque(maxlen=UNWRITTEN)
        self._boot = this_boot()
        self._memory: Memory = memory_of(spool.get("hooks"))
        self._kept = self._memory.to_text()
        self._to_resume = any(progress.running for progress in self._memory.events.values())

    def saw(self, document: Document) -> None:
        """Note what a readable document lists. Returns at once."""
        listed = events_of(document.body)
        with self._lock:
            self._listed = listed
            self._words.update(listed)
        if real_names(listed, self._memory.resource_name):
            self._make_way.set()
        else:
            self._make_way.clear()
        self.wake.set()

    def step(self) -> float:
        """One hook, or one move between phases. 0 when it found some, else the seconds until it looks again."""
        with self._lock:
            listed, words = self._listed, self._words
            self._words = {}
        if listed is None:
            return IDLE_SECONDS
        rehearsed = self._rehearsed()
        listed, words = {**rehearsed, **listed}, {**rehearsed, **words}
        self._note(words)
        if self._to_resume:
            self._resume()
        due = next_due(self._memory, listed)
        if due is None:
            self._keep()
            if self._unwritten:
                return RETRY_SECONDS
            return IDLE_SECONDS if self._memory.resource_name else NAMELESS_SECONDS
        key, phase = due
        progress = self._memory.events.get(key)
        if progress is None or progress.ended:
            self._begin(key, phase, listed)
        else:
            self._go_on(key, progress, listed)
        return 0.0

    def interrupt(self) -> None:
        """End the hook in progress, for good: the next run of the agent finds that it was cut off."""
        self._stopping.set()

    def _note(self, words: dict[str, Event]) -> None:
        self._memory.resource_name = self._resource_name() or self._memory.resource_name
        if words and not self._memory.resource_name:
            self._quiet.warn("hooks name", "This machine's resource name is not known yet, so no hook is run.")
        for key, progress in self._memory.events.items():
            progress.event = words.get(key, progress.event)

    def _resume(self) -> None:
        """A hook that was cut off is run once more, unless the machine went down with it."""
        self._to_resume = False
        for progress in self._memory.events.values():
            hook = progress.running
            if not hook:
                continue
            process.end_leftovers(f"DRYDOCK_RUN={progress.run}")
            again = progress.boot == self._boot != "" and hook not in progress.interrupted
            progress.interrupted.append(hook)
            progress.running = ""
            if again:
                sentence = f"The agent stopped while {hook} ran; it is run again."
            else:
                # A hook that takes the machine down would do so at each boot.
                progress.done[hook] = FAILED
                sentence = f"The agent stopped while {hook} ran; it is not run again."
            self._report(progress, "hook", FAILED, hook=hook, output=sentence)

    def _begin(self, key: str, phase: str, listed: dict[str, Event]) -> None:
        progress = self._memory.events.get(key)
        if phase == PREPARE or progress is None:
            progress = self._memory.events[key] = Progress(listed[key], late=started(listed[key]))
        else:
            progress.phase, progress.ended, progress.done, progress.interrupted = RECOVER, False, {}, []
        try:
            hooks = hooks_of(self._folder, phase)
        except FolderRefused as error:
            progress.done[""] = FAILED
            self._end(key, progress, str(error))
            return
        if not hooks:
            self._end(key, progress, "")
            return
        log.info("Event %s: %s begins.", progress.event_id, phase)
        self._report(progress, "begin", RUNNING)

    def _go_on(self, key: str, progress: Progress, listed: dict[str, Event]) -> None:
        try:
            waiting = [hook for hook in hooks_of(self._folder, progress.phase) if hook.name not in progress.done]
        except FolderRefused as error:
            progress.done[""] = FAILED
            self._end(key, progress, str(error))
            return
        if waiting and progress.phase == PREPARE and key not in listed:
            # What was done is undone now; to do more of it would be in vain.
            progress.done[""] = FAILED
            left_out = ", ".join(hook.name for hook in waiting)
            self._end(key, progress, f"The event was gone before all had run. Not run: {left_out}.")
        elif waiting:
            self._run(progress, waiting[0], listed)
        else:
            self._end(key, progress, "")

    def _run(self, progress: Progress, hook: Hook, listed: dict[str, Event]) -> None:
        if hook.refused:
            log.warning("%s", hook.refused)
            ended = process.Ended(FAILED, None, 0.0, hook.refused)
        else:
            # Written down before it is started: after a crash it is known that it may have done something.
            progress.running, progress.run, progress.boot = hook.name, uuid.uuid4().hex, self._boot
            self._keep()
            ended = process.run(
                hook.command(),
                environment=self._environment(progress, listed),
                given=(json.dumps(progress.event) + "\n").encode(),
                timeout=self._timeout,
                stopping=self._stopping,
                make_way=self._make_way if is_drill_id(progress.event_id) else None,
            )
        progress.running = ""
        progress.done[hook.name] = ended.outcome
        log.info("Event %s: %s %s %s.", progress.event_id, progress.phase, hook.name, ended.outcome)
        self._report(
            progress,
            "hook",
            ended.outcome,
            hook=hook.name,
            exit_status=ended.exit_status,
            seconds=round(ended.seconds, 3),
            output=ended.output,
        )

    def _end(self, key: str, progress: Progress, sentence: str) -> None:
        outcome = progress.outcome()
        nothing_at_all = outcome == progress.prepared == NOTHING
        if progress.phase == PREPARE:
            progress.ended, progress.prepared = True, outcome
        else:
            del self._memory.events[key]
        if nothing_at_all:
            self._keep()
        else:
            log.info(
                "Event %s: %s ended, %s%s.",
                progress.event_id,
                progress.phase,
                outcome,
                f" ({sentence})" if sentence else "",
            )
            self._report(progress, "end", outcome, output=sentence[:OUTPUT_CHARACTERS])

    def _environment(self, progress: Progress, listed: dict[str, Event]) -> dict[str, str]:
        event, name = progress.event, self._memory.resource_name
        given = event.get("Resources")
        others = [
            str(other["EventId"])
            for key, other in listed.items()
            # A drill keeps nobody from going back to work.
            if key != progress.event_id.lower() and names(other, name) and not is_drill_id(key)
        ]
        values: dict[str, object] = {
            "PHASE": progress.phase,
            "DRILL": "1" if is_drill_id(progress.event_id) else "0",
            "LATE": "1" if progress.late else "0",
            "PREPARED": progress.prepared,
            "OTHER_EVENTS": ",".join(others),
            "EVENT_ID": progress.event_id,
            "EVENT_TYPE": event.get("EventType"),
            "EVENT_STATUS": event.get("EventStatus"),
            "EVENT_SOURCE": event.get("EventSource"),
            "NOT_BEFORE": event.get("NotBefore"),
            "DURATION_SECONDS": event.get("DurationInSeconds"),
            "DESCRIPTION": event.get("Description"),
            "RESOURCE_TYPE": event.get("ResourceType"),
            "RESOURCES": ",".join(str(each) for each in given) if isinstance(given, list) else given,
            "RESOURCE_NAME": name,
            "MACHINE_ID": self._machine_id,
            "HOOK_TIMEOUT_SECONDS": f"{self._timeout:g}",
            "RUN": progress.run,
        }
        # The agent's own settings hold a secret, and are no business of a hook.
        inherited = {each: value for each, value in os.environ.items() if not each.upper().startswith("DRYDOCK_")}
        return {**inherited, **{f"DRYDOCK_{each}": variable_of(value) for each, value in values.items()}}

    def _report(self, progress: Progress, step: str, outcome: str, **more: Any) -> None:
        data = wire.HookData(
            event_id=progress.event_id,
            phase=progress.phase,
            step=step,
            outcome=outcome,
            late=progress.late,
            **more,
        )
        self._unwritten.append((self._clock.now(), asdict(data)))
        self._keep()

    def _keep(self) -> None:
        """Write the reports and the memory down together; where that fails they are kept, and tried again."""
        text = self._memory.to_text()
        wrote = False
        try:
            while self._unwritten:
                at, data = self._unwritten[0]
                self._spool.add(wire.HOOK, at, data, remember={"hooks": text})
                self._unwritten.popleft()
                self._kept = text
                wrote = True
            if text != self._kept:
                self._spool.set("hooks", text)
                self._kept = text
        except SpoolError as error:
            # Preparing is more urgent than the record of it: hooks go on.
            self._quiet.warn("spool", f"The spool cannot be written: {error}.")
        if wrote:
            self._reported()


def variable_of(value: object) -> str:
    """What a hook is given for a value of any kind."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
    # What JSON allows in a text, and no variable does.
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:VARIABLE_CHARACTERS]
