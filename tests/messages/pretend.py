"""Stand-ins of services that tests cannot run, each behind a receiver on loopback."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from tests.receivers import Received, receiver


@dataclass(frozen=True, slots=True)
class Said:
    """An answer of the service."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


class Service(Protocol):
    """Stand-in for a service: handles one request at a time."""

    url: str

    def asked(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Said: ...


@contextmanager
def listening(service: Service) -> Iterator[None]:
    """The service answers at its `url`, for the length of a block."""
    lock = threading.Lock()

    def answer(got: Received) -> tuple[int, Mapping[str, str], bytes]:
        with lock:
            said = service.asked(got.method, got.path, got.headers, got.body)
        return said.status, said.headers, said.body

    with receiver() as there:
        there.answer, service.url = answer, there.url
        yield
