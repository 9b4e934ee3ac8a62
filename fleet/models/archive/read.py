"""Reading the archive: lines out of a store, each file checked against its manifest to the end."""

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter

from fleet.domain.archive import (
    ArchiveFault,
    ArchiveKind,
    BadArchiveError,
    Manifest,
    StoreError,
    StoreFault,
    entry_of,
    lines_of,
    manifest_from,
    sealed_line,
)
from fleet.domain.timeline import Place
from fleet.models.archive.files import ArchiveFile
from fleet.models.archive.lines import rows_as_lines
from fleet.models.archive.stores import Store
from fleet.models.timeline import COLUMNS

# A manifest is small.
MOST_OF_A_MANIFEST = 64 * 1024
Keyed = tuple[Place, dict[str, str | None]]


def lines(store: Store, manifest: Manifest, *, seconds: float) -> Iterator[bytes]:
    """The lines of a file. Whoever has read to the end knows that they are as they were written. Raises StoreError, or
    BadArchiveError.
    """
    try:
        yield from lines_of(manifest, store.get(manifest.name, seconds=seconds))
    except StoreError as error:
        if error.fault is StoreFault.MISSING:
            raise BadArchiveError(ArchiveFault.MISSING) from error
        raise


def fetched(store: Store, manifest: Manifest, *, seconds: float) -> Iterator[bytes]:
    """The same lines, out of a file that is known to be whole before the first of them is given."""
    for _ in lines(store, manifest, seconds=seconds):
        pass
    yield from lines(store, manifest, seconds=seconds)


def check_manifest(store: Store, manifest: Manifest, *, seconds: float) -> None:
    """That the one which lies beside the file says the same. Raises StoreError or BadArchiveError."""
    found = b""
    try:
        for piece in store.get(manifest.manifest_name, seconds=seconds):
            found += piece
            if len(found) > MOST_OF_A_MANIFEST:
                raise BadArchiveError(ArchiveFault.MANIFEST)
    except StoreError as error:
        if error.fault is StoreFault.MISSING:
            raise BadArchiveError(ArchiveFault.MANIFEST) from error
        raise
    if manifest_from(found) != manifest:
        raise BadArchiveError(ArchiveFault.MANIFEST)


class SealedRows:
    """The rows of the timeline as lines of seals, out of files and out of the database as if nothing had left.

    `fault` hears of files that are not what they were, each once. Files are read once, in the order of their rows;
    at any time the rows of one seal are in memory, and one piece of each file that is open.
    """

    def __init__(self, store: Store | None, *, fault: Callable[[Manifest, str], None], seconds: float) -> None:
        self._store = store
        self._fault = fault
        self._seconds = seconds
        self.looked_at = 0
        files = (row.told for row in ArchiveFile.objects.filter(kind=ArchiveKind.ENTRIES.value).defer("events"))
        self._files = sorted(files, key=lambda one: one.first_place or (0, 0, 0))
        self._open: list[_Open] = []

    def reaches(self, until: Place, after: Place | None) -> bool:
        """Whether rows between these places may lie in files."""
        return any(self._touches(one, until, after) for one in self._files) or bool(self._open)

    def _touches(self, one: Manifest, until: Place, after: Place | None) -> bool:
        first, last = one.first_place, one.last_place
        return first is not None and last is not None and first <= until and (after is None or last > after)

    def between(self, after: Place | None, until: Place) -> Iterator[bytes]:
        """The canonical lines of the rows behind `after` up to and with `until`."""
        while self._files and (self._files[0].first_place or (0, 0, 0)) <= until:
            one = self._files.pop(0)
            if after is None or (one.last_place or (0, 0, 0)) > after:
                self._open.append(_Open(one, self._rows(one)))
        found: list[Keyed] = []
        for each in self._open:
            found += each.up_to(after, until)
        self._open = [each for each in self._open if not each.ended]
        found += self._live(after, until)
        # What has not been dropped yet is in both: what is in the database counts.
        found.sort(key=itemgetter(0))
        for _, same in groupby(found, key=itemgetter(0)):
            *_, (_, row) = same
            yield sealed_line(row, COLUMNS, era=until[0])

    def finish(self) -> None:
        """Read what no seal has asked for to its end."""
        self._open += [_Open(one, self._rows(one)) for one in self._files]
        self._files = []
        for each in self._open:
            each.drain()

    def _rows(self, one: Manifest) -> Iterator[Keyed]:
        self.looked_at += 1
        if self._store is None:
            self._fault(one, StoreFault.AWAY.value)
            return
        try:
            check_manifest(self._store, one, seconds=self._seconds)
            for line in fetched(self._store, one, seconds=self._seconds):
                yield entry_of(line, COLUMNS.keys())
        except (BadArchiveError, StoreError) as error:
            self._fault(one, error.fault.value)

    def _live(self, after: Place | None, until: Place) -> Iterator[Keyed]:
        place = "(row.era, row.xid, row.id)"
        behind, values = ("row.era >= 1", []) if after is None else (f"{place} > (%s, %s, %s)", list(after))
        rest = b""
        for block in rows_as_lines(ArchiveKind.ENTRIES, f"{behind} AND {place} <= (%s, %s, %s)", [*values, *until]):
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                yield entry_of(line, COLUMNS.keys())


class _Open:
    """A file that is being read, with the row that was read too far."""

    def __init__(self, manifest: Manifest, rows: Iterator[Keyed]) -> None:
        self.manifest = manifest
        self.ended = False
        self._rows = rows
        self._next: Keyed | None = None

    def up_to(self, after: Place | None, until: Place) -> Iterator[Keyed]:
        while (row := self._next or next(self._rows, None)) is not None:
            self._next = row
            if row[0] > until:
                return
            self._next = None
            if after is None or row[0] > after:
                yield row
        self.ended = True

    def drain(self) -> None:
        for _ in self._rows:
            pass
        self.ended = True
