"""Steps of an uploader, by hand."""

from __future__ import annotations

from drydock_agent import wire
from drydock_agent.backend.uploader import Uploader
from drydock_agent.clock import Clock


def until_idle(uploader: Uploader) -> float:
    while (pause := uploader.step()) == 0.0:
        pass
    return pause


def fill(uploader: Uploader, count: int, kind: str = wire.REMINDER) -> None:
    for number in range(count):
        uploader._spool.add(kind, Clock().now(), {"number": number})
