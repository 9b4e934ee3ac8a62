"""Hooks for scheduled events. The phase `prepare` runs some time before an event that names this machine, and `recover`
when the event is no longer listed.

Only valid documents count. The newest list is compared with the progress in the spool: a boot alone runs no hook, and a
phase that a restart interrupted is completed.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from drydock_agent import wire
from drydock_agent.clock import boot, from_text, to_text
from drydock_agent.context import Context
from drydock_agent.drills import is_drill_id
from drydock_agent.hooks.environment import environment
from drydock_agent.hooks.folder import FolderRefused, Hook, list_hooks
from drydock_agent.hooks.progress import (
    FAILED,
    NOTHING,
    OUTPUT_CHARACTERS,
    PLANNED,
    RUNNING,
    Event,
    Memory,
    Progress,
    any_real_event_names,
    events_in,
    memory_from_text,
    names,
    next_due,
    prepare_at,
    reported_steps,
    started,
)
from drydock_agent.lazy_import import LazyImport

if TYPE_CHECKING:
    from drydock_agent.hooks import process
else:
    process = LazyImport("drydock_agent.hooks.process")

IDLE_SECONDS = 3600.0
# How often to check for the machine's name while it is unknown.
NAME_CHECK_SECONDS = 60.0
RETRY_SECONDS = 1.0
# How often to compare planned times with the clocks, which may be changed.
PLAN_CHECK_SECONDS = 10.0

log = logging.getLogger("drydock_agent")


class EventHooks:
    """Runs the hooks for scheduled events. `update_listed` may be called from any thread; `step` runs hooks in its own
    thread.
    """

    name = "hooks"

    def __init__(
        self,
        context: Context,
        *,
        resource_name: Callable[[], str],
        rehearsed: Callable[[], dict[str, Event]] = dict,
        this_boot: Callable[[], str] = boot,
    ) -> None:
        self.wake = threading.Event()
        self._context = context
        self._folder = context.settings.hooks_dir
        self._timeout = context.settings.hook_timeout_seconds
        self._outbox = context.outbox()
        self._resource_name = resource_name
        self._drill_receipt = rehearsed
        self._stopping = threading.Event()
        # Set while a real event names this machine: the hooks of a drill are then ended.
        self._preempted = threading.Event()
        self._lock = threading.Lock()
        # Events of the newest document; None before the first of this run.
        self._listed: dict[str, Event] | None = None
        # The last listing of each event since the last step, including events that are gone.
        self._listings: dict[str, Event] = {}
        self._boot = this_boot()
        self._memory: Memory = memory_from_text(context.spool.get("hooks"))
        self._saved_text = self._memory.to_text()
        # Set when the backend may have lost reports.
        self._again = threading.Event()
        self._to_resume = any(progress.running for progress in self._memory.events.values())
        # Events whose start the backend has decided; None if the backend does not report decisions.
        self._decided: set[str] | None = set()

    def update_listed(self, body: bytes) -> None:
        """Record the events in a valid document. Returns at once."""
        listed = events_in(body)
        with self._lock:
            self._listed = listed
            self._listings.update(listed)
        if any_real_event_names(listed, self._memory.resource_name):
            self._preempted.set()
        else:
            self._preempted.clear()
        self.wake.set()

    def prepare_now(self, event_ids: Collection[str] | None) -> None:
        """Prepare for these events at once, because their start is decided. With None, the backend does not report
        decisions, and nothing is planned for later. May be called from any thread.
        """
        with self._lock:
            known = self._decided
            ids = None if event_ids is None else {event_id.lower() for event_id in event_ids}
            self._decided = ids if ids is None or known is None else known | ids
            news = self._decided != known
        if news:
            self.wake.set()

    def resend(self) -> None:
        """Report the prepare phase of each current event again, because the backend may have lost it."""
        self._again.set()
        self.wake.set()

    def step(self) -> float:
        """Run one hook, or begin or end one phase. Return 0 if something was due, else the seconds until the next
        check.
        """
        with self._lock:
            listed, listings = self._listed, self._listings
            self._listings = {}
        if listed is None:
            return IDLE_SECONDS
        rehearsed = self._drill_receipt()
        listed, listings = {**rehearsed, **listed}, {**rehearsed, **listings}
        self._note(listings)
        if self._to_resume:
            self._resume()
        if self._again.is_set():
            self._again.clear()
            self._report_again(listed)
        waits = self._plan(listed)
        due = next_due(self._memory, listed, waits)
        if due is None:
            self._keep()
            if self._outbox.waits:
                return RETRY_SECONDS
            idle = IDLE_SECONDS if self._memory.resource_name else NAME_CHECK_SECONDS
            return min([idle, *(min(seconds, PLAN_CHECK_SECONDS) for seconds in waits.values())])
        key, phase = due
        progress = self._memory.events.get(key)
        if progress is None or progress.ended:
            self._begin(key, phase, listed)
        else:
            self._continue(key, progress, listed)
        return 0.0

    def interrupt(self) -> None:
        """Stop the hook in progress. The next run of the agent treats it as interrupted."""
        self._stopping.set()

    def _note(self, listings: dict[str, Event]) -> None:
        self._memory.resource_name = self._resource_name() or self._memory.resource_name
        if listings and not self._memory.resource_name:
            self._context.limiter.warn(
                "hooks name", "This machine's resource name is not known yet, so no hook is run."
            )
        for key, progress in self._memory.events.items():
            progress.event = listings.get(key, progress.event)

    def _plan(self, listed: Mapping[str, Event]) -> dict[str, float]:
        """Return the seconds until the prepare phase of each event that is not due yet. Report new and moved plans."""
        with self._lock:
            if self._decided is not None:
                self._decided &= listed.keys()
            decided = self._decided
        # The later of the two clocks: a machine should rather prepare too early than too late.
        now = max(self._context.clock.now(), self._context.server_clock.now())
        waits: dict[str, float] = {}
        for key, event in listed.items():
            at = prepare_at(event, self._context.settings.prepare_minutes)
            if at is None or at <= now or decided is None or key in decided or key in self._memory.events:
                continue
            if names(event, self._memory.resource_name) and (key in self._memory.plans or self._has_prepare_hooks()):
                waits[key] = (at - now).total_seconds()
                if self._memory.plans.get(key) != to_text(at):
                    self._memory.plans[key] = to_text(at)
                    log.info("Event %s: prepare is planned for %s.", event["EventId"], to_text(at))
                    self._report_plan(str(event["EventId"]), to_text(at))
        self._memory.plans = {key: text for key, text in self._memory.plans.items() if key in waits}
        return waits

    def _has_prepare_hooks(self) -> bool:
        """Return whether there is anything to plan. An empty or refused folder is reported at once."""
        try:
            return bool(list_hooks(self._folder, wire.PREPARE))
        except FolderRefused:
            return False

    def _resume(self) -> None:
        """Run the hooks again that were interrupted when the agent stopped. A hook counts as failed instead if the
        machine has rebooted since, or if the hook was interrupted before.
        """
        self._to_resume = False
        for progress in self._memory.events.values():
            hook = progress.running
            if not hook:
                continue
            process.end_leftovers(progress.run, self._context.hook_record(progress.run))
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
        if phase == wire.PREPARE or progress is None:
            progress = self._memory.events[key] = Progress(listed[key], late=started(listed[key]))
        else:
            progress.phase, progress.ended, progress.done, progress.interrupted = wire.RECOVER, False, {}, []
        try:
            hooks = list_hooks(self._folder, phase)
        except FolderRefused as error:
            progress.done[""] = FAILED
            self._end(key, progress, str(error))
            return
        if not hooks:
            self._end(key, progress, "")
            return
        log.info("Event %s: %s begins.", progress.event_id, phase)
        if phase == wire.PREPARE:
            progress.began_at = to_text(self._context.clock.now())
        self._report(progress, "begin", RUNNING)

    def _continue(self, key: str, progress: Progress, listed: dict[str, Event]) -> None:
        try:
            waiting = [hook for hook in list_hooks(self._folder, progress.phase) if hook.name not in progress.done]
        except FolderRefused as error:
            progress.done[""] = FAILED
            self._end(key, progress, str(error))
            return
        if waiting and progress.phase == wire.PREPARE and key not in listed:
            # The event is gone and recover follows, so the remaining hooks are skipped.
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
            ended = process.HookResult(FAILED, None, 0.0, hook.refused)
        else:
            # Recorded before the start, so that a crash does not hide that the hook may have run.
            progress.running, progress.run, progress.boot = hook.name, uuid.uuid4().hex, self._boot
            self._keep()
            ended = process.run(
                hook.command(),
                environment=environment(self._variables(progress, listed)),
                stdin=(json.dumps(progress.event) + "\n").encode(),
                timeout=self._timeout,
                stopping=self._stopping,
                preempted=self._preempted if is_drill_id(progress.event_id) else None,
                record=self._context.hook_record(progress.run),
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
        if progress.phase == wire.PREPARE:
            progress.ended, progress.prepared = True, outcome
            progress.ended_at = to_text(self._context.clock.now())
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

    def _variables(self, progress: Progress, listed: dict[str, Event]) -> dict[str, object]:
        event, name = progress.event, self._memory.resource_name
        given = event.get("Resources")
        others = [
            str(other["EventId"])
            for key, other in listed.items()
            # A drill must not keep the machine out of service.
            if key != progress.event_id.lower() and names(other, name) and not is_drill_id(key)
        ]
        return {
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
            "MACHINE_ID": self._context.machine_id,
            "HOOK_TIMEOUT_SECONDS": f"{self._timeout:g}",
            "RUN": progress.run,
        }

    def _report(self, progress: Progress, step: str, outcome: str, **more: Any) -> None:
        data = wire.HookData(
            event_id=progress.event_id,
            phase=progress.phase,
            step=step,
            outcome=outcome,
            late=progress.late,
            **more,
        )
        self._outbox.add(wire.HOOK, self._context.clock.now(), asdict(data))
        self._keep()

    def _report_plan(self, event_id: str, planned_at: str, *, again: bool = False) -> None:
        data = wire.HookData(event_id=event_id, phase=wire.PREPARE, step="plan", outcome=PLANNED, again=again)
        self._outbox.add(wire.HOOK, self._context.clock.now(), {**asdict(data), "planned_at": planned_at})

    def _report_again(self, listed: Mapping[str, Event]) -> None:
        """Write earlier reports again, with their original times. Drills are omitted."""
        now = self._context.clock.now()
        for key, progress in self._memory.events.items():
            if is_drill_id(key):
                continue
            for step, outcome, hook, at in reported_steps(progress):
                data = wire.HookData(
                    event_id=progress.event_id,
                    phase=wire.PREPARE,
                    step=step,
                    outcome=outcome,
                    hook=hook,
                    late=progress.late,
                    again=True,
                )
                self._outbox.add(wire.HOOK, from_text(at) or now, asdict(data))
        for key, planned_at in self._memory.plans.items():
            if key in listed and not is_drill_id(key):
                self._report_plan(str(listed[key]["EventId"]), planned_at, again=True)
        self._keep()

    def _keep(self) -> None:
        """Write reports and progress to the spool in one transaction; a failed write is retried later.

        Hooks run even if the write fails, because preparation is more urgent than its record.
        """
        text = self._memory.to_text()
        reports = self._outbox.waits
        if self._outbox.write({"hooks": text}) and (
            reports or text == self._saved_text or self._outbox.keep("hooks", text)
        ):
            self._saved_text = text
