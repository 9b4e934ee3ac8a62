"""Checking seals by the way: the newest ones, and a few more each time until all were looked at, and then again.

`drydock-fleet verify_audit` looks at everything at once and says exactly what differs. This says that something does.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Max

from fleet.domain.archive import ArchiveKind
from fleet.domain.timeline import NO_HASH, Chain
from fleet.models import ArchiveFile, LastRun, Seal
from fleet.models.reconcile import seconds_since_run
from fleet.models.timeline import lines_between
from fleet.operations.locks import take_your_time

RUN = "audit-check"
EVERY = timedelta(minutes=5)
# Of the newest, and as many behind where the last check stood.
SEALS = 3

log = structlog.get_logger(__name__)


def is_due(*, now: datetime) -> bool:
    return seconds_since_run(RUN, now=now) >= EVERY.total_seconds()


def check(*, now: datetime, via: str, besides: Collection[int] = ()) -> int | None:
    """The number of the first seal that is not what its rows say; None where those that were looked at are. `besides`
    are looked at as well.
    """
    with transaction.atomic():
        take_your_time()
        run, _ = LastRun.objects.get_or_create(name=RUN, defaults={"ran_at": now, "via": via})
        newest = list(Seal.objects.order_by("-number").values_list("number", flat=True)[:SEALS])
        next_ones = list(
            Seal.objects.filter(number__gt=run.newest_id).order_by("number").values_list("number", flat=True)[:SEALS]
        )
        # Of what has left the files say it: `verify_audit` reads them.
        left = ArchiveFile.objects.filter(kind=ArchiveKind.ENTRIES.value, dropped_at__isnull=False)
        behind = left.aggregate(Max("last_seal"))["last_seal__max"] or 0
        looked_at = sorted(number for number in {*newest, *next_ones, *besides} if number > behind)
        wrong = next((number for number in looked_at if not _holds(number)), None)
        # Behind the last it begins anew.
        run.newest_id = next_ones[-1] if len(next_ones) == SEALS else 0
        run.ran_at, run.via = now, via
        run.save()
    if wrong is not None:
        log.error("audit.failed", seal=wrong)
    return wrong


def _holds(number: int) -> bool:
    seal, before = (Seal.objects.filter(number=each).first() for each in (number, number - 1))
    if seal is None or (before is None and number > 1):
        return False
    if seal.previous_hash != (before.hash if before else NO_HASH):
        return False
    chain = Chain(number=number, previous_hash=seal.previous_hash, sealed_at=seal.sealed_at, era=seal.last_era)
    with lines_between(before.place if before else None, seal.place) as lines:
        for block in lines:
            chain.feed(block)
    return chain.rows == seal.rows and chain.digest(seal.place) == seal.hash
