"""Reports about caches at the gateway: what cannot be taken is refused by itself, with a reason."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from drydock_agent import wire

from fleet.gateway.decoder import Batch, read_batch

AT = "2021-10-20T16:21:39Z"


def batch(kind: str, data: dict[str, Any]) -> Batch:
    report = {"seq": 1, "kind": kind, "at": AT, "data": data}
    raw = json.dumps({"spool": "s", "sent_at": AT, "reports": [report]}).encode()
    return read_batch(raw, received_at=datetime(2021, 10, 20, 16, 21, 39, tzinfo=UTC))


HOOK = {"cache": "c", "notification_type": "x", "hook": "10-a", "outcome": "succeeded"}
PRINTED = {"hook": "10-a", "outcome": "failed", "exit_status": 3, "seconds": 0.2}


@pytest.mark.parametrize(
    ("kind", "data", "taken"),
    [
        # The host in lower case, and the last of what a hook printed.
        ("redis", {"cache": " C.Redis.NET. ", "raw": "|a|b"}, wire.RedisData(cache="c.redis.net", raw="|a|b")),
        (
            "coverage",
            {"cache": "c", "state": "subscribed", "tier": "Premium", "divisor": 3},
            wire.CoverageData(cache="c", state="subscribed", tier="premium", divisor=3),
        ),
        (
            "redis_hook",
            {"cache": "C.", "notification_type": "x" * 300, "output": "a" + "b" * 4000, **PRINTED},
            wire.RedisHookData(cache="c", notification_type="x" * 200, output="b" * 4000, **PRINTED),  # type: ignore[arg-type]
        ),
    ],
)
def test_a_report_is_taken_as_it_is_meant(kind: str, data: dict[str, Any], taken: object) -> None:
    (report,) = batch(kind, data).reports
    assert (report.data, report.flag) == (taken, "")


def test_long_line_is_cut_and_marked_as_cut() -> None:
    (report,) = batch("redis", {"cache": "c", "raw": "x" * 20_000}).reports
    assert (len(report.data.raw), report.data.cut) == (16_000, True)
    coded = base64.b64encode(b"\xff" * 20_000).decode()
    (report,) = batch("redis", {"cache": "c", "raw": coded, "encoding": "base64"}).reports
    assert (len(base64.b64decode(report.data.raw)), report.data.cut) == (16_000, True)


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("redis", {"cache": "", "raw": "x"}, "host name"),
        ("redis", {"cache": "a b", "raw": "x"}, "host name"),
        ("redis", {"cache": "c"}, "raw"),
        ("redis", {"cache": "c", "raw": "x", "encoding": "latin-1"}, "encoding"),
        ("redis", {"cache": "c", "raw": "?", "encoding": "base64"}, "not valid base64"),
        ("coverage", {"cache": "c", "state": "listening"}, "state"),
        ("coverage", {"cache": "c", "state": "lost", "divisor": 0}, "divisor"),
        ("redis_hook", {**HOOK, "cache": ""}, "host name"),
        ("redis_hook", {**HOOK, "outcome": "running"}, "outcome"),
        ("redis_hook", {**HOOK, "exit_status": 2**40}, "exit_status"),
        ("redis_hook", {**HOOK, "hook": None}, "hook"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(kind: str, data: dict[str, Any], reason: str) -> None:
    found = batch(kind, data)
    assert found.reports == []
    assert reason in found.refused[0][1]
