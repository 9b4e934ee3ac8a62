"""Export of read models as plain JSON values and CSV."""

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any, TypeVar
from uuid import UUID

from django.http import HttpResponse, StreamingHttpResponse

from fleet.domain.approvals.guards import Guard
from fleet.domain.reasons import Reason
from fleet.projections.timeline.entries import TimelineRow
from fleet.projections.visibility import without_names
from fleet.wording import times
from fleet.wording.say import recorded, say
from fleet.wording.times import API

A = TypeVar("A", HttpResponse, StreamingHttpResponse)
# A spreadsheet evaluates a cell that begins with one of these as a formula.
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def exported(value: Any) -> Any:
    """Return dataclasses as JSON objects without `internal` fields. Times are in RFC 3339 and UTC; reasons and entries
    have the same text as in the API. Names of hidden sets in guards are removed.
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
    """Return the cell changed so that a spreadsheet never reads it as a formula."""
    return f"'{cell}" if cell.startswith(FORMULAS) else cell


def csv_line(cells: Iterable[Any]) -> str:
    """Return one line of CSV. A spreadsheet reads no cell of it as a formula."""
    line = io.StringIO()
    csv.writer(line).writerow([defused(_text(cell)) for cell in cells])
    return line.getvalue()


def _text(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def csv_file(name: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> StreamingHttpResponse:
    """Return a response that downloads a CSV file `name` with these columns and rows."""
    lines = map(csv_line, chain([columns], rows))
    return named(StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8"), f"{name}.csv")


def named(answer: A, name: str) -> A:
    """Return the response as a download with this file name."""
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
