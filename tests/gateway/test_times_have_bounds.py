"""What a machine with an odd clock says is kept, and its times are taken for what they can be."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from drydock_agent import wire

from fleet.domain.times import EARLIEST, LATEST
from fleet.gateway.decoder import Batch, read_batch
from fleet.gateway.limits import GatewayLimits
from fleet.gateway.readers import Clock
from fleet.operations.intake.keep import WRONG_CLOCK

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def batch(at: str, *, sent_at: str = "2026-03-02T12:00:00Z", kind: str = "weather", **data: Any) -> Batch:
    report = {"seq": 1, "kind": kind, "at": at, "data": data}
    raw = {"spool": "s", "sent_at": sent_at, "agent_version": "1", "reports": [report]}
    return read_batch(json.dumps(raw).encode(), received_at=NOW, limits=GatewayLimits())


@pytest.mark.parametrize(
    "at",
    [
        "2099-01-01T00:00:00Z",
        "2026-03-02T12:00:10Z",
        "9999-12-31T23:59:59-14:00",
        "0001-01-01T00:00:00+14:00",
        "0001-01-01T00:00:00",
        "1999-12-31T23:59:59Z",
    ],
)
def test_a_report_whose_time_cannot_be_right_counts_as_received_now_and_is_marked(at: str) -> None:
    (report,) = batch(at).reports
    assert report.at == NOW
    assert WRONG_CLOCK in report.kept_flag
    assert EARLIEST <= report.machine_at <= LATEST


def test_a_clock_that_is_off_all_the_time_is_corrected_and_not_marked() -> None:
    (report,) = batch("2037-03-02T11:59:50Z", sent_at="2037-03-02T12:00:00Z").reports
    assert (report.at, report.wrong_clock) == (NOW - timedelta(seconds=10), False)
    (report,) = batch("1970-01-01T00:00:50Z", sent_at="1970-01-01T00:01:00Z").reports
    assert (report.at, report.wrong_clock) == (NOW - timedelta(seconds=10), False)


def test_a_report_within_the_tolerance_is_never_later_than_now() -> None:
    (report,) = batch("2026-03-02T12:00:01Z").reports
    assert (report.at, report.wrong_clock) == (NOW, False)


@pytest.mark.parametrize("sent_at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_contact_with_an_impossible_clock_moves_no_report_out_of_bounds(sent_at: str) -> None:
    (report,) = batch("2026-03-02T11:00:00Z", sent_at=sent_at).reports
    assert (report.at, report.wrong_clock) == (NOW, True)


@pytest.mark.parametrize(("year", "counts_as"), [(1, None), (1970, None), (2027, NOW), (9999, NOW)])
def test_a_poll_in_the_future_counts_as_now_and_one_before_the_year_2000_for_nothing(
    year: int, counts_as: datetime | None
) -> None:
    clock = Clock.measured(sent_at=NOW, received_at=NOW, tolerance=2)
    assert clock.not_after(datetime(year, 6, 1, tzinfo=UTC), NOW) == counts_as


def test_an_answer_of_azure_is_not_lost_for_an_odd_time_in_its_receipt() -> None:
    (report,) = batch(
        "2026-03-02T11:00:00Z",
        kind="receipt",
        order_id="11111111-2222-3333-4444-555555555555",
        event_id="E",
        outcome="answered",
        attempted_at="0001-01-01T00:00:00+14:00",
    ).reports
    assert isinstance(report.data, wire.ReceiptData)
    assert report.data.attempted_at is None
