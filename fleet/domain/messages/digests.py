"""A digest: one message that stands for a storm of events, and is edited while they go on."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from fleet.domain.messages.severity import Severity

# It takes in what else comes for so long, and so many; then there is another one.
OPEN_FOR = timedelta(hours=1)
MOST = 1500
NEAREST = 5


@dataclass(frozen=True, slots=True)
class DigestEvent:
    """One event of a digest, while it is open. `deadline`: by when something has to be decided about it."""

    event_type: str
    what: str
    severity: str
    started: bool
    waits: bool
    on_it: bool
    deadline: datetime | None = None


@dataclass(slots=True)
class Digest:
    """`of` is its service, empty for events of several. `place` is what the channel calls its message, `told` the last
    post that is in it.
    """

    of: str
    at: datetime
    events: dict[str, DigestEvent] = field(default_factory=dict)
    over: int = 0
    drill: bool = False
    place: Mapping[str, str] = field(default_factory=dict)
    told: str = ""

    def takes_in(self, *, now: datetime) -> bool:
        return bool(self.events) and now - self.at < OPEN_FOR and len(self.events) < MOST

    def end(self, subject: str) -> None:
        if self.events.pop(subject, None) is not None:
            self.over += 1

    @property
    def total(self) -> int:
        return len(self.events) + self.over

    @property
    def types(self) -> list[tuple[str, int]]:
        """How many of each type are open, most first."""
        return Counter(event.event_type for event in self.events.values()).most_common()

    @property
    def nearest(self) -> list[tuple[datetime, DigestEvent]]:
        """Those about which somebody has to decide next, each with by when."""
        due = [(event.deadline, event) for event in self.events.values() if event.waits and event.deadline]
        return sorted(due, key=lambda one: (one[0], one[1].what))[:NEAREST]

    @property
    def urgency(self) -> tuple[int, float]:
        """Greater is worse: severity first, then how near the next deadline is."""
        ranks = [list(reversed(Severity)).index(Severity(event.severity)) for event in self.events.values()]
        nearest = self.nearest[0][0] if self.nearest else None
        return max(ranks, default=0), -nearest.timestamp() if nearest else float("-inf")

    def count(self, which: str) -> int:
        """How many open ones have started, wait for a decision (`waits`), or have somebody on them (`on_it`)."""
        return sum(bool(getattr(event, which)) for event in self.events.values())

    def as_json(self) -> dict[str, Any]:
        events = {
            subject: {**asdict(event), "deadline": event.deadline.isoformat() if event.deadline else None}
            for subject, event in self.events.items()
        }
        own = {"of": self.of, "at": self.at.isoformat(), "over": self.over, "drill": self.drill, "told": self.told}
        return {**own, "place": dict(self.place), "events": events}

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> "Digest":
        events = {
            subject: DigestEvent(
                **{**event, "deadline": datetime.fromisoformat(event["deadline"]) if event["deadline"] else None}
            )
            for subject, event in kept["events"].items()
        }
        at = datetime.fromisoformat(kept["at"])
        return cls(kept["of"], at, events, kept["over"], kept["drill"], kept["place"], kept["told"])


def one_service(services: Iterable[str]) -> str:
    """The service that they all are of; empty where there are several."""
    found = set(services)
    return found.pop() if len(found) == 1 else ""
