"""Faults of the connection between a machine and the metadata service.

A fault applies to the requests of one machine. It ends after `count` requests or after `seconds`.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

# Stage of a request at which a fault applies. At most one fault of the first stage applies; it replaces or delays the
# response.
TRANSPORT = "transport"
VERSION = "version"
INCARNATION = "incarnation"
DOCUMENT = "document"
APPROVAL = "approval"
# Faults of `/metadata/instance` only; scheduled events still work.
INSTANCE = "instance"
# Faults of `/metadata/attested/document`: missing or forged.
ATTESTED = "attested"

STAGES = {
    "empty": TRANSPORT,
    "garbage": TRANSPORT,
    "cut-short": TRANSPORT,
    "status-403": TRANSPORT,
    "status-404": TRANSPORT,
    "status-410": TRANSPORT,
    "status-429": TRANSPORT,
    "status-500": TRANSPORT,
    "status-503": TRANSPORT,
    "hang": TRANSPORT,
    "reset": TRANSPORT,
    "slow": TRANSPORT,
    "late-answer": TRANSPORT,
    "lagging-cloud": VERSION,
    "incarnation-jump": INCARNATION,
    "incarnation-reset": INCARNATION,
    "raw-newline": DOCUMENT,
    "wrong-weekday": DOCUMENT,
    "no-not-before": DOCUMENT,
    "iso-dates": DOCUMENT,
    "numbers-as-text": DOCUMENT,
    "fields-missing": DOCUMENT,
    "fields-unknown": DOCUMENT,
    "type-unknown": DOCUMENT,
    "status-unknown": DOCUMENT,
    "resource-type-unknown": DOCUMENT,
    "resources-unknown": DOCUMENT,
    "resources-none": DOCUMENT,
    "tenants-delay": APPROVAL,
    "instance-403": INSTANCE,
    "instance-404": INSTANCE,
    "instance-408": INSTANCE,
    "instance-410": INSTANCE,
    "instance-429": INSTANCE,
    "instance-500": INSTANCE,
    "instance-503": INSTANCE,
    "instance-hang": INSTANCE,
    "instance-empty": INSTANCE,
    "instance-garbage": INSTANCE,
    "instance-error": INSTANCE,
    "instance-no-compute": INSTANCE,
    "instance-no-vm-id": INSTANCE,
    "instance-partial": INSTANCE,
    "instance-blank": INSTANCE,
    "instance-wants-extended": INSTANCE,
    "attested-404": ATTESTED,
    "attested-500": ATTESTED,
    "attested-altered": ATTESTED,
    "attested-expired": ATTESTED,
    "attested-foreign-root": ATTESTED,
    "attested-old-nonce": ATTESTED,
    "attested-other-subscription": ATTESTED,
    "attested-other-vm": ATTESTED,
    "attested-wrong-subject": ATTESTED,
}

# Seconds, unless the fault states `delay_seconds`.
DEFAULT_DELAYS = {"slow": 3.0, "late-answer": 3.0, "hang": 300.0, "instance-hang": 300.0, "tenants-delay": 30.0}


@dataclass(slots=True)
class Fault:
    """One fault of one machine. `remaining` is the number of requests left, None for no limit. `until` is the end, None
    for no end.
    """

    name: str
    vm: str
    remaining: int | None
    until: datetime | None
    delay_seconds: float
    method: str
    # For a cloud with older software: newest supported version, whether rejections list the versions, and their status.
    newest: str = ""
    names: bool = True
    status: int = 400

    def shown(self) -> dict[str, Any]:
        return {"fault": self.name, "vm": self.vm, "remaining": self.remaining, "delay_seconds": self.delay_seconds}


class Faults:
    """The active faults of all machines."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Fault]] = {}

    def add(
        self,
        name: str,
        vms: Iterable[str],
        *,
        now: datetime,
        count: int | None = None,
        seconds: float | None = None,
        delay_seconds: float | None = None,
        method: str = "",
        newest: str = "",
        names: bool = True,
        status: int = 400,
    ) -> list[Fault]:
        """Add a fault to each of these machines. Without `count` and `seconds` it applies to one request."""
        if count is None and seconds is None:
            count = 1
        until = None if seconds is None else now + timedelta(seconds=seconds)
        delay = DEFAULT_DELAYS.get(name, 0.0) if delay_seconds is None else delay_seconds
        added = [Fault(name, vm, count, until, delay, method, newest, names, status) for vm in vms]
        for fault in added:
            self._waiting.setdefault(fault.vm, []).append(fault)
        return added

    def clear(self, vms: Iterable[str]) -> None:
        for vm in vms:
            self._waiting.pop(vm, None)

    def newest_version(self, vm: str, now: datetime) -> str:
        """Return the newest api-version that this machine's cloud supports, or an empty string if it supports all. This
        does not use up the fault.
        """
        lagging = (fault for fault in self._waiting.get(vm, ()) if STAGES[fault.name] == VERSION)
        return next((fault.newest for fault in lagging if fault.until is None or now < fault.until), "")

    def waiting(self) -> list[Fault]:
        return [fault for faults in self._waiting.values() for fault in faults]

    def take(self, vm: str, stage: str, method: str, now: datetime) -> list[Fault]:
        """Return the faults that apply to this request at this stage, and reduce the remaining count of each."""
        waiting = self._waiting.get(vm)
        if not waiting:
            return []
        alive = [fault for fault in waiting if fault.until is None or now < fault.until]
        bite = [fault for fault in alive if STAGES[fault.name] == stage and fault.method in ("", method)]
        if stage == TRANSPORT:
            bite = bite[:1]
        for fault in bite:
            if fault.remaining is not None:
                fault.remaining -= 1
        left = [fault for fault in alive if fault.remaining != 0]
        if left:
            self._waiting[vm] = left
        else:
            del self._waiting[vm]
        return bite


_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

Rendered = list[dict[str, Any]]


def _newline_in_description(events: Rendered) -> None:
    for event in events:
        if "Description" in event:
            event["Description"] += "\n"


def _next_weekday(events: Rendered) -> None:
    for event in events:
        match = re.match(r"(\w{3}), ", event.get("NotBefore", ""))
        if match:
            wrong = _WEEKDAYS[(_WEEKDAYS.index(match[1]) + 1) % 7]
            event["NotBefore"] = wrong + event["NotBefore"][3:]


def _without_not_before(events: Rendered) -> None:
    for event in events:
        event.pop("NotBefore", None)


def _iso_dates(events: Rendered) -> None:
    for event in events:
        if event.get("NotBefore"):
            event["NotBefore"] = email.utils.parsedate_to_datetime(event["NotBefore"]).strftime("%Y-%m-%dT%H:%M:%SZ")


def _numbers_as_text(events: Rendered) -> None:
    for event in events:
        if "DurationInSeconds" in event:
            event["DurationInSeconds"] = str(event["DurationInSeconds"])


def _only_the_id(events: Rendered) -> None:
    for event in events:
        for name in set(event) - {"EventId"}:
            del event[name]


def _says(name: str, value: Any) -> Callable[[Rendered], None]:
    def change(events: Rendered) -> None:
        for event in events:
            event[name] = value

    return change


DOCUMENT_FAULTS: dict[str, Callable[[Rendered], None]] = {
    "raw-newline": _newline_in_description,
    "wrong-weekday": _next_weekday,
    "no-not-before": _without_not_before,
    "iso-dates": _iso_dates,
    "numbers-as-text": _numbers_as_text,
    "fields-missing": _only_the_id,
    "fields-unknown": _says("ImpactLevel", {"Network": "Low"}),
    "type-unknown": _says("EventType", "Relocate"),
    "status-unknown": _says("EventStatus", "Paused"),
    "resource-type-unknown": _says("ResourceType", "DedicatedHost"),
    "resources-unknown": _says("Resources", ["nobody-knows-me"]),
    "resources-none": _says("Resources", []),
}


# Fields that a partial answer still has, and fields that a blank one leaves empty.
_IN_PART = ("azEnvironment", "name", "osType", "resourceGroupName", "vmId")
_BLANK = ("location", "placementGroupId", "platformFaultDomain", "platformUpdateDomain", "tags", "vmScaleSetName")


def spoilt_instance(name: str, whole: dict[str, Any]) -> dict[str, Any]:
    """Return the instance metadata, changed by the fault `name` (`instance-…`)."""
    compute = whole.get("compute")
    if name == "instance-error":
        return {"error": "not found"}
    if name == "instance-no-compute" or compute is None:
        return {part: value for part, value in whole.items() if part != "compute"}
    if name == "instance-no-vm-id":
        changed = {key: value for key, value in compute.items() if key != "vmId"}
    elif name == "instance-blank":
        changed = compute | dict.fromkeys((*_BLANK, "vmSize", "zone"), "") | {"tagsList": []}
    else:
        return {"compute": {key: compute[key] for key in _IN_PART if key in compute}}
    return {**whole, "compute": changed}


def with_raw_newlines(body: bytes) -> bytes:
    """Return JSON in which newlines in strings are not escaped, as Azure has sometimes sent it."""
    return body.replace(b"\\n", b"\n")
