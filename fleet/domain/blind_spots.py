"""Where Drydock would not see what Azure announces: each blind spot with its reason, what to do, and how sure that is.

Sources: "Scheduled Events for Linux VMs in Azure", Microsoft, dated 01/25/2023; "possible" where issue threads say
otherwise than that page.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from fleet.domain.sets import PROVISIONAL
from fleet.domain.states import Presence

# A set without any request for 24 hours is switched off; people need some hours to see to it.
SWITCHED_OFF = timedelta(hours=24)
NEAR_SWITCH_OFF = timedelta(hours=20)
# Series of sizes that never get events for upgrades and reimages of the operating system.
_WITHOUT_UPGRADE_EVENTS = re.compile(r"(?:standard_|basic_)?[gmnh][a-z]*\d", re.IGNORECASE)


class Certainty(StrEnum):
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


@dataclass(frozen=True, slots=True)
class BlindSpot:
    """`machine_ids` are those concerned, `names` theirs and those of machines without an agent."""

    code: str
    certainty: Certainty
    reason: str
    advice: str
    set_id: int | None
    machine_ids: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    cache_id: int | None = None


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """One cache: whether an agent listens, and whether its host publishes notifications at all."""

    cache_id: int
    host: str
    listening: bool
    supported: bool
    # Why the agents that should listen do not, each once.
    reasons: tuple[str, ...] = ()


def listed(names: Sequence[str], limit: int = 5) -> str:
    """`vm1, vm2 and 3 more`."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def _count(number: int) -> str:
    return "1 machine" if number == 1 else f"{number} machines"


def read_version(text: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version; empty when there are none."""
    found = re.match(r"\d+(?:\.\d+)*", text.strip())
    return tuple(int(part) for part in found[0].split(".")[:6]) if found else ()


def blind_spots(
    sets: Iterable[SetFacts],
    *,
    alone: Sequence[str] = (),
    caches: Iterable[CacheFacts] = (),
    now: datetime,
    version: str,
    protocol: int,
    clock_tolerance: float,
) -> list[BlindSpot]:
    """Every blind spot, the surest and most dangerous first, then in the order of the sets.

    `alone` are names of machines that stand alone in an inventory and have no agent; `version` and `protocol` are the
    backend's own.
    """
    found: list[BlindSpot] = []
    for each in sets:
        found += _switch_off(each, now)
        found += _presence(each)
        found += _old(each, version, protocol)
        found += _clocks(each, clock_tolerance)
        found += _missing(each)
        found += _zones(each)
        found += _upgrades(each)
        found += _unnamed(each)
    if alone:
        found.append(_without_agent(None, alone))
    found += [_unheard(cache) for cache in caches if not cache.listening]
    return sorted(found, key=lambda spot: ORDER.index(spot.code))


def _unheard(cache: CacheFacts) -> BlindSpot:
    if not cache.supported:
        reason = f"{cache.host} publishes no maintenance notifications: its maintenance cannot be seen."
        advice = (
            "Let the programs that use it find lost connections by themselves, and take it out of the agents' caches."
        )
    else:
        why = f" ({listed(cache.reasons, 3)})" if cache.reasons else ""
        reason = f"Nobody listens to {cache.host}{why}. Its notifications are not repeated: what is sent now is lost."
        advice = "Look at the cache's page; let agents on at least two machines listen."
    return BlindSpot(
        code="cache-unheard",
        certainty=Certainty.CERTAIN,
        reason=reason,
        advice=advice,
        set_id=None,
        names=(cache.host,),
        cache_id=cache.cache_id,
    )


ORDER = (
    "switched-off",
    "near-switch-off",
    "agent-silent",
    "agent-gone",
    "agent-late",
    "agent-never-heard",
    "no-agent",
    "cache-unheard",
    "wrong-clock",
    "agent-too-old",
    "upgrades-unannounced",
    "size-without-upgrade-events",
    "zone-without-poller",
    "upgrades-unknown",
    "unnamed-set",
)


def _of(
    each: SetFacts, agents: Sequence[AgentFacts], code: str, certainty: Certainty, reason: str, advice: str
) -> BlindSpot:
    return BlindSpot(
        code=code,
        certainty=certainty,
        reason=reason,
        advice=advice,
        set_id=each.set_id,
        machine_ids=tuple(agent.machine_id for agent in agents),
        names=tuple(agent.name for agent in agents),
    )


def _switch_off(each: SetFacts, now: datetime) -> list[BlindSpot]:
    if not each.agents:
        return []
    newest = max(agent.last_poll_at or agent.enrolled_at for agent in each.agents)
    quiet = now - newest
    if quiet <= NEAR_SWITCH_OFF:
        return []
    hours = int(quiet.total_seconds() // 3600)
    advice = "Bring one of its agents back: its first request switches the service on, and may take two minutes."
    if quiet <= SWITCHED_OFF:
        reason = (
            f"No machine of the set has had a good answer for {hours} hours. After 24 hours without a request Azure"
            " switches Scheduled Events off."
        )
        return [_of(each, each.agents, "near-switch-off", Certainty.CERTAIN, reason, advice)]
    reason = (
        f"No machine of the set has had a good answer for {hours} hours, and Azure switches Scheduled Events off after"
        " 24 hours without a request. Another program on the machines may still ask."
    )
    return [_of(each, each.agents, "switched-off", Certainty.LIKELY, reason, advice)]


# Presence, code, what is the matter, what to do.
_PRESENCES: tuple[tuple[Presence, str, str, str], ...] = (
    (
        Presence.SILENT,
        "agent-silent",
        "No word, or no good answer of the metadata service, from {names} for some time.",
        "Look whether the machine runs, whether its agent does, and what “drydock-agent check” says on it.",
    ),
    (
        Presence.GONE,
        "agent-gone",
        "Nothing from {names} for more than a day.",
        "Revoke it if the machine is no more; else bring its agent back.",
    ),
    (
        Presence.LATE,
        "agent-late",
        "No fresh word from {names}: their votes and orders wait until they are heard again.",
        "Wait a few minutes; if it stays so, look at the network between the machine and Drydock.",
    ),
    (
        Presence.EXPECTED,
        "agent-never-heard",
        "Enrolled, and never heard afterwards: {names}.",
        "Look at the agent's log: it enrolled, so it can reach Drydock.",
    ),
)


def _presence(each: SetFacts) -> list[BlindSpot]:
    found = []
    for presence, code, reason, advice in _PRESENCES:
        agents = [agent for agent in each.agents if agent.presence is presence]
        if agents:
            said = reason.format(names=listed([agent.name for agent in agents]))
            found.append(_of(each, agents, code, Certainty.CERTAIN, said, advice))
    return found


def _old(each: SetFacts, version: str, protocol: int) -> list[BlindSpot]:
    def old(agent: AgentFacts) -> bool:
        theirs = read_version(agent.agent_version)
        return agent.protocol < protocol or (bool(theirs) and theirs < read_version(version))

    agents = [agent for agent in each.agents if old(agent)]
    if not agents:
        return []
    versions = ", ".join(sorted({agent.agent_version or "an unknown version" for agent in agents}))
    reason = f"{listed([agent.name for agent in agents])} run {versions}, older than Drydock's own {version}."
    return [
        _of(
            each,
            agents,
            "agent-too-old",
            Certainty.POSSIBLE,
            f"{reason} What an older agent does not know, it does not report.",
            "Bring the agents to the version of the backend; each may be restarted at any time.",
        )
    ]


def _clocks(each: SetFacts, tolerance: float) -> list[BlindSpot]:
    agents = [a for a in each.agents if a.clock_offset is not None and abs(a.clock_offset) > tolerance]
    if not agents:
        return []
    worst = max(agents, key=lambda agent: abs(agent.clock_offset or 0))
    way = "ahead" if (worst.clock_offset or 0) > 0 else "behind"
    reason = (
        f"The clock of {listed([agent.name for agent in agents])} is wrong by up to {abs(worst.clock_offset or 0):.1f}"
        f" seconds ({way}). Reported times are corrected; what the machine does by its own clock is not."
    )
    advice = "Repair the time synchronisation of the machine."
    return [_of(each, agents, "wrong-clock", Certainty.CERTAIN, reason, advice)]


def _without_agent(set_id: int | None, names: Sequence[str]) -> BlindSpot:
    which = f"{_count(len(names))} of the imported inventory {'has' if len(names) == 1 else 'have'} no agent"
    return BlindSpot(
        code="no-agent",
        certainty=Certainty.CERTAIN,
        reason=f"{which}: {listed(names)}.",
        advice="Install the agent there, or import a newer inventory with --complete if the machine is no more.",
        set_id=set_id,
        names=tuple(names),
    )


def _missing(each: SetFacts) -> list[BlindSpot]:
    return [_without_agent(each.set_id, [name for name, _, _ in each.missing])] if each.missing else []


def _zones(each: SetFacts) -> list[BlindSpot]:
    # Where nobody polls at all, others say so; the question of zones is one of sets that are watched from elsewhere.
    polled = {agent.zone for agent in each.agents if agent.live}
    if not polled:
        return []
    zones = {agent.zone for agent in each.agents} | {zone for _, zone, _ in each.missing}
    found = []
    for zone in sorted(zones - polled - {""}):
        agents = [agent for agent in each.agents if agent.zone == zone]
        reason = (
            f"No live agent of the set is in zone {zone}. Microsoft's page says that delivery does not depend on zones;"
            " one issue thread says that a zonal scale set needs a poller in each zone."
        )
        advice = f"Have at least one live agent in zone {zone}, to be on the safe side."
        found.append(_of(each, agents, "zone-without-poller", Certainty.POSSIBLE, reason, advice))
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
        reason = (
            f"Machines of size {listed(sorted(sizes))} never get events for upgrades and reimages of their operating"
            " system: the series G, M, N and H have none."
        )
        advice = "Plan such upgrades yourself; every other event is announced as usual."
        found.append(_of(each, agents, "size-without-upgrade-events", Certainty.CERTAIN, reason, advice))
    others = [agent for agent in each.agents if agent not in agents]
    if each.upgrade_notices or (agents and not others):
        return found
    enable = (
        "Enable OSImageNotificationProfile of the scale set if upgrades of its operating system should be announced"
    )
    if each.upgrade_notices is None:
        reason = (
            "Upgrades and reimages of a scale set's operating system are announced only where its"
            " OSImageNotificationProfile is enabled; a machine cannot see that, and no inventory has said it."
        )
        advice = f"Import what “az vmss list” prints. {enable}."
        return [*found, _of(each, others, "upgrades-unknown", Certainty.UNKNOWN, reason, advice)]
    reason = (
        "The imported inventory says that OSImageNotificationProfile is not enabled: upgrades and reimages of the"
        " operating system come without an event."
    )
    return [*found, _of(each, others, "upgrades-unannounced", Certainty.CERTAIN, reason, f"{enable}.")]


def _unnamed(each: SetFacts) -> list[BlindSpot]:
    if each.kind != PROVISIONAL:
        return []
    reason = (
        f"Nobody has said which set {listed([agent.name for agent in each.agents]) or 'this'} belongs to. Its other"
        " machines may be missing here, and are not counted when an event is judged."
    )
    advice = (
        "Name it on its page, state it in the agent's configuration or a tag, or import an inventory;"
        " a shared event joins it by itself."
    )
    return [_of(each, each.agents, "unnamed-set", Certainty.POSSIBLE, reason, advice)]
