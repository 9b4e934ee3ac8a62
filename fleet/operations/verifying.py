"""Verifying the timeline against its seals: everything is computed again, and whatever differs is named."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection

from fleet.models import Entry, Seal
from fleet.operations.sealing import NO_HASH, Chain, Head, Place, lines_between

# A row that is older than this has a seal, or sealing stands still.
SEALED_WITHIN = timedelta(minutes=5)
SEALS_AT_ONCE = 1_000
TABLE = Entry._meta.db_table


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong. `seal` is the number of the interval; None where it concerns none."""

    seal: int | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What was looked at. `head` is the newest link that is there."""

    seals: int
    rows: int
    findings: int
    head: Head | None


Tell = Callable[[Finding], None]


def verify(*, now: datetime, heads: Mapping[int, str] | None = None, first: int = 1, tell: Tell) -> Verified:
    """Compute every seal from number `first` on again; each finding goes to `tell` as soon as it is made.

    `heads` are numbers and hashes out of the log: they alone show that a whole tail was cut or made anew. Memory is
    bounded: rows are streamed, seals come in pages.
    """
    walk = _Walk(tell)
    walk.start(first)
    for row in _seals(first):
        walk.look_at(row)
    walk.finish()
    for number, wanted in sorted((heads or {}).items()):
        _check_head(number, wanted, walk)
    _check_tail(now, walk)
    head = Head(walk.previous.number, walk.previous.hash) if walk.previous else None
    return Verified(seals=walk.seals, rows=walk.rows, findings=walk.findings, head=head)


class _Walk:
    """The chain, link by link. A verdict waits for the next link: that tells an edited seal from edited rows."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.previous: Seal | None = None
        self.seals = self.rows = self.findings = 0
        self._expected = 1
        self._doubt: tuple[Seal, str, int] | None = None

    def tell(self, seal: int | None, sentence: str) -> None:
        self.findings += 1
        self._tell(Finding(seal, sentence))

    def start(self, first: int) -> None:
        self._expected = first
        if first > 1:
            # Where the first interval begins is believed.
            self.previous = Seal.objects.filter(number=first - 1).first()
            if self.previous is None:
                self.tell(first - 1, f"Seal {first - 1} is missing.")

    def look_at(self, seal: Seal) -> None:
        if self._doubt is not None:
            self._settle(seal.previous_hash)
        gap = seal.number != self._expected
        if gap:
            missing = f"Seal {self._expected} is" if seal.number == self._expected + 1 else "Seals "
            if missing == "Seals ":
                missing = f"Seals {self._expected} to {seal.number - 1} are"
            self.tell(self._expected, f"{missing} missing: the rows that they sealed cannot be checked.")
        elif self.previous is not None and seal.previous_hash != self.previous.hash:
            self.tell(seal.number, f"Seal {seal.number} does not follow the hash of seal {self.previous.number}.")
        elif self.previous is None and seal.number == 1 and seal.previous_hash != NO_HASH:
            self.tell(1, "Seal 1 does not begin a chain: it names a hash before it.")
        until = (seal.last_xid, seal.last_id)
        begin = _place(self.previous)
        if begin is not None and until <= begin:
            self.tell(seal.number, f"Seal {seal.number} ends before the one in front of it: it was edited.")
        elif gap or (self.previous is None and seal.number != 1):
            begin = _behind(seal)
        self._compute(seal, begin, until)
        self.previous = seal
        self._expected = seal.number + 1
        self.seals += 1

    def _compute(self, seal: Seal, begin: Place | None, until: Place) -> None:
        chain = Chain(number=seal.number, previous_hash=seal.previous_hash, sealed_at=seal.sealed_at)
        with lines_between(begin, until) as lines:
            for block in lines:
                chain.feed(block)
        self.rows += chain.rows
        digest = chain.digest(until)
        if chain.rows != seal.rows:
            what = "rows were deleted" if chain.rows < seal.rows else "rows were inserted"
            self.tell(
                seal.number,
                f"Seal {seal.number} of {seal.sealed_at:%Y-%m-%d %H:%M:%S} UTC is over {seal.rows} rows, and"
                f" {chain.rows} are there: {what}, or the seal was edited.",
            )
        elif digest != seal.hash:
            self._doubt = (seal, digest, chain.rows)

    def finish(self) -> None:
        if self._doubt is not None:
            self._settle(None)

    def _settle(self, next_names: str | None) -> None:
        """`next_names` is the hash that the next seal names as the one before it."""
        assert self._doubt is not None  # noqa: S101
        seal, digest, rows = self._doubt
        self._doubt = None
        when = f"{seal.sealed_at:%Y-%m-%d %H:%M:%S} UTC"
        if next_names == digest:
            self.tell(seal.number, f"The hash of seal {seal.number} of {when} was edited; its {rows} rows are whole.")
        else:
            self.tell(
                seal.number, f"Seal {seal.number} of {when} is broken: one of its {rows} rows, or the seal, was edited."
            )


def _check_head(number: int, wanted: str, walk: _Walk) -> None:
    found = Seal.objects.filter(number=number).values_list("hash", flat=True).first()
    if found is None:
        walk.tell(number, f"Seal {number}, which the log names, is not there: the tail was cut.")
    elif found != wanted:
        walk.tell(number, f"Seal {number} is another one than the log names: the chain was made anew.")


def _check_tail(now: datetime, walk: _Walk) -> None:
    """Rows behind the newest seal: none is old, and none comes from a transaction that there has not been."""
    newest = Seal.objects.order_by("-number").first()
    behind, parameters = "TRUE", []
    if newest is not None:
        behind, parameters = "(xid, id) > (%s, %s)", [newest.last_xid, newest.last_id]
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT count(*) FILTER (
                       WHERE recorded_at < %s AND xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint),
                   min(recorded_at) FILTER (
                       WHERE recorded_at < %s AND xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint),
                   count(*) FILTER (
                       WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint AND xid <> %s),
                   count(*) FILTER (WHERE recorded_at > %s)
            FROM {TABLE} WHERE {behind}
            """,
            [now - SEALED_WITHIN, now - SEALED_WITHIN, _own_transaction(), now + SEALED_WITHIN, *parameters],
        )
        old, oldest, unborn, ahead = cursor.fetchone() or (0, None, 0, 0)
    if old:
        walk.tell(
            None,
            f"{old} rows since {oldest:%Y-%m-%d %H:%M:%S} UTC have no seal: sealing stands still, or seals were cut.",
        )
    if unborn:
        walk.tell(None, f"{unborn} rows name a transaction that there has not been yet: they were inserted by hand.")
    if ahead:
        walk.tell(None, f"{ahead} rows say that they were written at a time that is still to come.")


def _own_transaction() -> int:
    """The transaction that this runs in; -1 where it has written nothing."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(pg_current_xact_id_if_assigned()::text::bigint, -1)")
        row = cursor.fetchone()
    return int(row[0]) if row else -1


def _place(seal: Seal | None) -> Place | None:
    return (seal.last_xid, seal.last_id) if seal else None


def _behind(seal: Seal) -> Place | None:
    """Where the interval of a seal begins whose predecessor is missing: as many rows before its end as it says."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT xid, id FROM {TABLE} WHERE (xid, id) <= (%s, %s) ORDER BY xid DESC, id DESC OFFSET %s LIMIT 1",
            [seal.last_xid, seal.last_id, max(seal.rows, 0)],
        )
        row = cursor.fetchone()
    return (int(row[0]), int(row[1])) if row else None


def _seals(first: int) -> Iterator[Seal]:
    number = first - 1
    while page := list(Seal.objects.filter(number__gt=number).order_by("number")[:SEALS_AT_ONCE]):
        yield from page
        number = page[-1].number
