"""Projections as plain JSON values, and cells of CSV files."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import StreamingHttpResponse

from fleet.domain.approvals.guards import Guard
from fleet.domain.reasons import Reason
from fleet.projections.timeline.entries import TimelineRow
from fleet.projections.visibility import without_names
from fleet.wording import times
from fleet.wording.say import recorded, say
from fleet.wording.times import API

# A spreadsheet evaluates a cell that begins with one of these as a formula.
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def exported(value: Any) -> Any:
    """Return dataclasses as objects without `internal` fields, times as RFC 3339 in UTC, and reasons and entries as the
    API words them. Guards contain no hidden names.
    """
    if isinstance(value, Reason):
        return say(value, API)
    if isinstance(value, TimelineRow):
        value = replace(value, text=recorded(value))
    if isinstance(value, Guard):
        value = replace(value, values=without_names(dict(value.values)))
    if is_dataclass(value) and not isinstance(value, type):
        shown = [field.name for field in fields(value) if not field.metadata.get("internal")]
        return {name: exported(getattr(value, name)) for name in shown}
    if isinstance(value, datetime):
        return times.iso(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {str(key): exported(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [exported(item) for item in value]
    return value


def defused(cell: str) -> str:
    """Return the cell so that a spreadsheet reads it as text, whatever it begins with."""
    return f"'{cell}" if cell.startswith(FORMULAS) else cell


def csv_file(name: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> StreamingHttpResponse:
    """Return a CSV file of this name for download."""

    def lines() -> Iterator[str]:
        buffer = io.StringIO()
        csv.writer(buffer).writerows([columns, *([defused(text) for text in row] for row in rows)])
        yield buffer.getvalue()

    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return StreamingHttpResponse(lines(), content_type="text/csv; charset=utf-8", headers=headers)
