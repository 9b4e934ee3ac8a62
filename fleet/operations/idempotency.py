"""Stored answers for repeated requests: the same `Idempotency-Key` and request get the same answer, and run once."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User

from fleet.domain.texts import storable
from fleet.models import StoredAnswer, driver
from fleet.operations.timeline.entries import gathered

# How long an answer is kept, and how many old ones a new key removes.
KEPT = timedelta(hours=24)
REMOVED = 100
NEW = f"""
    INSERT INTO {StoredAnswer._meta.db_table} (user_id, key, request_hash, created_at) VALUES (%s, %s, %s, %s)
    ON CONFLICT (user_id, key) DO NOTHING RETURNING id
"""


class KeyReused(Exception):
    """Error: the idempotency key was used before with a different request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP status and JSON body (or none). `repeated`: it is the stored answer of an earlier request."""

    status: int
    body: dict[str, Any] | None
    repeated: bool = False


def fingerprint(*, method: str, path: str, body: Any) -> str:
    """Return the SHA-256 in hex of a request. The order of JSON fields and whitespace do not matter."""
    text = json.dumps([method, path, body], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def answer_once(
    *, user: User, key: str, request: str, now: datetime, act: Callable[[], Answer], part: bool = False
) -> Answer:
    """Return the stored answer of this key, or run `act` and store the answer in the same transaction.

    `request` is a `fingerprint`. A repeat that arrives while `act` still runs waits for the commit. If `act` raises,
    nothing is stored and the key remains free. `part`: one of several parts of a request, in the caller's transaction.
    Raises KeyReused.
    """
    with gathered(savepoint=not part):
        if not part:
            old = StoredAnswer.objects.select_for_update(skip_locked=True).filter(user=user, created_at__lt=now - KEPT)
            StoredAnswer.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:REMOVED])).delete()
        with driver.cursor() as cursor:
            # The unique index makes a concurrent repeat wait here until the first has committed or failed.
            fresh = cursor.execute(NEW, [user.pk, key, request, now]).fetchone()
        if fresh is None:
            row = StoredAnswer.objects.select_for_update().get(user=user, key=key)
            if row.request_hash != request:
                raise KeyReused
            if row.status is not None:
                return Answer(status=row.status, body=row.body, repeated=True)
        answer = act()
        # An answer may quote what its caller sent.
        StoredAnswer.objects.filter(user=user, key=key).update(status=answer.status, body=storable(answer.body))
        return answer


def complete(*, user: User, bodies: Mapping[str, dict[str, Any]]) -> None:
    """Store answers by key for the parts of a request that are answered together at the end. Runs two statements."""
    rows = list(StoredAnswer.objects.filter(user=user, key__in=list(bodies)))
    for row in rows:
        row.body = storable(bodies[row.key])
    StoredAnswer.objects.bulk_update(rows, ["body"])
