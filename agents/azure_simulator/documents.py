"""Scheduled events documents as machines see them, by api-version.

Sources: "Scheduled Events for Linux VMs in Azure" (Microsoft, 01/25/2023), table of versions; for the underscore the
same page for Windows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from azure_simulator.azure import STARTED, Event
from azure_simulator.clock import rfc1123

_ALWAYS = ("Freeze", "Reboot", "Redeploy")


@dataclass(frozen=True, slots=True)
class Version:
    """Fields and requirements of one api-version of `/metadata/scheduledevents`."""

    event_types: tuple[str, ...]
    extra_fields: tuple[str, ...] = ()
    underscored: bool = False
    header_enforced: bool = True


VERSIONS: dict[str, Version] = {
    "2017-03-01": Version(_ALWAYS, underscored=True, header_enforced=False),
    "2017-08-01": Version(_ALWAYS),
    "2017-11-01": Version((*_ALWAYS, "Preempt")),
    "2019-01-01": Version((*_ALWAYS, "Preempt", "Terminate")),
    "2019-04-01": Version((*_ALWAYS, "Preempt", "Terminate"), ("Description",)),
    "2019-08-01": Version((*_ALWAYS, "Preempt", "Terminate"), ("Description", "EventSource")),
    "2020-07-01": Version((*_ALWAYS, "Preempt", "Terminate"), ("Description", "EventSource", "DurationInSeconds")),
    # Preview.
    "2024-07-09": Version(
        (*_ALWAYS, "Preempt", "Terminate", "SpotRebalanceRecommendation"),
        ("Description", "EventSource", "DurationInSeconds"),
    ),
}


def rendered_events(events: Iterable[Event], version: Version) -> list[dict[str, Any]]:
    """Return the `Events` array of a document. Events whose type this version does not know are omitted."""
    return [_rendered(event, version) for event in events if event.event_type in version.event_types]


def document(incarnation: int, events: list[dict[str, Any]]) -> bytes:
    """Return the whole document as UTF-8 JSON."""
    return encoded({"DocumentIncarnation": incarnation, "Events": events})


def encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _rendered(event: Event, version: Version) -> dict[str, Any]:
    # Old versions put an underscore before the names of IaaS VMs, but not of cloud service role instances.
    prefix = "_" if version.underscored and event.set.kind != "cloud_service" else ""
    rendered: dict[str, Any] = {
        "EventId": event.event_id,
        "EventStatus": event.status,
        "EventType": event.event_type,
        "ResourceType": "VirtualMachine",
        "Resources": [prefix + name for name in event.resources],
        "NotBefore": "" if event.status == STARTED else rfc1123(event.not_before),
    }
    extra = {
        "Description": event.description,
        "EventSource": event.source,
        "DurationInSeconds": event.duration_seconds,
    }
    rendered.update((name, extra[name]) for name in version.extra_fields)
    return rendered
