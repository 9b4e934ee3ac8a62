"""Where the files of the archive lie: a folder, or a container of Azure Blob Storage. Nothing is ever overwritten.

No message of these says more of the address than where it leads: what stands behind its question mark is a key.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import quote, unquote, urlsplit

from django.conf import settings
from urllib3 import BaseHTTPResponse, PoolManager, Timeout
from urllib3.exceptions import HTTPError

from fleet.domain.archive import MANIFEST_NAME, NAME, PIECE, StoreError, StoreFault

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
