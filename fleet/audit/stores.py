"""Storage of archive files (a folder or Azure Blob Storage), and reading of archived rows.

No message of these says more of the address than where it leads: what stands behind its question mark is a key.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import quote, unquote, urlsplit

from django.conf import settings
from urllib3 import BaseHTTPResponse, PoolManager, Timeout
from urllib3.exceptions import HTTPError

from fleet.audit.archive_format import (
    MANIFEST_NAME,
    NAME,
    PIECE,
    ArchiveFault,
    ArchiveKind,
    BadArchiveError,
    Manifest,
    StoreError,
    StoreFault,
    entry_of,
    lines_of,
    manifest_from,
    rows_as_lines,
    sealed_line,
)
from fleet.audit.models import ArchiveFile
from fleet.domain.timeline import Place
from fleet.models.timeline import COLUMNS

# How long one file may take to be written, and to be read back.
WRITE_SECONDS = 300.0
CONNECT_SECONDS = 5.0
# Nobody waits longer for the next byte.
SILENCE_SECONDS = 20.0
# The service's own version of its protocol, which it asks for.
BLOB_VERSION = "2021-12-02"


class Store(Protocol):
    """Where files lie. All raise StoreError."""

    def shown(self) -> str:
        """Where it is, without anything secret."""

    def put(self, name: str, content: BinaryIO, size: int) -> None:
        """Write a file whole or not at all. One of this name that is there stays as it is."""

    def get(self, name: str, *, seconds: float) -> Iterator[bytes]:
        """What it holds, in pieces."""


def checked(name: str) -> str:
    """A name that is one of ours, and so nothing else. Raises StoreError."""
    if not (NAME.fullmatch(name) or MANIFEST_NAME.fullmatch(name)):
        raise StoreError(StoreFault.BAD_NAME)
    return name


def store() -> Store | None:
    """The one that the settings name; None where they name none."""
    address = settings.ARCHIVE_URL
    if not address:
        return None
    parts = urlsplit(address)
    return Folder(Path(unquote(parts.path))) if parts.scheme == "file" else Container(address)


class Folder:
    """A folder. What is written appears under its name once it is on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def shown(self) -> str:
        return f"file://{self.path}"

    def put(self, name: str, content: BinaryIO, size: int) -> None:
        path = self.path / checked(name)
        beside = self.path / f".{name}.part"
        try:
            self.path.mkdir(mode=0o750, parents=True, exist_ok=True)
            if path.exists():
                return
            with beside.open("wb") as file:
                for piece in iter(partial(content.read, PIECE), b""):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            self._settle()
        except OSError as error:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise StoreError(_fault_of(error)) from error

    def get(self, name: str, *, seconds: float) -> Iterator[bytes]:
        until = time.monotonic() + seconds
        try:
            # Neither through a link nor out of a pipe.
            handle = os.open(self.path / checked(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(handle, "rb") as file:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise StoreError(StoreFault.MISSING)
                for piece in iter(partial(file.read, PIECE), b""):
                    _in_time(until)
                    yield piece
        except OSError as error:
            raise StoreError(_fault_of(error)) from error

    def _settle(self) -> None:
        """The folder's own entry is on the disk, too."""
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Container:
    """A container of Azure Blob Storage, or a folder in one, by the address of a shared access signature."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._key = parts.query
        self._pool = PoolManager(
            timeout=Timeout(connect=CONNECT_SECONDS, read=SILENCE_SECONDS), retries=False, maxsize=1
        )

    def shown(self) -> str:
        return self._base

    def put(self, name: str, content: BinaryIO, size: int) -> None:
        until = time.monotonic() + WRITE_SECONDS

        def pieces() -> Iterator[bytes]:
            for piece in iter(partial(content.read, PIECE), b""):
                _in_time(until)
                yield piece

        headers = {"x-ms-blob-type": "BlockBlob", "If-None-Match": "*", "Content-Length": str(size)}
        with closing(self._asked("PUT", name, headers, pieces())) as answer:
            status = answer.status
        # 409 and 412: there is one already, which is compared when it is read back.
        # Who may create and not write is refused then.
        if status not in (201, 409, 412) and not (status == 403 and self._is_there(name)):
            raise StoreError(_refusal(status))

    def _is_there(self, name: str) -> bool:
        with closing(self._asked("HEAD", name, {}, None)) as answer:
            return answer.status == 200

    def get(self, name: str, *, seconds: float) -> Iterator[bytes]:
        until = time.monotonic() + seconds
        patience = Timeout(connect=min(CONNECT_SECONDS, seconds), read=min(SILENCE_SECONDS, seconds))
        with closing(self._asked("GET", name, {}, None, patience)) as answer:
            if answer.status != 200:
                raise StoreError(_refusal(answer.status))
            try:
                while piece := answer.read1(PIECE):
                    _in_time(until)
                    yield piece
            except (HTTPError, OSError) as error:
                raise StoreError(StoreFault.AWAY) from error

    def _asked(
        self,
        method: str,
        name: str,
        headers: dict[str, str],
        body: Iterator[bytes] | None,
        patience: Timeout | None = None,
    ) -> BaseHTTPResponse:
        """One request, and never another one: where it is sent elsewhere, it does not go."""
        address = f"{self._base}/{quote(checked(name))}" + (f"?{self._key}" if self._key else "")
        common = {"User-Agent": "Drydock", "Accept-Encoding": "identity", "x-ms-version": BLOB_VERSION}
        wait = {} if patience is None else {"timeout": patience}
        try:
            return self._pool.urlopen(
                method,
                address,
                body=body,
                headers=common | headers,
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
                **wait,
            )
        except (HTTPError, OSError) as error:
            # What they say holds the address.
            raise StoreError(StoreFault.AWAY) from _Hidden(type(error).__name__)


class _Hidden(Exception):
    """What went wrong, without its words."""


def _in_time(until: float) -> None:
    if time.monotonic() > until:
        raise StoreError(StoreFault.SLOW)


def _refusal(status: int) -> StoreFault:
    if status in (401, 403):
        return StoreFault.REFUSED
    if status == 404:
        return StoreFault.MISSING
    if 300 <= status < 400:
        return StoreFault.ELSEWHERE
    return StoreFault.FULL if status in (413, 507) else StoreFault.AWAY


def _fault_of(error: OSError) -> StoreFault:
    if isinstance(error, FileNotFoundError):
        return StoreFault.MISSING
    if isinstance(error, PermissionError):
        return StoreFault.REFUSED
    # No space left, and no quota left.
    return StoreFault.FULL if error.errno in (28, 122) else StoreFault.AWAY


# Reading the archive: lines out of a store, each file checked against its manifest to the end.

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
