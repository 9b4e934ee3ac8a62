"""Seals over the timeline: sealing once a minute, continuous checks, and full verification.

A seal is a hash over a range of timeline rows and the previous seal. `drydock-fleet verify_audit` verifies all seals
and reports each difference; the continuous check only reports that there is one.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Max

from fleet.audit import stores
from fleet.audit.archive_format import ArchiveError, ArchiveKind, Manifest, StoreError, StoreFault, out_of_order
from fleet.audit.models import ArchiveFile
from fleet.audit.stores import Store, store
from fleet.domain.reasons import Reason
from fleet.domain.timeline import NO_HASH, Chain, ChainHead, Place
from fleet.models import Entry, LastRun, OpenTrouble, Seal
from fleet.models.blind_spots import trouble
from fleet.models.driver import query
from fleet.models.reconcile import seconds_since_run
from fleet.models.timeline import NEWEST_ERA, SETTLED, lines_between, numbering
from fleet.operations.locks import Lock, no_timeouts, try_take

RUN = "audit-check"
EVERY = timedelta(minutes=5)
# Seals checked in one run: this many of the newest, and as many after the last one checked.
SEALS = 3

log = structlog.get_logger(__name__)


def is_due(*, now: datetime) -> bool:
    return seconds_since_run(RUN, now=now) >= EVERY.total_seconds()


def check(*, now: datetime, via: str, besides: Collection[int] = ()) -> int | None:
    """Check the newest seals, the next ones in turn, and the seals with the numbers in `besides`. Return the number of
    the first seal that does not match its rows, or None.
    """
    with transaction.atomic():
        no_timeouts()
        run, _ = LastRun.objects.get_or_create(name=RUN, defaults={"ran_at": now, "via": via})
        newest = list(Seal.objects.order_by("-number").values_list("number", flat=True)[:SEALS])
        numbers = Seal.objects.filter(number__gt=run.newest_id).order_by("number").values_list("number", flat=True)
        next_ones = list(numbers[:SEALS])
        # Archived rows are in files, which `verify_audit` reads.
        left = ArchiveFile.objects.filter(kind=ArchiveKind.ENTRIES.value, dropped_at__isnull=False)
        behind = left.aggregate(Max("last_seal"))["last_seal__max"] or 0
        checked = sorted(number for number in {*newest, *next_ones, *besides} if number > behind)
        wrong = next((number for number in checked if not _matches(number)), None)
        # After the last seal the check starts again with the first.
        run.newest_id = next_ones[-1] if len(next_ones) == SEALS else 0
        run.ran_at, run.via = now, via
        run.save()
    if wrong is not None:
        log.error("audit.failed", seal=wrong)
    return wrong


def troubles(*, now: datetime, via: str) -> list[OpenTrouble]:
    """Return a trouble if a seal does not match its rows. If no check is due, return the result of the last check."""
    known = list(OpenTrouble.objects.filter(code="audit-failed"))
    if not is_due(now=now):
        return known
    wrong = check(now=now, via=via, besides=[one.values["seal"] for one in known])
    return [trouble("audit-failed", {"seal": wrong})] if wrong is not None else []


def _matches(number: int) -> bool:
    seal, before = (Seal.objects.filter(number=each).first() for each in (number, number - 1))
    if seal is None or (before is None and number > 1):
        return False
    if seal.previous_hash != (before.hash if before else NO_HASH):
        return False
    chain = _chain(seal, before.place if before else None)
    return chain.rows == seal.rows and chain.digest(seal.place) == seal.hash


def _chain(seal: Seal, after: Place | None, lines: Iterator[bytes] | None = None) -> Chain:
    """Compute the hash of a seal over the timeline rows after the place `after`. `lines` are these rows; None reads
    them from the database.
    """
    chain = Chain(number=seal.number, previous_hash=seal.previous_hash, sealed_at=seal.sealed_at, era=seal.last_era)
    with nullcontext(lines) if lines is not None else lines_between(after, seal.place) as blocks:
        for block in blocks:
            chain.feed(block)
    return chain


# Sealing of the timeline: once a minute, a hash chain is extended over all rows that no later row can precede.

SEAL_RUN = "seal"
# Rows in one seal: those of a minute, or portions of this size after a backlog.
MOST_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class Sealed:
    """Result of one call of `seal`: whether it ran, and the new seals (`heads`)."""

    ran: bool
    heads: tuple[ChainHead, ...] = ()
    rows: int = 0


def seal(*, now: datetime, via: str, most_rows: int = MOST_ROWS, most_seals: int = 20) -> Sealed:
    """Seal the timeline rows after the newest seal, with up to `most_seals` seals of `most_rows` rows. Without new
    rows, no seal is made.

    An advisory lock prevents concurrent runs: the second one returns at once. Number and hash of each new seal are
    logged after its commit.
    """
    heads: list[ChainHead] = []
    rows = 0
    more = True
    while more and len(heads) < most_seals:
        with transaction.atomic():
            no_timeouts()
            if not try_take(Lock.SEAL):
                return Sealed(ran=bool(heads), heads=tuple(heads), rows=rows)
            made = _next_seal(now, most_rows)
            more = made is not None and made.rows >= most_rows
            if not more:
                LastRun.objects.update_or_create(name=SEAL_RUN, defaults={"ran_at": now, "via": via})
        if made is not None:
            heads.append(ChainHead(made.number, made.hash))
            rows += made.rows
            log.info("audit.sealed", head=str(heads[-1]), rows=made.rows, via=via)
    return Sealed(ran=True, heads=tuple(heads), rows=rows)


def _next_seal(now: datetime, most_rows: int) -> Seal | None:
    newest = Seal.objects.order_by("-number").first()
    after = newest.place if newest else None
    until = _last_place(after, most_rows)
    if until is None:
        return None
    number, previous_hash = (newest.number + 1, newest.hash) if newest else (1, NO_HASH)
    era, xid, row_id = until
    seal = Seal(number=number, sealed_at=now, last_era=era, last_xid=xid, last_id=row_id, previous_hash=previous_hash)
    chain = _chain(seal, after)
    seal.rows, seal.hash = chain.rows, chain.digest(until)
    seal.save(force_insert=True)
    return seal


def _last_place(after: Place | None, most_rows: int) -> Place | None:
    """Return the place (era, xid, id) of the row with which the next seal ends: `most_rows` rows after `after`, or the
    last row that can be sealed now. None if no row can be sealed.
    """
    behind, parameters = ("TRUE", []) if after is None else ("(era, xid, id) > (%s, %s, %s)", list(after))
    rows = f"SELECT era, xid, id FROM {TABLE} WHERE {behind} AND {SETTLED} ORDER BY era, xid, id LIMIT %s"
    last = f"SELECT era, xid, id FROM ({rows}) AS rows ORDER BY era DESC, xid DESC, id DESC LIMIT 1"
    return _place_of(query(last, *parameters, most_rows))


# Verification of the timeline against its seals: everything is computed again, and every difference is reported.

# Older rows have a seal, unless sealing has stopped.
SEALED_WITHIN = timedelta(minutes=5)
SEALS_AT_ONCE = 1_000
# Time limit in seconds for reading one archive file.
FILE_SECONDS = 300.0
TABLE = Entry._meta.db_table


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault found by the verification. `seal` is the number of the wrong seal, or None."""

    seal: int | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of a verification. `head` is the newest seal in the database."""

    seals: int
    rows: int
    findings: int
    head: ChainHead | None
    files: int = 0


Tell = Callable[[Finding], None]


def verify(*, now: datetime, heads: Mapping[int, str] | None = None, first: int = 1, tell: Tell) -> Verified:
    """Compute all seals from the number `first` on again and compare them. `tell` receives each fault immediately.

    `heads` are seal hashes by number from the log. Without them, a cut or replaced end of the chain is not noticed.
    Memory use is limited, because rows and seals are read piece by piece. Archived rows are read from the archive. If
    `first` is 1, all other archive files are verified, too.
    """
    archive = store()
    walk = _Walk(tell, archive, first)
    for row in _seals(first):
        walk.check(row)
    walk.finish()
    _check_files(archive, walk, whole=first == 1)
    for number, wanted in sorted((heads or {}).items()):
        hash_ = Seal.objects.filter(number=number).values_list("hash", flat=True).first()
        if hash_ != wanted:
            walk.tell(number, "seal-cut" if hash_ is None else "seal-other", seal=number)
    _check_tail(now, walk)
    found = numbering()
    if found.missing:
        walk.tell(None, "era-missing", newest=found.newest, next=found.next)
    head = ChainHead(walk.previous.number, walk.previous.hash) if walk.previous else None
    return Verified(seals=walk.seals, rows=walk.rows, findings=walk.findings, head=head, files=walk.files)


class _Walk:
    """Verification of the chain, seal by seal. A wrong seal is reported only after the next seal has been read: that
    shows whether the seal itself or the rows were changed.
    """

    def __init__(self, tell: Tell, archive: Store | None, first: int) -> None:
        self._tell = tell
        self._archive = stores.SealedRows(archive, fault=self.tell_of_file, seconds=FILE_SECONDS)
        # Seals over unavailable rows cannot be verified.
        self._without: list[tuple[int, int]] = []
        self.other_files = 0
        self.previous: Seal | None = None
        self.seals = self.rows = self.findings = 0
        self._expected = first
        self._doubt: tuple[Seal, str, int] | None = None
        if first > 1:
            # The beginning of the first interval is trusted.
            self.previous = Seal.objects.filter(number=first - 1).first()
            if self.previous is None:
                self.tell(first - 1, "seal-missing", seal=first - 1)

    def tell(self, seal: int | None, code: str, /, **values: Any) -> None:
        self.findings += 1
        self._tell(Finding(seal, Reason(code, **values)))

    def tell_of_file(self, file: Manifest, code: str) -> None:
        self.tell(None, code, file=file.number, name=file.name)
        if file.seals is not None:
            self._without.append(file.seals)

    @property
    def files(self) -> int:
        return self._archive.looked_at + self.other_files

    def check(self, seal: Seal) -> None:
        if self._doubt is not None:
            self._settle(seal.previous_hash)
        gap = seal.number != self._expected
        if gap:
            self.tell(self._expected, "seals-missing", first=self._expected, last=seal.number - 1)
        elif self.previous is not None and seal.previous_hash != self.previous.hash:
            self.tell(seal.number, "seal-follows-no-hash", seal=seal.number, before=self.previous.number)
        elif self.previous is None and seal.number == 1 and seal.previous_hash != NO_HASH:
            self.tell(1, "seal-begins-no-chain")
        until = seal.place
        begin = self.previous.place if self.previous else None
        if begin is not None and until <= begin:
            self.tell(seal.number, "seal-ends-early", seal=seal.number)
        elif gap or (self.previous is None and seal.number != 1):
            begin = _behind(seal)
        self._compute(seal, begin, until)
        self.previous = seal
        self._expected = seal.number + 1
        self.seals += 1

    def _compute(self, seal: Seal, begin: Place | None, until: Place) -> None:
        archived = self._archive.between(begin, until) if self._archive.reaches(until, begin) else None
        chain = _chain(seal, begin, archived)
        self.rows += chain.rows
        if any(first <= seal.number <= last for first, last in self._without):
            return
        digest = chain.digest(until)
        if chain.rows != seal.rows:
            known = {"seal": seal.number, "at": seal.sealed_at, "rows": seal.rows}
            self.tell(seal.number, "seal-over-other-rows", **known, found=chain.rows)
        elif digest != seal.hash:
            self._doubt = (seal, digest, chain.rows)

    def finish(self) -> None:
        self._archive.finish()
        if self._doubt is not None:
            self._settle(None)

    def _settle(self, next_names: str | None) -> None:
        """Report the wrong seal that was found before. `next_names` is the previous hash in the next seal, or None if
        there is no next seal.
        """
        assert self._doubt is not None  # noqa: S101
        seal, digest, rows = self._doubt
        self._doubt = None
        code = "seal-hash-edited" if next_names == digest else "seal-broken"
        self.tell(seal.number, code, seal=seal.number, at=seal.sealed_at, rows=rows)


def _check_files(archive: Store | None, walk: _Walk, *, whole: bool) -> None:
    """Check that no archive file is missing from the chain of files, and that each file of a kind without seals is
    unchanged.
    """
    files = [row.parsed_manifest for row in ArchiveFile.objects.defer("events").order_by("number")]
    for number, fault in out_of_order(files):
        walk.tell(None, fault.value, file=number)
    for one in files:
        if whole and one.kind != ArchiveKind.ENTRIES:
            walk.other_files += 1
            try:
                if archive is None:
                    raise StoreError(StoreFault.AWAY)
                stores.check_file(archive, one, seconds=FILE_SECONDS)
            except ArchiveError as error:
                walk.tell_of_file(one, error.fault.value)


def _check_tail(now: datetime, walk: _Walk) -> None:
    """Check the rows after the newest seal: none may be old, and none may have a transaction id in the future."""
    newest = Seal.objects.order_by("-number").first()
    behind, parameters = "TRUE", []
    if newest is not None:
        behind, parameters = "(era, xid, id) > (%s, %s, %s)", list(newest.place)
    statement = f"""
        SELECT count(*) FILTER (WHERE recorded_at < %s AND {SETTLED}),
               min(recorded_at) FILTER (WHERE recorded_at < %s AND {SETTLED}),
               -- Rows of this very transaction are none of those.
               count(*) FILTER (
                   WHERE era >= {NEWEST_ERA} AND xid <> coalesce(pg_current_xact_id_if_assigned()::text::bigint, -1)
                   AND xid >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint),
               count(*) FILTER (WHERE recorded_at > %s)
        FROM {TABLE} WHERE {behind}
    """
    late = now - SEALED_WITHIN
    ((old, oldest, unborn, ahead),) = query(statement, late, late, now + SEALED_WITHIN, *parameters)
    if old:
        walk.tell(None, "rows-unsealed", rows=old, since=oldest)
    if unborn:
        walk.tell(None, "rows-unborn", rows=unborn)
    if ahead:
        walk.tell(None, "rows-ahead", rows=ahead)


def _behind(seal: Seal) -> Place | None:
    """Return the place where a seal begins if the seal before it is missing, computed from the number of its rows."""
    begin = (
        f"SELECT era, xid, id FROM {TABLE} WHERE (era, xid, id) <= (%s, %s, %s)"
        " ORDER BY era DESC, xid DESC, id DESC OFFSET %s LIMIT 1"
    )
    return _place_of(query(begin, *seal.place, max(seal.rows, 0)))


def _place_of(rows: list[tuple[Any, ...]]) -> Place | None:
    return next(((int(era), int(xid), int(pk)) for era, xid, pk in rows), None)


def _seals(first: int) -> Iterator[Seal]:
    number = first - 1
    while page := list(Seal.objects.filter(number__gt=number).order_by("number")[:SEALS_AT_ONCE]):
        yield from page
        number = page[-1].number
