"""Fields of `POST /control/events`, and their defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from azure_simulator.azure import EVENT_TYPES, SCHEDULED, SOURCES, STARTED, Azure, Event
from azure_simulator.clock import rfc1123, rfc3339
from azure_simulator.fleet import FleetError, MachineSet

# Microsoft's documented minimum notice, in seconds; for Preempt none is promised, half a minute is usual.
NOTICE_SECONDS = {"Freeze": 900.0, "Reboot": 900.0, "Redeploy": 600.0, "Preempt": 30.0, "Terminate": 300.0}
NOTICE_SECONDS["SpotRebalanceRecommendation"] = 900.0

# At Azure an event is Started for about ten minutes. That is too long for a demo.
STARTED_SECONDS = 20.0

_LIVE_MIGRATION = "Virtual machine is being paused because of a memory-preserving Live Migration operation."
DESCRIPTIONS = {
    ("Freeze", "Platform"): _LIVE_MIGRATION,
    ("Reboot", "Platform"): "Host server is undergoing maintenance.",
    ("Redeploy", "Platform"): "Host server is undergoing maintenance.",
    ("Reboot", "User"): "Virtual machine is going to be restarted as requested by authorized user.",
    ("Redeploy", "User"): "Virtual machine is going to be redeployed as requested by authorized user.",
}
FAILURE_DESCRIPTION = "Virtual machine has encountered a failure."

_GUID = re.compile(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}")
_KNOWN = {
    "set", "type", "resources", "notice_seconds", "duration_seconds", "source", "description", "starts_as",
    "started_seconds", "event_id", "back_after_seconds", "os_upgrade",
}  # fmt: skip


class RefusedError(Exception):
    """A control call cannot be carried out. `status` is the HTTP status of the response."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


# Announced by one call.
MOST_AT_ONCE = 20_000


def announce_all(azure: Azure, body: Mapping[str, Any], now: datetime) -> list[Event]:
    """Create several events from the fields in `body`, spread evenly over `within_seconds`. Raises RefusedError if one
    of them is refused; the earlier ones then remain.
    """
    only(body, {"events", "within_seconds"})
    wanted = body["events"]
    if not isinstance(wanted, list) or not all(isinstance(one, dict) for one in wanted) or len(wanted) > MOST_AT_ONCE:
        raise RefusedError(400, f"events: expected a list of up to {MOST_AT_ONCE} objects")
    pause = number(body, "within_seconds", default=0, least=0) / max(1, len(wanted))
    return [announce(azure, one, now, after_seconds=place * pause) for place, one in enumerate(wanted)]


def announce(azure: Azure, body: Mapping[str, Any], now: datetime, *, after_seconds: float = 0) -> Event:
    """Create one event from the fields in `body`, announced `after_seconds` from now. Raises RefusedError."""
    only(body, _KNOWN)
    in_set = find_set(azure, body)
    event_type = one_of(body, "type", EVENT_TYPES)
    source = one_of(body, "source", SOURCES, default="Platform")
    starts_as = one_of(body, "starts_as", (SCHEDULED, STARTED), default=SCHEDULED)
    failed = starts_as == STARTED and source == "Platform" and event_type in ("Reboot", "Redeploy")
    description = FAILURE_DESCRIPTION if failed else DESCRIPTIONS.get((event_type, source), "")
    duration = number(body, "duration_seconds", default=5 if event_type == "Freeze" else -1, least=-1)
    if duration != int(duration):
        raise RefusedError(400, "duration_seconds: must be whole seconds")
    event_id = text(body, "event_id", default="").upper()
    if event_id and not _GUID.fullmatch(event_id):
        raise RefusedError(400, "event_id: must be a GUID")
    if event_id and azure.find(event_id) is not None:
        raise RefusedError(409, f"there has been an event {event_id} already")
    least = NOTICE_SECONDS[event_type]
    if event_type == "Terminate" and in_set.terminate_notice_seconds is not None:
        least = float(in_set.terminate_notice_seconds)
    notice = number(body, "notice_seconds", default=least, least=0)
    started = number(body, "started_seconds", default=max(STARTED_SECONDS, duration + 10), least=0)
    resources = _resources(body, in_set)
    if body.get("os_upgrade") is True:
        _refuse_unannounced_upgrade(in_set, resources)
    return azure.create(
        now=now,
        in_set=in_set,
        event_type=event_type,
        resources=resources,
        notice_seconds=notice,
        duration_seconds=int(duration),
        started_seconds=started,
        source=source,
        description=text(body, "description", default=description),
        starts_as=starts_as,
        event_id=event_id,
        back_after_seconds=optional_number(body, "back_after_seconds", least=0),
        after_seconds=after_seconds,
    )


def shown(event: Event) -> dict[str, Any]:
    """Return one event with its whole history, for `GET /control/events`."""
    return {
        "EventId": event.event_id,
        "set": event.set.name,
        "set_key": event.set.key,
        "type": event.event_type,
        "status": event.status,
        "resources": list(event.resources),
        "source": event.source,
        "description": event.description,
        "duration_seconds": event.duration_seconds,
        "started_seconds": event.started_seconds,
        "not_before": rfc1123(event.not_before),
        "created_at": rfc3339(event.created_at),
        "scheduled_at": rfc3339(event.scheduled_at),
        "started_at": rfc3339(event.started_at),
        "started_by": event.started_by,
        "ended_at": rfc3339(event.ended_at),
        "ended_as": event.ended_as,
        "impacts": [{"time": rfc3339(impact.at), "seconds": impact.seconds} for impact in event.impacts],
        "approvals": [{"vm": approval.vm, "time": rfc3339(approval.at)} for approval in event.approvals],
    }


def find_set(azure: Azure, body: Mapping[str, Any]) -> MachineSet:
    """Return the machine set that `body` names. Raises RefusedError."""
    try:
        return azure.fleet.find_set(text(body, "set"))
    except FleetError as error:
        raise RefusedError(400, f"set: {error}") from error


def _resources(body: Mapping[str, Any], in_set: MachineSet) -> tuple[str, ...]:
    names = body.get("resources")
    if names is None:
        # Machines of one update domain at most, as at Azure.
        domain = in_set.machines[0].update_domain
        return tuple(m.name for m in in_set.machines if m.update_domain == domain)
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise RefusedError(400, "resources: expected a list of resource names")
    of_set = {machine.name.lower(): machine.name for machine in in_set.machines}
    unknown = [name for name in names if name.lower() not in of_set]
    if unknown:
        raise RefusedError(
            400, f"resources: {in_set.name} has no {', '.join(unknown)}; it has {', '.join(of_set.values())}"
        )
    return tuple(of_set[name.lower()] for name in names)


# Series of sizes for which upgrades and reimages of the operating system are never announced.
_WITHOUT_UPGRADE_EVENTS = re.compile(r"(?:standard_|basic_)?[gmnh][a-z]*\d", re.IGNORECASE)


def _refuse_unannounced_upgrade(in_set: MachineSet, resources: tuple[str, ...]) -> None:
    """Raise RefusedError if Azure would not announce an upgrade of the operating system for these machines."""
    if not in_set.upgrades_announced:
        raise RefusedError(409, f"os_upgrade: OSImageNotificationProfile of {in_set.name} is not enabled")
    never = [m.name for m in in_set.machines if m.name in resources and _WITHOUT_UPGRADE_EVENTS.match(m.size)]
    if never:
        raise RefusedError(409, f"os_upgrade: sizes of the series G, M, N and H get no such event: {', '.join(never)}")


def only(body: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(body) - known)
    if unknown:
        raise RefusedError(400, f"does not know {', '.join(unknown)}; it knows {', '.join(sorted(known))}")


def text(body: Mapping[str, Any], key: str, *, default: str | None = None) -> str:
    value = body.get(key, default)
    if not isinstance(value, str) or (not value and default is None):
        raise RefusedError(400, f"{key}: expected text")
    return value


def one_of(body: Mapping[str, Any], key: str, allowed: tuple[str, ...], *, default: str | None = None) -> str:
    value = text(body, key, default=default)
    for choice in allowed:
        if value.lower() == choice.lower():
            return choice
    raise RefusedError(400, f"{key}: {value!r} is none of {', '.join(allowed)}")


def optional_number(body: Mapping[str, Any], key: str, *, least: float = -1e10) -> float | None:
    """Return the number `body[key]`, or None if it is absent. Raises RefusedError if it is less than `least`."""
    return None if body.get(key) is None else number(body, key, default=0, least=least)


def number(body: Mapping[str, Any], key: str, *, default: float, least: float) -> float:
    value = body.get(key, default)
    # `abs` also keeps out what is not finite: JSON as Python reads it knows NaN and Infinity.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e10:
        raise RefusedError(400, f"{key}: expected a number")
    if value < least:
        raise RefusedError(400, f"{key}: must be at least {least:g}")
    return float(value)
