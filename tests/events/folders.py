"""State folders of the model's machines, and the reports from them that the backend received, kept by hand."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Heard:
    """Of one machine: its spools in the order in which each first spoke, and up to where each came."""

    order: list[str] = field(default_factory=list)
    upto: dict[str, int] = field(default_factory=dict)

    def speaks(self, spool: str) -> None:
        """A call came with this spool."""
        if spool not in self.upto:
            self.order.append(spool)
            self.upto[spool] = 0

    def counts(self, spool: str, seq: int) -> bool:
        """A report came: whether it is news of the newest spool, or history."""
        self.speaks(spool)
        new = seq > self.upto[spool]
        self.upto[spool] = max(seq, self.upto[spool])
        return new and self.order[-1] == spool

    def behind(self, spool: str) -> bool:
        """A newer spool has spoken."""
        return spool in self.upto and self.order[-1] != spool


@dataclass(frozen=True)
class Backup:
    """A state folder as it was."""

    spool: str
    seq: int
    current: Any
    unsent: tuple[Any, ...]
