"""Enrolments that were refused: counted by reason and machine, in a table that no caller can fill."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Count

from fleet.models import RefusedEnrolment

LASTS = timedelta(days=7)
MOST = 200
# One caller leaves room for all others.
MOST_OF_AN_ADDRESS = 20
# In the order of their keys, so that processes never wait for each other in a circle.
KEEP = f"""
    INSERT INTO {RefusedEnrolment._meta.db_table} AS row
        (code, vm_id, name, address, reason, count, first_at, last_at)
    VALUES (%s, %s, %s, %s, %s::jsonb, %s, %s, %s)
    ON CONFLICT (code, vm_id) DO UPDATE SET
        count = row.count + EXCLUDED.count, last_at = GREATEST(row.last_at, EXCLUDED.last_at),
        name = EXCLUDED.name, address = EXCLUDED.address, reason = EXCLUDED.reason
"""


@dataclass(slots=True)
class RefusedCalls:
    """Calls of one machine, as it names itself, that were refused for one reason since they were written last."""

    name: str
    address: str
    # A `Reason` as JSON text.
    reason: str
    first_at: datetime
    last_at: datetime
    count: int = 0


@transaction.atomic
def keep(calls: Mapping[tuple[str, str], RefusedCalls], *, now: datetime) -> None:
    """Add these calls, by reason code and vmId, to what is kept. What finds no room is counted in one row a code."""
    rows = RefusedEnrolment.objects
    rows.filter(last_at__lt=now - LASTS).delete()
    known = set(rows.values_list("code", "vm_id"))
    by_address = dict(rows.exclude(vm_id="").values_list("address").annotate(Count("pk")).order_by())
    kept: dict[tuple[str, str], RefusedCalls] = {}
    for (code, vm_id), call in calls.items():
        full = len(known) >= MOST or by_address.get(call.address, 0) >= MOST_OF_AN_ADDRESS
        if (code, vm_id) in known or not full:
            known.add((code, vm_id))
            by_address[call.address] = by_address.get(call.address, 0) + 1
            _add(kept, (code, vm_id), call)
        else:
            _add(kept, (code, ""), replace(call, name="", address=""))
    with connection.cursor() as cursor:
        cursor.executemany(KEEP, [_values(key, kept[key]) for key in sorted(kept)])


def _add(kept: dict[tuple[str, str], RefusedCalls], key: tuple[str, str], call: RefusedCalls) -> None:
    before = kept.setdefault(key, call)
    if before is not call:
        before.count += call.count
        before.last_at = max(before.last_at, call.last_at)


def forget(vm_id: str) -> None:
    """This machine has enrolled: what was refused before is over."""
    RefusedEnrolment.objects.filter(vm_id=vm_id).delete()


def _values(key: tuple[str, str], call: RefusedCalls) -> tuple[Any, ...]:
    return (*key, call.name, call.address, call.reason, call.count, call.first_at, call.last_at)
