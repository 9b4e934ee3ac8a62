"""Where Drydock would not see what Azure announces, and how sure that is.

Sources: "Scheduled Events for Linux VMs in Azure", Microsoft, dated 01/25/2023; "possible" where issue threads say
otherwise than that page.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from fleet.domain.intake.spools import MANY_A_DAY
from fleet.domain.orders.signatures import SignatureCheck
from fleet.domain.reason import Reason
from fleet.domain.sets import PROVISIONAL
from fleet.domain.states import Presence

# A set without any request for 24 hours is switched off; people need some hours to see to it.
SWITCHED_OFF = timedelta(hours=24)
# An agent that is told that its document is not here sends it within seconds.
LACKING = timedelta(minutes=1)
NEAR_SWITCH_OFF = timedelta(hours=20)
# Series of sizes that never get events for upgrades and reimages of the operating system.
_WITHOUT_UPGRADE_EVENTS = re.compile(r"(?:standard_|basic_)?[gmnh][a-z]*\d", re.IGNORECASE)


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
    # The set of an open event that it lists without being of that set; empty where that has no name, None without one.
    lists_of: str | None = None
    # What it does about signatures of orders; empty until it said so.
    signatures: str = ""
    # Since when it reminds of a document that is not here; and how many spools it began within a day.
    lacking_since: datetime | None = None
    spools: int = 0

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
class BlindSpot:
    """`machine_ids` are those concerned, `names` theirs and those of machines without an agent; `values` are what its
    sentences name beside them.
    """

    code: str
    certainty: Confidence
    set_id: int | None
    machine_ids: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    cache_id: int | None = None

    @property
    def title(self) -> Reason:
        return Reason(f"{self.code}.title")

    @property
    def reason(self) -> Reason:
        return Reason(f"{self.code}.reason", names=self.names, **self.values)

    @property
    def advice(self) -> Reason:
        """What to do."""
        return Reason(f"{self.code}.advice", names=self.names, **self.values)


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
    """What cannot be advanced, by the name that people know it by."""

    what: str
    name: str
    why: str
    tries: int


ORDER = (
    "era-not-begun",
    "set-aside",
    "document-lacking",
    "switched-off",
    "near-switch-off",
    "agent-silent",
    "agent-gone",
    "agent-late",
    "agent-never-heard",
    "waits-for-admission",
    "admits-by-itself",
    "states-another-set",
    "lists-of-another-set",
    "name-held",
    "no-agent",
    "cache-unheard",
    "wrong-clock",
    "many-spools",
    "agent-too-old",
    "signatures-unchecked",
    "no-signing-key",
    "strange-signing-keys",
    "upgrades-unannounced",
    "size-without-upgrade-events",
    "zone-without-poller",
    "upgrades-unknown",
    "unnamed-set",
)


def read_version(text: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version; empty when there are none."""
    found = re.match(r"\d+(?:\.\d+)*", text.strip())
    return tuple(int(part) for part in found[0].split(".")[:6]) if found else ()


def blind_spots(
    sets: Iterable[SetFacts],
    *,
    alone: Sequence[str] = (),
    waiting: Sequence[str] = (),
    caches: Iterable[CacheFacts] = (),
    aside: Iterable[SetAsideFacts] = (),
    era_missing: bool = False,
    now: datetime,
    version: str,
    protocol: int,
    clock_tolerance: float,
) -> list[BlindSpot]:
    """Every blind spot, the surest and most dangerous first, then in the order of the sets.

    `alone` are names of machines that stand alone in an inventory and have no agent, `waiting` of those for which
    somebody waits for admission; `era_missing`: the database numbers its transactions anew; `version` and `protocol`
    are the backend's own.
    """
    found: list[BlindSpot] = []
    for each in sets:
        found += _switch_off(each, now)
        found += _presence(each)
        found += _old(each, version, protocol)
        found += _clocks(each, clock_tolerance)
        found += _stated_elsewhere(each)
        found += _lists_elsewhere(each)
        found += _named_twice(each)
        found += _signatures(each)
        if each.admits_until is not None and each.admits_until > now:
            found.append(_of(each, each.agents, "admits-by-itself", Confidence.POSSIBLE, until=each.admits_until))
        found += _lacking(each, now)
        found += _many_spools(each)
        found += _missing(each)
        found += _zones(each)
        found += _upgrades(each)
        found += _unnamed(each)
    if waiting:
        found.append(BlindSpot("waits-for-admission", Confidence.POSSIBLE, None, names=tuple(waiting)))
    if era_missing:
        found.append(BlindSpot("era-not-begun", Confidence.CERTAIN, None))
    if alone:
        found.append(_without_agent(None, alone))
    found += [_unheard(cache) for cache in caches if not cache.listening]
    found += [_set_aside(row) for row in aside]
    return sorted(found, key=lambda spot: ORDER.index(spot.code))


def _of(
    each: SetFacts, agents: Sequence[AgentFacts], code: str, certainty: Confidence = Confidence.CERTAIN, **values: Any
) -> BlindSpot:
    return BlindSpot(
        code=code,
        certainty=certainty,
        set_id=each.set_id,
        machine_ids=tuple(agent.machine_id for agent in agents),
        names=tuple(agent.name for agent in agents),
        values=values,
    )


def _switch_off(each: SetFacts, now: datetime) -> list[BlindSpot]:
    if not each.agents:
        return []
    silent = now - max(agent.last_poll_at or agent.enrolled_at for agent in each.agents)
    if silent <= NEAR_SWITCH_OFF:
        return []
    hours = int(silent.total_seconds() // 3600)
    if silent <= SWITCHED_OFF:
        return [_of(each, each.agents, "near-switch-off", hours=hours)]
    # Another program on the machines may still ask.
    return [_of(each, each.agents, "switched-off", Confidence.LIKELY, hours=hours)]


PRESENCES = {
    Presence.SILENT: "agent-silent",
    Presence.GONE: "agent-gone",
    Presence.LATE: "agent-late",
    Presence.EXPECTED: "agent-never-heard",
}


def _presence(each: SetFacts) -> list[BlindSpot]:
    found = []
    for presence, code in PRESENCES.items():
        agents = [agent for agent in each.agents if agent.presence is presence]
        if agents:
            found.append(_of(each, agents, code))
    return found


def _old(each: SetFacts, version: str, protocol: int) -> list[BlindSpot]:
    def old(agent: AgentFacts) -> bool:
        theirs = read_version(agent.agent_version)
        return agent.protocol < protocol or (bool(theirs) and theirs < read_version(version))

    agents = [agent for agent in each.agents if old(agent)]
    if not agents:
        return []
    versions = sorted({agent.agent_version for agent in agents})
    return [_of(each, agents, "agent-too-old", Confidence.POSSIBLE, versions=versions, own=version)]


def _clocks(each: SetFacts, tolerance: float) -> list[BlindSpot]:
    agents = [a for a in each.agents if a.clock_offset is not None and abs(a.clock_offset) > tolerance]
    if not agents:
        return []
    worst = max((agent.clock_offset or 0 for agent in agents), key=abs)
    return [_of(each, agents, "wrong-clock", offset=worst)]


def _stated_elsewhere(each: SetFacts) -> list[BlindSpot]:
    return [
        _of(each, [agent], "states-another-set", Confidence.POSSIBLE, warning=agent.outside)
        for agent in each.agents
        if agent.outside is not None
    ]


def _lists_elsewhere(each: SetFacts) -> list[BlindSpot]:
    found = []
    for name in sorted({agent.lists_of for agent in each.agents if agent.lists_of is not None}):
        agents = [agent for agent in each.agents if agent.lists_of == name]
        found.append(_of(each, agents, "lists-of-another-set", Confidence.POSSIBLE, set=name))
    return found


def _named_twice(each: SetFacts) -> list[BlindSpot]:
    # One that is not heard any more was made anew under its old name, and says so elsewhere.
    heard = (Presence.LIVE, Presence.LATE, Presence.EXPECTED)
    agents = [agent for agent in each.agents if agent.called and agent.presence in heard]
    named = sorted({agent.called for agent in agents})
    return [_of(each, agents, "name-held", Confidence.POSSIBLE, called=named)] if agents else []


SIGNATURES: dict[str, str] = {
    SignatureCheck.NONE: "signatures-unchecked",
    SignatureCheck.NO_KEY: "no-signing-key",
    SignatureCheck.STRANGE_KEYS: "strange-signing-keys",
}


def _signatures(each: SetFacts) -> list[BlindSpot]:
    found = []
    for check, code in SIGNATURES.items():
        agents = [agent for agent in each.agents if agent.signatures == check]
        if agents:
            found.append(_of(each, agents, code))
    return found


def _lacking(each: SetFacts, now: datetime) -> list[BlindSpot]:
    """Agents of 0.1.0 mostly: newer ones send what is missing."""
    agents = [agent for agent in each.agents if agent.lacking_since is not None and now > agent.lacking_since + LACKING]
    return [_of(each, agents, "document-lacking")] if agents else []


def _many_spools(each: SetFacts) -> list[BlindSpot]:
    agents = [agent for agent in each.agents if agent.spools >= MANY_A_DAY]
    most = max((agent.spools for agent in agents), default=0)
    return [_of(each, agents, "many-spools", Confidence.LIKELY, most=most)] if agents else []


def _without_agent(set_id: int | None, names: Iterable[str]) -> BlindSpot:
    return BlindSpot(code="no-agent", certainty=Confidence.CERTAIN, set_id=set_id, names=tuple(names))


def _unheard(cache: CacheFacts) -> BlindSpot:
    return BlindSpot(
        code="cache-unheard",
        certainty=Confidence.CERTAIN,
        set_id=None,
        names=(cache.host,),
        values={"supported": cache.supported, "reasons": cache.reasons},
        cache_id=cache.cache_id,
    )


def _set_aside(row: SetAsideFacts) -> BlindSpot:
    values = {"what": row.what, "why": row.why, "tries": row.tries}
    return BlindSpot(code="set-aside", certainty=Confidence.CERTAIN, set_id=None, names=(row.name,), values=values)


def _missing(each: SetFacts) -> list[BlindSpot]:
    return [_without_agent(each.set_id, (name for name, _, _ in each.missing))] if each.missing else []


def _zones(each: SetFacts) -> list[BlindSpot]:
    # Where nobody polls at all, others say so; the question of zones is one of sets that are watched from elsewhere.
    polled = {agent.zone for agent in each.agents if agent.live}
    if not polled:
        return []
    zones = {agent.zone for agent in each.agents} | {zone for _, zone, _ in each.missing}
    found = []
    for zone in sorted(zones - polled - {""}):
        agents = [agent for agent in each.agents if agent.zone == zone]
        found.append(_of(each, agents, "zone-without-poller", Confidence.POSSIBLE, zone=zone))
    return found


def never_announces_upgrades(size: str) -> bool:
    """Sizes of the series G, M, N and H never get events for upgrades and reimages of the operating system."""
    return _WITHOUT_UPGRADE_EVENTS.match(size.strip()) is not None


def _upgrades(each: SetFacts) -> list[BlindSpot]:
    if each.kind != "scale_set":
        return []
    found = []
    agents = [agent for agent in each.agents if never_announces_upgrades(agent.size)]
    sizes = {agent.size for agent in agents} | {size for _, _, size in each.missing if never_announces_upgrades(size)}
    if sizes:
        found.append(_of(each, agents, "size-without-upgrade-events", sizes=sorted(sizes)))
    others = [agent for agent in each.agents if agent not in agents]
    if each.upgrade_notices or (agents and not others):
        return found
    if each.upgrade_notices is None:
        return [*found, _of(each, others, "upgrades-unknown", Confidence.UNKNOWN)]
    return [*found, _of(each, others, "upgrades-unannounced")]


def _unnamed(each: SetFacts) -> list[BlindSpot]:
    return [_of(each, each.agents, "unnamed-set", Confidence.POSSIBLE)] if each.kind == PROVISIONAL else []
