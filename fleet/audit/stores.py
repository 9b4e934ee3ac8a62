"""Archive stores (a folder or Azure Blob Storage), and reading of archived rows.

Messages contain the address without the query string, because that is a secret key.
"""

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from shutil import copyfileobj
from typing import Any, BinaryIO, Protocol
from urllib.parse import quote, unquote, urlsplit

from django.conf import settings
from urllib3 import BaseHTTPResponse, PoolManager, Timeout
from urllib3.exceptions import HTTPError

from fleet.audit import archive_format
from fleet.audit.archive_format import (
    PIECE,
    ArchiveError,
    ArchiveFault,
    BadArchiveError,
    Manifest,
    StoreError,
    StoreFault,
)
from fleet.audit.models import ArchiveFile
from fleet.domain.timeline import Place
from fleet.models.timeline import COLUMNS

# Time limit in seconds for writing one file and for reading it back.
WRITE_SECONDS = 300.0
CONNECT_SECONDS = 5.0
# Longest wait in seconds for the next byte.
SILENCE_SECONDS = 20.0
# Version of the Blob Storage protocol, which the service requires.
BLOB_VERSION = "2021-12-02"


class Store(Protocol):
    """Storage of archive files. All methods raise StoreError on failure."""

    def shown(self) -> str:
        """The address without secrets."""

    def put(self, name: str, content: BinaryIO, size: int) -> None:
        """Write a file completely or not at all. If a file with this name exists, it is not changed."""

    def get(self, name: str, *, seconds: float) -> Iterator[bytes]:
        """Yield the content of a file in pieces. `seconds` limits the total time."""


def checked(name: str) -> str:
    """Return the name after checking that it has the form of an archive file's name. Raises StoreError."""
    if not archive_format.NAME.fullmatch(name):
        raise StoreError(StoreFault.BAD_NAME)
    return name


def store() -> Store | None:
    """Return the configured archive store, or None if none is configured."""
    address = settings.ARCHIVE_URL
    if not address:
        return None
    parts = urlsplit(address)
    return Folder(Path(unquote(parts.path))) if parts.scheme == "file" else Container(address)


class Folder:
    """Archive store in a folder. A file gets its name only after it is completely on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def shown(self) -> str:
        return f"file://{self.path}"

    def put(self, name: str, content: BinaryIO, size: int) -> None:
        path = self.path / checked(name)
        unfinished = self.path / f".{name}.part"
        try:
            self.path.mkdir(mode=0o750, parents=True, exist_ok=True)
            if path.exists():
                return
            with unfinished.open("wb") as file:
                copyfileobj(content, file, PIECE)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
            # The entry of the folder is written to disk, too.
            handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise StoreError(_fault_of(error)) from error

    def get(self, name: str, *, seconds: float) -> Iterator[bytes]:
        until = time.monotonic() + seconds
        try:
            # Neither a symbolic link nor a pipe is opened.
            handle = os.open(self.path / checked(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(handle, "rb") as file:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise StoreError(StoreFault.MISSING)
                yield from _pieces(file.read, until)
        except OSError as error:
            raise StoreError(_fault_of(error)) from error


class Container:
    """Archive store in a container of Azure Blob Storage, or in a folder of one. The address contains a shared access
    signature.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._key = parts.query
        self._pool = PoolManager(retries=False, maxsize=1)

    def shown(self) -> str:
        return self._base

    def put(self, name: str, content: BinaryIO, size: int) -> None:
        pieces = _pieces(content.read, time.monotonic() + WRITE_SECONDS)
        headers = {"x-ms-blob-type": "BlockBlob", "If-None-Match": "*", "Content-Length": str(size)}
        with closing(self._request("PUT", name, headers=headers, body=pieces)) as answer:
            status = answer.status
        if status == 403:
            # The answer also to a key that may create but not overwrite, if the file exists.
            with closing(self._request("HEAD", name)) as there:
                status = 409 if there.status == 200 else status
        # 409 and 412: the file exists, and is compared when it is read back.
        if status not in (201, 409, 412):
            raise StoreError(_refusal(status))

    def get(self, name: str, *, seconds: float) -> Iterator[bytes]:
        until = time.monotonic() + seconds
        with closing(self._request("GET", name, seconds=seconds)) as answer:
            if answer.status != 200:
                raise StoreError(_refusal(answer.status))
            try:
                yield from _pieces(answer.read1, until)
            except (HTTPError, OSError) as error:
                raise StoreError(StoreFault.AWAY) from error

    def _request(self, method: str, name: str, *, seconds: float = SILENCE_SECONDS, **more: Any) -> BaseHTTPResponse:
        """Send one request without following redirects. Raises StoreError."""
        address = f"{self._base}/{quote(checked(name))}" + (f"?{self._key}" if self._key else "")
        common = {"User-Agent": "Drydock", "Accept-Encoding": "identity", "x-ms-version": BLOB_VERSION}
        more["headers"] = {**common, **more.get("headers", {})}
        # The answer is neither followed nor repeated, and read piece by piece as it comes.
        more |= dict.fromkeys(("redirect", "retries", "preload_content", "decode_content"), False)
        timeout = Timeout(connect=min(CONNECT_SECONDS, seconds), read=min(SILENCE_SECONDS, seconds))
        try:
            return self._pool.urlopen(method, address, timeout=timeout, **more)
        except (HTTPError, OSError) as error:
            # The text of the error contains the address.
            raise StoreError(StoreFault.AWAY) from _Hidden(type(error).__name__)


class _Hidden(Exception):
    """Replacement for the exception that caused a failure. It contains only the type, because messages could contain
    secrets.
    """


def _pieces(read: Callable[[int], bytes], until: float) -> Iterator[bytes]:
    """Yield what `read` returns, piece by piece. Raises StoreError after the time `until`."""
    for piece in iter(partial(read, PIECE), b""):
        if time.monotonic() > until:
            raise StoreError(StoreFault.SLOW)
        yield piece


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


# Reading of the archive: lines from a store, each file checked against its manifest to the end.

# Maximum size of a manifest in bytes.
MOST_OF_A_MANIFEST = 64 * 1024
Keyed = tuple[Place, dict[str, str | None]]


def lines(store: Store, manifest: Manifest, *, seconds: float) -> Iterator[bytes]:
    """Yield the lines of an archive file. They are proved unchanged only by a complete read. Raises StoreError or
    BadArchiveError.
    """
    try:
        yield from archive_format.lines_of(manifest, store.get(manifest.name, seconds=seconds))
    except StoreError as error:
        if error.fault is StoreFault.MISSING:
            raise BadArchiveError(ArchiveFault.MISSING) from error
        raise


def fetched(store: Store, manifest: Manifest, *, seconds: float) -> Iterator[bytes]:
    """Verify a whole archive file and then yield its lines. Raises StoreError or BadArchiveError."""
    deque(lines(store, manifest, seconds=seconds), maxlen=0)
    yield from lines(store, manifest, seconds=seconds)


def check_file(store: Store, manifest: Manifest, *, seconds: float) -> None:
    """Verify an archive file and its manifest in the store by reading both completely. Raises StoreError or
    BadArchiveError.
    """
    check_manifest(store, manifest, seconds=seconds)
    deque(lines(store, manifest, seconds=seconds), maxlen=0)


def check_manifest(store: Store, manifest: Manifest, *, seconds: float) -> None:
    """Check that the manifest in the store equals this one. Raises StoreError or BadArchiveError."""
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
    if Manifest.from_file(found) != manifest:
        raise BadArchiveError(ArchiveFault.MANIFEST)


class SealedRows:
    """Timeline rows as the lines over which seals are computed. It combines archive files and database.

    `fault` is called once for each file with a fault. Each file is read once, in the order of the rows. Memory holds
    the rows of one seal and one piece of each open file.
    """

    def __init__(self, store: Store | None, *, fault: Callable[[Manifest, str], None], seconds: float) -> None:
        self._store = store
        self._fault = fault
        self._seconds = seconds
        self.looked_at = 0
        rows = ArchiveFile.objects.filter(kind=archive_format.ArchiveKind.ENTRIES.value).defer("events")
        manifests = [row.parsed_manifest for row in rows]
        self._files = sorted(manifests, key=_begin)
        # Files that are being read, each with its next row.
        self._open: list[tuple[Keyed, Iterator[Keyed]]] = []

    def reaches(self, until: Place, after: Place | None) -> bool:
        """Return whether archive files may contain rows between these two places."""
        return bool(self._open) or any(_begin(one) <= until and _ends_after(one, after) for one in self._files)

    def between(self, after: Place | None, until: Place) -> Iterator[bytes]:
        """Yield the lines of the rows after the place `after`, up to and including `until`."""
        while self._files and _begin(self._files[0]) <= until:
            one = self._files.pop(0)
            if _ends_after(one, after):
                rows = self._rows(one)
                self._open += [(first, rows) for first in islice(rows, 1)]
        opened, self._open = self._open, []
        found: list[Keyed] = []
        for first, rows in opened:
            for keyed in chain([first], rows):
                if keyed[0] > until:
                    self._open.append((keyed, rows))
                    break
                if after is None or keyed[0] > after:
                    found.append(keyed)
        found += self._live(after, until)
        # Rows that are not dropped yet are in both; those in the database count.
        found.sort(key=itemgetter(0))
        for _, same in groupby(found, key=itemgetter(0)):
            *_, (_, row) = same
            yield archive_format.sealed_line(row, COLUMNS, era=until[0])

    def finish(self) -> None:
        """Read the rest of all open files, which verifies them."""
        for rows in [*(rows for _, rows in self._open), *map(self._rows, self._files)]:
            deque(rows, maxlen=0)

    def _rows(self, one: Manifest) -> Iterator[Keyed]:
        self.looked_at += 1
        if self._store is None:
            self._fault(one, StoreFault.AWAY.value)
            return
        try:
            check_manifest(self._store, one, seconds=self._seconds)
            for line in fetched(self._store, one, seconds=self._seconds):
                yield archive_format.entry_of(line, COLUMNS.keys())
        except ArchiveError as error:
            self._fault(one, error.fault.value)

    def _live(self, after: Place | None, until: Place) -> Iterator[Keyed]:
        place = "(row.era, row.xid, row.id)"
        behind, values = ("row.era >= 1", []) if after is None else (f"{place} > (%s, %s, %s)", list(after))
        rest = b""
        within, parameters = f"{behind} AND {place} <= (%s, %s, %s)", [*values, *until]
        for block in archive_format.rows_as_lines(archive_format.ArchiveKind.ENTRIES, within, parameters):
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                yield archive_format.entry_of(line, COLUMNS.keys())


def _begin(one: Manifest) -> Place:
    return one.first_place or (0, 0, 0)


def _ends_after(one: Manifest, after: Place | None) -> bool:
    return after is None or (one.last_place is not None and one.last_place > after)
