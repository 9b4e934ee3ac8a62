"""How many connections each process of Drydock opens to Postgres at most: its name there says so, and whoever reads the
names of all knows whether they fit.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "drydock"
# So many channels are told at once by one process, each in a thread with a connection of its own; beside these are the
# threads that route and that tell the watchdog.
CHANNELS_AT_ONCE = 16
TELLING = CHANNELS_AT_ONCE + 2
# Of an `application_name`.
MOST_CHARACTERS = 63
NAME = re.compile(rf"{PREFIX} (?P<kind>\w+) (?P<most>\d{{1,6}}) \S+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Connections:
    """`processes` of Drydock that are connected, by kind, and how many connections they open at `most`; `others` has
    somebody else on the same server; `room` is how many it has for all who are no superusers.
    """

    processes: Mapping[str, int]
    most: int
    others: int
    room: int

    @property
    def fit(self) -> bool:
        return self.most + self.others <= self.room


def name_of(kind: str, *, most: int, process: str) -> str:
    """What a process of this kind is called at Postgres; `process` tells it from all others."""
    return f"{PREFIX} {kind} {most} {process}"[:MOST_CHARACTERS]


def read_names(ours: Mapping[str, int], *, others: int, room: int) -> Connections:
    """Out of the names of sessions in our own database, with how many sessions have each. One whose name says nothing,
    as of a command or of release 0.1.0, counts for what it has.
    """
    found = {name: NAME.fullmatch(name) for name in ours}
    processes: dict[str, int] = {}
    for match in found.values():
        if match is not None:
            processes[match["kind"]] = processes.get(match["kind"], 0) + 1
    most = sum(max(int(match["most"]), ours[name]) if match else ours[name] for name, match in found.items())
    return Connections(processes, most, others, room)
