"""`/readyz` checks: each names its late part, and only a risk of loss or standstill degrades the status."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fleet.domain.db_timeouts import Connections
from fleet.gateway.probes import ProbeCache, Probes
from tests.loops import in_a_loop

WELL: dict[str, Any] = {"signing": "ok", "era": "ok"}
NO_ROOM = Connections({"web": 2}, 90, 8, 97)


def asked(found: ProbeCache, *, redis: bool = True) -> tuple[int, dict[str, Any]]:
    async def run(_: Any) -> ProbeCache:
        return found

    probes: Any = Probes.__new__(Probes)
    probes.threads, probes.agents = SimpleNamespace(run=run), SimpleNamespace(stopping=False)
    probes.wake_ups = SimpleNamespace(heard=redis)
    sent: list[Any] = []

    async def send(part: Any) -> None:
        sent.append(part)

    in_a_loop(probes.readyz(None, send))
    return sent[0]["status"], msgspec.json.decode(sent[1]["body"])


@pytest.mark.parametrize(
    ("found", "status", "said"),
    [
        ({}, "ok", {}),
        ({"late": ("fleet_entry", "fleet_message")}, "degraded", {"partitions_late": ["fleet_entry", "fleet_message"]}),
        # What cannot leave stays: nothing is lost by it.
        ({"notices": {"archive": "store-away"}}, "ok", {"archive": "store-away"}),
        ({"aside": {"event": 2}}, "ok", {"quarantined": {"event": 2}}),
        ({"unusable": {"channels_unreadable": 1}}, "degraded", {"channels_unreadable": 1}),
        ({"connections": NO_ROOM}, "degraded", {"connections": {"most": 98, "room": 97}}),
        ({"era": "not begun"}, "degraded", {"era": "not begun"}),
        ({"signing": "unreadable"}, "degraded", {"signing": "unreadable"}),
        ({"redis": "refuses writes"}, "degraded", {"redis": "refuses writes"}),
        ({"stalled": ("reconciling", "routing")}, "degraded", {"stalled": ["reconciling", "routing"]}),
        ({"skew": -600.04}, "degraded", {"clock": {"skew_seconds": -600.0}}),
    ],
)
def test_each_part_has_a_field_of_its_own(found: dict[str, Any], status: str, said: dict[str, Any]) -> None:
    whole = {"status": status, "database": "ok", "redis": "ok", **WELL, **said}
    assert asked(ProbeCache("ok", **(WELL | found))) == (200, whole)


def test_without_its_database_it_is_not_ready() -> None:
    assert asked(ProbeCache("away"))[0] == 503
    status, said = asked(ProbeCache("locked", locked=("fleet_scheduledevent",)))
    assert (status, said["tables_locked"]) == (503, ["fleet_scheduledevent"])
    status, said = asked(ProbeCache("full", full=("fleet_entry",)))
    assert (status, said["partitions_missing"]) == (503, ["fleet_entry"])
    assert asked(ProbeCache("ok", **WELL), redis=False)[1]["status"] == "degraded"


def test_however_many_ask_it_is_found_out_once() -> None:
    count = []

    async def run(_: Any) -> ProbeCache:
        count.append(1)
        await asyncio.sleep(0.05)
        return ProbeCache("ok", **WELL)

    async def send(_: Any) -> None:
        return

    async def ask() -> None:
        probes: Any = Probes.__new__(Probes)
        probes.threads, probes.agents = SimpleNamespace(run=run), SimpleNamespace(stopping=False)
        probes.wake_ups = SimpleNamespace(heard=True)
        await asyncio.gather(*(probes.readyz(None, send) for _ in range(200)))
        await probes.readyz(None, send)

    in_a_loop(ask())
    assert len(count) == 1
