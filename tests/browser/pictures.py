"""Which pictures the documentation has, and where each is taken."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Picture:
    """`name` is the file's in `docs/screenshots`, and ends with the kind: `light`, `dark` or `phone`. `path` may name
    what the `story` (`whole`, `caches`, `empty`) holds; `presses` are buttons that are pressed first.
    """

    name: str
    path: str
    story: str = "whole"
    presses: tuple[str, ...] = ()
    whole: bool = False

    @property
    def kind(self) -> str:
        return self.name.rpartition("-")[2]


PICTURES: tuple[Picture, ...] = (
    Picture("queue-light", "/"),
    Picture("queue-phone", "/"),
    Picture("event-dark", "/events/{event}/"),
    Picture("event-phone", "/events/{event}/#decision"),
    Picture("fleet-light", "/fleet/"),
    Picture("messages-light", "/messages/"),
    Picture("set-light", "/sets/{set}/"),
    Picture("first-steps-light", "/first-steps/", story="empty", presses=("Make a join token",), whole=True),
    Picture("cache-light", "/caches/{cache}/?hours=6", story="caches", whole=True),
    Picture("maintenance-light", "/maintenances/{maintenance}/", story="caches", whole=True),
)
