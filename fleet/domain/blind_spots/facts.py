"""What is judged for blind spots, and a blind spot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from fleet.domain.reason import Reason
from fleet.domain.states import Presence


class Confidence(StrEnum):
    """How sure a blind spot is."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"
    UNKNOWN = "cannot be told from here"


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """One enrolled machine that is not revoked. `clock_offset` is seconds that its clock is ahead, None if unknown."""

    machine_id: int
    name: str
    presence: Presence
    last_heard_at: datetime | None
    last_poll_at: datetime | None
    enrolled_at: datetime
    clock_offset: float | None
    agent_version: str
    protocol: int
    zone: str
    size: str
    # What is stated of a set to which it is not confined.
    outside: Reason | None = None
    # What it calls itself while another machine of its set has that name; else empty.
    called: str = ""
    # The set of an open event that it lists without being of that set: its name, empty where it has none, and its row
    # id; None without one.
    lists_of: str | None = None
    lists_of_set: int | None = None
    # What it does about signatures of orders; empty until it said so.
    signatures: str = ""
    # Since when it reminds of a document that is not here; and how many spools it began within a day.
    lacking_since: datetime | None = None
    spools: int = 0
    # Reconciling has not noted yet that it is as present as it is.
    turning: bool = False

    @property
    def live(self) -> bool:
        return self.presence is Presence.LIVE


@dataclass(frozen=True, slots=True)
class SetFacts:
    """One set with its machines, and the machines that an inventory lists without an agent as (name, zone, size)."""

    set_id: int
    kind: str
    upgrade_notices: bool | None
    agents: tuple[AgentFacts, ...]
    missing: tuple[tuple[str, str, str], ...] = ()
    # Until then machines that come back are admitted by themselves.
    admits_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """One cache: whether an agent listens, and whether its host publishes notifications at all."""

    cache_id: int
    host: str
    listening: bool
    supported: bool
    # Why the agents that should listen do not, each once: the agent's own words, or its state.
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SetAsideFacts:
    """What cannot be advanced, by the name that people know it by; `event_id` where it is one, or of one."""

    what: str
    name: str
    why: str
    tries: int
    event_id: str = ""


@dataclass(frozen=True, slots=True)
class BlindSpot:
    """`machine_ids` are those concerned, `names` theirs and those of machines without an agent, the first of `count`;
    `values` are what its sentences name beside them. `part` tells it from others of its code in one set; `other_set` is
    another set that it names (row id).
    """

    code: str
    certainty: Confidence
    set_id: int | None
    machine_ids: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    cache_id: int | None = None
    event_id: str = ""
    count: int = 0
    part: str = ""
    other_set: int | None = None

    @property
    def title(self) -> Reason:
        return Reason(f"{self.code}.title")

    @property
    def reason(self) -> Reason:
        return Reason(f"{self.code}.reason", names=self._all_names, **self.values)

    @property
    def advice(self) -> Reason:
        """What to do."""
        return Reason(f"{self.code}.advice", names=self._all_names, **self.values)

    @property
    def _all_names(self) -> tuple[str, ...]:
        # Those that are not here are counted only.
        return (*self.names, *("",) * (self.count - len(self.names)))


def of_agents(
    each: SetFacts,
    agents: Sequence[AgentFacts],
    code: str,
    certainty: Confidence = Confidence.CERTAIN,
    *,
    part: str = "",
    other_set: int | None = None,
    **values: Any,
) -> BlindSpot:
    return BlindSpot(
        code=code,
        certainty=certainty,
        set_id=each.set_id,
        machine_ids=tuple(agent.machine_id for agent in agents),
        names=tuple(agent.name for agent in agents),
        values=values,
        count=len(agents),
        part=part,
        other_set=other_set,
    )
