"""Refused enrolments of this process: counted in memory, written every other second, whoever floods it."""

from __future__ import annotations

import json
import threading

from drydock_agent import wire

from fleet.domain.machines.entrance import stated_name
from fleet.domain.reason import Reason, as_json
from fleet.domain.refusal import Refused
from fleet.gateway import metrics
from fleet.gateway.loops import Loop
from fleet.operations import clock
from fleet.operations.machines import refusals
from fleet.operations.machines.refusals import RefusedCalls

PAUSE_SECONDS = 2.0
# Machines and reasons between two writes; what is beyond them is counted by its reason alone.
MOST = 500
MAX_ID = 200


class Refusals:
    """What was refused since it was written last."""

    def __init__(self) -> None:
        self.loop = Loop("refusals", self.write, pause=PAUSE_SECONDS)
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], RefusedCalls] = {}

    def note(self, request: wire.EnrolRequest, refused: Refused, address: str) -> None:
        """Count one refused enrolment. Nothing is asked of the database."""
        metrics.ENROLMENTS_REFUSED.labels(refused.code).inc()
        now = clock.now()
        reason = refused.reason if isinstance(refused.reason, Reason) else Reason("enrolment-refused")
        vm_id = request.machine_id.strip().lower()[:MAX_ID]
        with self._lock:
            key = (reason.code, vm_id)
            if key not in self._waiting and len(self._waiting) >= MOST:
                key = (reason.code, "")
            call = self._waiting.get(key)
            if call is None:
                name = stated_name(request.resource_name, request.instance or {}, vm_id) if key[1] else ""
                text = json.dumps(as_json(reason))
                call = RefusedCalls(name, address[:100] if key[1] else "", text, first_at=now, last_at=now)
                self._waiting[key] = call
            call.count += 1
            call.last_at = now

    def write(self) -> None:
        """Write what waits. While the database is away it waits on."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        try:
            refusals.keep(waiting, now=clock.now())
        except Exception:
            with self._lock:
                self._waiting = {**waiting, **self._waiting}
            raise
