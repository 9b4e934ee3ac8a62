"""`/readyz` says which part is not as it should be, and is degraded only by what will lose or stop something."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fleet.domain.connections import Connections
from fleet.gateway.probes import Asked, Probes
from tests.loops import in_a_loop

WELL: dict[str, Any] = {"signing": "ok", "era": "ok"}
NO_ROOM = Connections({"web": 2}, 90, 8, 97)


def asked(found: Asked, *, redis: bool = True) -> tuple[int, dict[str, Any]]:
    async def run(_: Any) -> Asked:
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
        ({"archive": "store-away"}, "ok", {"archive": "store-away"}),
        ({"aside": {"event": 2}}, "ok", {"set_aside": {"event": 2}}),
        ({"secrets": 1}, "degraded", {"channels_unreadable": 1}),
        ({"connections": NO_ROOM}, "degraded", {"connections": {"most": 98, "room": 97}}),
        ({"era": "not begun"}, "degraded", {"era": "not begun"}),
        ({"signing": "unreadable"}, "degraded", {"signing": "unreadable"}),
    ],
)
def test_each_part_has_a_field_of_its_own(found: dict[str, Any], status: str, said: dict[str, Any]) -> None:
    whole = {"status": status, "database": "ok", "redis": "ok", **WELL, **said}
    assert asked(Asked("ok", **(WELL | found))) == (200, whole)


def test_without_its_database_it_serves_nobody() -> None:
    assert asked(Asked("away"))[0] == 503
    assert asked(Asked("ok", **WELL), redis=False)[1]["status"] == "degraded"
