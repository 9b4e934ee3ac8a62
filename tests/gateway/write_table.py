"""Writes `docs/dev/access/gateway.csv` as a real gateway answers now; `make access` runs it."""

from tests.access import table
from tests.gateway.access_calls import COLUMNS, GatewayCaller, calls
from tests.gateway_process import Gateway


def test_write(gateway: Gateway) -> None:
    caller = GatewayCaller(gateway)
    rows = {call: {column: caller.cell(*call, column) for column in COLUMNS} for call in calls()}
    table.write("gateway", rows, tuple(COLUMNS))
