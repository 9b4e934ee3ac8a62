"""Drills on this machine: simulate the announcement, start and end of an event, and respond to orders instead of Azure.

This module has no client of the metadata service. The state of a drill is stored in the spool, so a drill continues
after a restart. It ends on schedule even if the backend is unreachable.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from drydock_agent import wire
from drydock_agent.clock import from_text, to_text
from drydock_agent.context import Context
from drydock_agent.spool.store import SpoolError

IDLE_SECONDS = 3600.0
# Seconds from the response to the status Started, as at Azure.
START_SECONDS = 2.0
# A drill whose end is this long ago is dropped: the agent was not running.
OVERDUE_SECONDS = 60.0

KEY = "rehearsal"

log = logging.getLogger("drydock_agent")


def is_drill(order: wire.Order) -> bool:
    """Return whether an order belongs to a drill. In doubt return True, so that the order cannot reach Azure."""
    return order.drill is not None or is_drill_id(order.event_id)


def is_drill_id(event_id: object) -> bool:
    """Return whether this event id belongs to a drill."""
    return str(event_id).strip().upper().startswith(wire.DRILL_PREFIX)


@dataclass(slots=True, frozen=True)
class SimulatedEvent:
    """The simulated event of a drill. Times are text by the backend's clock; `start_at` is empty until the event is
    approved.
    """

    id: str
    event: dict[str, Any]
    not_before: str
    duration_seconds: float
    start_at: str = ""
    started: bool = False

    @property
    def key(self) -> str:
        return str(self.event["EventId"]).lower()

    @property
    def starts(self) -> datetime:
        return min(_parsed_time(self.start_at or self.not_before), _parsed_time(self.not_before))

    @property
    def ends(self) -> datetime:
        return self.starts + timedelta(seconds=self.duration_seconds)


class Rehearsal:
    """The current drill and its state. `Orders` calls `carry_out` for each order of a drill, the poller calls
    `update_listed` with the real events, and `step` advances the drill on schedule.
    """

    name = "rehearsal"

    def __init__(self, context: Context, *, changed: Callable[[], None]) -> None:
        self.wake = threading.Event()
        # Set by the caller of `step`. Otherwise no event would start or end.
        self.running = False
        self._context = context
        self._changed = changed
        self._lock = threading.Lock()
        # Whether the newest document lists a real event.
        self._has_real_event = False
        self._current: SimulatedEvent | None = _from_text(context.spool.get(KEY))

    @property
    def is_active(self) -> bool:
        """True while a drill is in progress."""
        return self._current is not None

    def listed(self) -> dict[str, dict[str, Any]]:
        """Return the simulated event by its id in lower case, in the form of the metadata service. Empty without a
        drill.
        """
        simulated = self._current
        return {simulated.key: simulated.event} if simulated is not None else {}

    def update_listed(self, listed: Iterable[str]) -> None:
        """Record the ids of the events that the metadata service lists. Any real event ends the drill."""
        self._has_real_event = any(not is_drill_id(event_id) for event_id in listed)
        if self._has_real_event and self._current is not None:
            self.wake.set()

    def carry_out(self, order: wire.Order) -> str:
        """Carry out an order of a drill. Return an empty string, or the reason for refusing it. Raises `SpoolError`."""
        with self._lock:
            reason = self._refusal(order)
            if not reason:
                reason = self._apply(order, order.drill or {})
        self.wake.set()
        return reason

    def step(self) -> float:
        """Carry out the next step of the drill if it is due. Return 0 if one was due, else the seconds until the next
        check.
        """
        try:
            with self._lock:
                return self._pass_time()
        except SpoolError as error:
            self._context.limiter.warn("spool", f"The spool cannot be written, so the rehearsal waits: {error}.")
            return 1.0

    def interrupt(self) -> None:
        """Do nothing: no step blocks."""

    def _refusal(self, order: wire.Order) -> str:
        if order.drill is None or not is_drill_id(order.event_id):
            return "not-a-drill"
        if not order.machine_id or "step" not in order.drill:
            return "unreadable"
        if order.machine_id.lower() != self._context.machine_id.lower():
            return "wrong-machine"
        if order.expires_at is not None and self._context.server_clock.now() >= order.expires_at:
            return "expired"
        return ""

    def _apply(self, order: wire.Order, drill: dict[str, Any]) -> str:
        step, now = drill["step"], self._current
        if step == "rehearse":
            return self._begin(order, drill)
        mine = now is not None and now.key == order.event_id.strip().lower()
        if step == "cancel":
            if now is not None and mine:
                self._finish(now, "cancelled")
            return ""
        if step not in ("approve", "start"):
            return "unreadable"
        if now is None or not mine:
            return "not-listed"
        soon = self._context.server_clock.now() + timedelta(seconds=START_SECONDS)
        at = from_text(drill.get("at")) if step == "start" else soon
        if not now.start_at:
            self._save(replace(now, start_at=to_text(min(at or soon, soon))))
        return ""

    def _begin(self, order: wire.Order, drill: dict[str, Any]) -> str:
        simulated = self._read(order, drill)
        if simulated is None:
            return "unreadable"
        if not self.running:
            return "not-running"
        if self._has_real_event:
            return "real-event"
        if self._current is not None:
            return "" if self._current.id == order.id else "another-drill"
        log.info("Drill: event %s is simulated on this machine.", simulated.event["EventId"])
        self._report(simulated, "announced", keep=simulated)
        return ""

    def _read(self, order: wire.Order, drill: dict[str, Any]) -> SimulatedEvent | None:
        """Return the event that an order asks to simulate, or None if it is invalid or exceeds the limits."""
        event, seconds = drill.get("event"), drill.get("duration_seconds")
        not_before = from_text(drill.get("not_before"))
        if not isinstance(event, dict) or not_before is None or isinstance(seconds, bool):
            return None
        if not isinstance(seconds, int | float) or not 0 <= seconds <= wire.MAX_DRILL_DURATION_SECONDS:
            return None
        notice = (not_before - self._context.server_clock.now()).total_seconds()
        named = str(event.get("EventId") or "").strip().lower()
        if notice > wire.MAX_DRILL_NOTICE_SECONDS or named != order.event_id.strip().lower():
            return None
        # Always mark the event as a drill, also if the order does not.
        event = {**event, "EventId": order.event_id, "EventStatus": "Scheduled", "Drill": True}
        return SimulatedEvent(order.id, event, to_text(not_before), float(seconds))

    def _pass_time(self) -> float:
        simulated = self._current
        if simulated is None:
            return IDLE_SECONDS
        now = self._context.server_clock.now()
        if self._has_real_event:
            self._finish(simulated, "real-event")
        elif now >= simulated.ends + timedelta(seconds=OVERDUE_SECONDS):
            self._finish(simulated, "late")
        elif simulated.started and now >= simulated.ends:
            self._finish(simulated, "over")
        elif not simulated.started and now >= simulated.starts:
            event = {**simulated.event, "EventStatus": "Started", "NotBefore": ""}
            self._report(simulated, "started", keep=replace(simulated, event=event, started=True))
        else:
            due = (simulated.ends if simulated.started else simulated.starts) - now
            # The offset to the backend's clock may change meanwhile.
            return min(max(due.total_seconds(), 0.01), 1.0)
        return 0.0

    def _finish(self, simulated: SimulatedEvent, reason: str) -> None:
        log.info("The drill has ended on this machine: %s.", reason)
        self._report(simulated, "gone", reason=reason, keep=None)

    def _report(self, simulated: SimulatedEvent, step: str, *, keep: SimulatedEvent | None, reason: str = "") -> None:
        """Write a report about a step of the drill, and save the state `keep` (None: the drill has ended) in the same
        transaction.
        """
        data = wire.RehearsalData(
            rehearsal=simulated.id, event_id=str(simulated.event["EventId"]), step=step, reason=reason
        )
        self._context.spool.add(wire.REHEARSAL, self._context.clock.now(), asdict(data), remember={KEY: _to_text(keep)})
        self._current = keep
        self._changed()

    def _save(self, simulated: SimulatedEvent) -> None:
        self._context.spool.set(KEY, _to_text(simulated))
        self._current = simulated


def _parsed_time(text: str) -> datetime:
    at = from_text(text)
    if at is None:
        raise ValueError(f"no time: {text!r}")
    return at


def _to_text(simulated: SimulatedEvent | None) -> str:
    return json.dumps(asdict(simulated)) if simulated is not None else ""


def _from_text(text: str | None) -> SimulatedEvent | None:
    if not text:
        return None
    content = json.loads(text)
    known = {each.name for each in fields(SimulatedEvent)}
    return SimulatedEvent(**{name: value for name, value in content.items() if name in known})
