"""A drill on this machine: it pretends that an event was announced, lets it start and end, and answers for Azure.

Nothing here knows the metadata service: there is no client of it in this file, and none is handed in. Where it stands
is kept in the spool, so that a restart goes on; it ends by itself, also when nobody is heard any more.
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
# From the answer to Started, as Azure takes a moment, too.
START_SECONDS = 2.0
# So long after its end it is too late to pretend anything: the agent was away.
LATE_SECONDS = 60.0

KEY = "rehearsal"

log = logging.getLogger("drydock_agent")


def is_drill(order: wire.Order) -> bool:
    """Whether an order belongs to a rehearsal. In doubt it does: then it cannot reach Azure."""
    return order.drill is not None or is_drill_id(order.event_id)


def is_drill_id(event_id: object) -> bool:
    """Whether an event of this id is a drill's."""
    return str(event_id).strip().upper().startswith(wire.DRILL_PREFIX)


@dataclass(slots=True, frozen=True)
class Pretended:
    """What is rehearsed. Times are the backend's, as text; `start_at` is empty as long as nobody approved it."""

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
        return min(_time(self.start_at or self.not_before), _time(self.not_before))

    @property
    def ends(self) -> datetime:
        return self.starts + timedelta(seconds=self.duration_seconds)


class Rehearsal:
    """`carry_out` is called by whoever carries out orders, `saw` by whoever reads documents; `step` lets time pass."""

    name = "rehearsal"

    def __init__(self, context: Context, *, changed: Callable[[], None]) -> None:
        self.wake = threading.Event()
        # Set by who runs `step`: without that nothing would ever start or end.
        self.running = False
        self._context = context
        self._changed = changed
        self._lock = threading.Lock()
        # Whether the newest document lists anything real.
        self._real = False
        self._now: Pretended | None = _remembered(context.spool.get(KEY))

    @property
    def busy(self) -> bool:
        """Whether something is pretended now."""
        return self._now is not None

    def listed(self) -> dict[str, dict[str, Any]]:
        """The event that is pretended, as a document would list it, by its id in lower case."""
        pretended = self._now
        return {pretended.key: pretended.event} if pretended is not None else {}

    def saw(self, listed: Iterable[str]) -> None:
        """Note the ids of the events that a readable document lists: whatever is real ends the rehearsal."""
        self._real = any(not is_drill_id(event_id) for event_id in listed)
        if self._real and self._now is not None:
            self.wake.set()

    def carry_out(self, order: wire.Order) -> str:
        """Do what a drill's order says. Empty, or the reason for which it is refused. Raises `SpoolError`."""
        with self._lock:
            reason = self._refused(order)
            if not reason:
                reason = self._do(order, order.drill or {})
        self.wake.set()
        return reason

    def step(self) -> float:
        """What is due. 0 when something was, else the seconds until it looks again."""
        try:
            with self._lock:
                return self._pass_time()
        except SpoolError as error:
            self._context.limiter.warn("spool", f"The spool cannot be written, so the rehearsal waits: {error}.")
            return 1.0

    def interrupt(self) -> None:
        """Nothing here lasts."""

    def _refused(self, order: wire.Order) -> str:
        if order.drill is None or not is_drill_id(order.event_id):
            return "not-a-drill"
        if not order.machine_id or "step" not in order.drill:
            return "unreadable"
        if order.machine_id.lower() != self._context.machine_id.lower():
            return "wrong-machine"
        if order.expires_at is not None and self._context.server_clock.now() >= order.expires_at:
            return "expired"
        return ""

    def _do(self, order: wire.Order, drill: dict[str, Any]) -> str:
        step, now = drill["step"], self._now
        if step == "rehearse":
            return self._begin(order, drill)
        mine = now is not None and now.key == order.event_id.strip().lower()
        if step == "cancel":
            if now is not None and mine:
                self._over(now, "cancelled")
            return ""
        if step not in ("approve", "start"):
            return "unreadable"
        if now is None or not mine:
            return "not-listed"
        soon = self._context.server_clock.now() + timedelta(seconds=START_SECONDS)
        at = from_text(drill.get("at")) if step == "start" else soon
        if not now.start_at:
            self._keep(replace(now, start_at=to_text(min(at or soon, soon))))
        return ""

    def _begin(self, order: wire.Order, drill: dict[str, Any]) -> str:
        pretended = self._read(order, drill)
        if pretended is None:
            return "unreadable"
        if not self.running:
            return "not-running"
        if self._real:
            return "real-event"
        if self._now is not None:
            return "" if self._now.id == order.id else "another-drill"
        log.info("A drill: event %s is pretended here.", pretended.event["EventId"])
        self._tell(pretended, "announced", keep=pretended)
        return ""

    def _read(self, order: wire.Order, drill: dict[str, Any]) -> Pretended | None:
        """What an order asks to pretend; None where it cannot be read, or goes beyond the bounds."""
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
        # Whatever else was sent: it says of itself that it is a drill.
        event = {**event, "EventId": order.event_id, "EventStatus": "Scheduled", "Drill": True}
        return Pretended(order.id, event, to_text(not_before), float(seconds))

    def _pass_time(self) -> float:
        pretended = self._now
        if pretended is None:
            return IDLE_SECONDS
        now = self._context.server_clock.now()
        if self._real:
            self._over(pretended, "real-event")
        elif now >= pretended.ends + timedelta(seconds=LATE_SECONDS):
            self._over(pretended, "late")
        elif pretended.started and now >= pretended.ends:
            self._over(pretended, "over")
        elif not pretended.started and now >= pretended.starts:
            event = {**pretended.event, "EventStatus": "Started", "NotBefore": ""}
            self._tell(pretended, "started", keep=replace(pretended, event=event, started=True))
        else:
            due = (pretended.ends if pretended.started else pretended.starts) - now
            # The backend's clock may be measured anew in the meantime.
            return min(max(due.total_seconds(), 0.01), 1.0)
        return 0.0

    def _over(self, pretended: Pretended, reason: str) -> None:
        log.info("The drill is over here: %s.", reason)
        self._tell(pretended, "gone", reason=reason, keep=None)

    def _tell(self, pretended: Pretended, step: str, *, keep: Pretended | None, reason: str = "") -> None:
        """Report a step and keep where it stands, in one transaction."""
        data = wire.RehearsalData(
            rehearsal=pretended.id, event_id=str(pretended.event["EventId"]), step=step, reason=reason
        )
        self._context.spool.add(wire.REHEARSAL, self._context.clock.now(), asdict(data), remember={KEY: _text(keep)})
        self._now = keep
        self._changed()

    def _keep(self, pretended: Pretended) -> None:
        self._context.spool.set(KEY, _text(pretended))
        self._now = pretended


def _time(text: str) -> datetime:
    at = from_text(text)
    if at is None:
        raise ValueError(f"no time: {text!r}")
    return at


def _text(pretended: Pretended | None) -> str:
    return json.dumps(asdict(pretended)) if pretended is not None else ""


def _remembered(text: str | None) -> Pretended | None:
    if not text:
        return None
    content = json.loads(text)
    known = {each.name for each in fields(Pretended)}
    return Pretended(**{name: value for name, value in content.items() if name in known})
