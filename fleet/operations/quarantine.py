"""Quarantine of rows that cannot be processed, so that all other rows continue. They are retried later.

All rows are processed together. If that fails, they are halved until each failing row is isolated. Without failures
this costs one query.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self, TypeVar

from django.db import InterfaceError, OperationalError, transaction

from fleet.domain.db_timeouts import is_timeout
from fleet.domain.scheduling import HELD_PAUSE, QuarantineKind, retry_pause
from fleet.domain.texts import readable
from fleet.models import QuarantinedRow
from fleet.operations.locks import short_lock_timeout
from fleet.operations.timeline.entries import gathered

logger = logging.getLogger(__name__)
T = TypeVar("T")
K = TypeVar("K")

LONGEST = 500
# A row that still exists is retried within seconds of its time; an older entry belongs to no row any more.
FORGOTTEN = timedelta(minutes=5)
# SQLSTATE classes of the server, not of the written data: connection, resources, locks, shutdown, disk. Lock conflicts
# and timeouts are the exception: they concern only the row itself.
AWAY = frozenset({"08", "40", "53", "55", "57", "58"})


def is_quarantined(error: BaseException) -> bool:
    """Return whether the database itself was unavailable, so that the error is not caused by the row."""
    if not isinstance(error, OperationalError | InterfaceError) or is_timeout(error):
        return False
    state = getattr(error.__cause__, "sqlstate", None)
    return state is None or state[:2] in AWAY


def error_text(error: BaseException) -> str:
    """Return the error as one line of text that can be stored."""
    text = str(error).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    first = (readable(text).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:LONGEST]


def bisect_failures(
    keys: Sequence[K],
    call: Callable[[Sequence[K]], Sequence[T]],
    fail: Callable[[K, Exception], None],
    *,
    splits: Callable[[Exception], bool] = lambda error: not is_quarantined(error),
    hurried: bool = False,
) -> list[T]:
    """Call `call` for all keys together; if it fails, for halves, each in its own transaction. Return the results.

    `fail` is called for each key that fails separately. After a lock conflict, later calls wait for locks only briefly.
    An error for which `splits` is false is raised.
    """
    try:
        with transaction.atomic(), short_lock_timeout() if hurried else nullcontext(), gathered(savepoint=False):
            return list(call(keys))
    except Exception as error:
        if not splits(error):
            raise
        if len(keys) == 1:
            fail(keys[0], error)
            return []
        hurried = hurried or is_timeout(error)
    middle = len(keys) // 2
    halves = (keys[:middle], keys[middle:])
    return [one for half in halves for one in bisect_failures(half, call, fail, splits=splits, hurried=hurried)]


class Quarantine:
    """Processes rows of one kind and quarantines those that fail: `with Quarantine(QuarantineKind.WAVE, now=now) as
    apart`.

    `look` and `run` skip quarantined rows until their retry. At the end of the block, rows that no longer fail leave
    the quarantine.
    """

    def __init__(self, what: QuarantineKind, *, now: datetime) -> None:
        self.what = what
        self.now = now
        self._known: dict[int, QuarantinedRow] | None = None
        self._tried: set[int] = set()
        # When each is tried again.
        self._failed: dict[int, datetime] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        over = self._tried & set(self._known or ()) - set(self._failed)
        if kind is None and over:
            QuarantinedRow.objects.filter(what=self.what.value, row_id__in=over).delete()

    def look(self, row_ids: Collection[int], call: Callable[[Sequence[int]], Sequence[T]]) -> list[T]:
        """Call `call` for these rows (ids) together, and return the results without rows that fail or are
        quarantined.
        """
        free = [row_id for row_id in row_ids if self.waits_until(row_id) is None]
        if not free:
            return []
        found = bisect_failures(free, call, self.quarantine)
        self._tried.update(free)
        return found

    def run(self, row_id: int, call: Callable[[], T]) -> T | None:
        """Call `call` for one row, in its own transaction, and return the result; None if it failed or the retry is not
        due.
        """
        found = self.look([row_id], lambda _: [call()])
        return found[0] if found else None

    def waits_until(self, row_id: int) -> datetime | None:
        """Return when a quarantined row is retried; None if it is not quarantined or is due."""
        if self._known is None:
            self._known = {row.row_id: row for row in QuarantinedRow.objects.filter(what=self.what.value)}
        known = self._known.get(row_id)
        later = known.next_try_at if known is not None and known.next_try_at > self.now else None
        return self._failed.get(row_id, later)

    def quarantine(self, row_id: int, error: Exception) -> None:
        """Quarantine a row with its error, and set the time of the next retry."""
        known = (self._known or {}).get(row_id)
        tries = known.tries + 1 if known else 1
        wait = retry_pause(tries)
        if is_timeout(error):
            tries, wait = known.tries if known else 1, HELD_PAUSE
            logger.warning("%s %s is quarantined: %s", self.what.value, row_id, error_text(error))
        else:
            logger.error("%s %s is quarantined", self.what.value, row_id, exc_info=error)
        self._failed[row_id] = self.now + wait
        values = {"reason": error_text(error), "tries": tries, "next_try_at": self.now + wait}
        QuarantinedRow.objects.update_or_create(
            what=self.what.value, row_id=row_id, defaults=values, create_defaults=values | {"since": self.now}
        )


def delete_expired(*, now: datetime) -> None:
    """Delete quarantined rows that no process has retried long after their time."""
    QuarantinedRow.objects.filter(next_try_at__lt=now - FORGOTTEN).delete()


def call_each(*calls: Callable[[], object]) -> None:
    """Make all calls even if some fail, then raise the first error."""
    first: Exception | None = None
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - raised below
            first = first or error
    if first is not None:
        raise first
