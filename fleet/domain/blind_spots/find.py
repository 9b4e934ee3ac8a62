"""Finds all blind spots of a fleet, the most dangerous first: those of agents and those of whole sets."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fleet.domain.blind_spots.facts import (
    AgentFacts,
    BlindSpot,
    Confidence,
    SetFacts,
    code_of,
    of_agents,
)
from fleet.domain.intake import MANY_A_DAY
from fleet.domain.orders.series import SignatureCheck
from fleet.domain.sets import PROVISIONAL
from fleet.domain.states import Presence

# An agent sends a missing document within seconds after the backend requests it.
LACKING = timedelta(minutes=1)


def read_version(text: str) -> tuple[tuple[int, ...], bool]:
    """Return the numbers of a version's release, and whether it is that release and no earlier build of it. To compare;
    without numbers if there are none.
    """
    found = re.match(r"(\d+(?:\.\d+)*)(?:[._-]?(a|b|c|dev|pre|rc))?", text.strip(), re.IGNORECASE)
    return (tuple(int(part) for part in found[1].split(".")[:6]), found[2] is None) if found else ((), True)


PRESENCES = {
    Presence.SILENT: "agent-silent",
    Presence.GONE: "agent-gone",
    Presence.LATE: "agent-late",
    Presence.EXPECTED: "agent-never-heard",
}
SIGNATURES: dict[str, str] = {
    SignatureCheck.NONE: "signatures-unchecked",
    SignatureCheck.NO_KEY: "no-signing-key",
    SignatureCheck.STRANGE_KEYS: "strange-signing-keys",
}
# A machine that is not heard any more was created again under its old name, and appears elsewhere.
NAMED = (Presence.LIVE, Presence.LATE, Presence.EXPECTED)


def of_its_agents(
    each: SetFacts, *, now: datetime, version: str, protocol: int, clock_tolerance: float
) -> Iterator[BlindSpot]:
    """Yield the blind spots of a set's agents.

    `version` and `protocol` are the backend's; older agents are reported. `clock_tolerance` is in seconds.
    """
    refused = [agent for agent in each.agents if agent.poll_problem and not agent.live]
    for problem in sorted({agent.poll_problem for agent in refused}):
        agents = [agent for agent in refused if agent.poll_problem == problem]
        yield of_agents(each, agents, code_of(problem), part=problem, problem=problem)
    for presence, code in PRESENCES.items():
        if agents := [agent for agent in each.agents if agent.presence is presence and agent not in refused]:
            yield of_agents(each, agents, code)
    for check, code in SIGNATURES.items():
        if agents := [agent for agent in each.agents if agent.signatures == check]:
            yield of_agents(each, agents, code)
    if agents := [agent for agent in each.agents if _is_old(agent, version, protocol)]:
        versions = sorted({agent.agent_version for agent in agents})
        yield of_agents(each, agents, "agent-too-old", Confidence.POSSIBLE, versions=versions, own=version)
    if agents := [agent for agent in each.agents if abs(agent.clock_offset or 0) > clock_tolerance]:
        worst = max((agent.clock_offset or 0 for agent in agents), key=abs)
        yield of_agents(each, agents, "wrong-clock", offset=worst)
    for agent in each.agents:
        if agent.outside is not None:
            part = str(agent.machine_id)
            yield of_agents(each, [agent], "states-another-set", Confidence.POSSIBLE, part=part, warning=agent.outside)
    yield from _lists_elsewhere(each)
    if agents := [agent for agent in each.agents if agent.called and agent.presence in NAMED]:
        names = sorted({agent.called for agent in agents})
        yield of_agents(each, agents, "name-held", Confidence.POSSIBLE, called=names)
    # Agents of 0.1.0 mostly: newer ones send missing documents.
    if agents := [agent for agent in each.agents if agent.lacking_since and now > agent.lacking_since + LACKING]:
        yield of_agents(each, agents, "document-lacking")
    if agents := [agent for agent in each.agents if agent.spools >= MANY_A_DAY]:
        most = max(agent.spools for agent in agents)
        yield of_agents(each, agents, "many-spools", Confidence.LIKELY, most=most)


def _is_old(agent: AgentFacts, version: str, protocol: int) -> bool:
    theirs = read_version(agent.agent_version)
    return agent.protocol < protocol or (bool(theirs[0]) and theirs < read_version(version))


def _lists_elsewhere(each: SetFacts) -> Iterator[BlindSpot]:
    others = {(agent.lists_of, agent.lists_of_set) for agent in each.agents if agent.lists_of is not None}
    for name, other in sorted(others, key=lambda one: (one[0] or "", one[1] or 0)):
        agents = [agent for agent in each.agents if (agent.lists_of, agent.lists_of_set) == (name, other)]
        part = str(other or "")
        yield of_agents(each, agents, "lists-of-another-set", Confidence.POSSIBLE, part=part, other_set=other, set=name)


# Blind spots of a set as a whole: switched off, without agents, with zones and upgrades unheard of, unnamed.

# A set without any request for 24 hours is switched off; people need some hours to see to it.
SWITCHED_OFF = timedelta(hours=24)
NEAR_SWITCH_OFF = timedelta(hours=20)
# Series of sizes that never get events for upgrades and reimages of the operating system.
_WITHOUT_UPGRADE_EVENTS = re.compile(r"(?:standard_|basic_)?[gmnh][a-z]*\d", re.IGNORECASE)


def of_the_set(each: SetFacts, *, now: datetime) -> Iterator[BlindSpot]:
    """Yield the blind spots of a set as a whole."""
    yield from _switch_off(each, now)
    if each.admits_until is not None and each.admits_until > now:
        yield of_agents(each, each.agents, "admits-by-itself", Confidence.POSSIBLE, until=each.admits_until)
    if each.missing:
        yield without_agent(each.set_id, (name for name, _, _ in each.missing))
    yield from _zones(each)
    if each.kind == "scale_set":
        yield from _upgrades(each)
    if each.kind == PROVISIONAL:
        yield of_agents(each, each.agents, "unnamed-set", Confidence.POSSIBLE)


def _switch_off(each: SetFacts, now: datetime) -> Iterator[BlindSpot]:
    if not each.agents:
        return
    silent = now - max(agent.last_poll_at or agent.enrolled_at for agent in each.agents)
    hours = int(silent.total_seconds() // 3600)
    if silent > SWITCHED_OFF:
        # Another program on the machines may still poll.
        yield of_agents(each, each.agents, "switched-off", Confidence.LIKELY, hours=hours)
    elif silent > NEAR_SWITCH_OFF:
        yield of_agents(each, each.agents, "near-switch-off", hours=hours)


def without_agent(set_id: int | None, names: Iterable[str]) -> BlindSpot:
    found = tuple(names)
    return BlindSpot(code="no-agent", certainty=Confidence.CERTAIN, set_id=set_id, names=found, count=len(found))


def _zones(each: SetFacts) -> Iterator[BlindSpot]:
    # Without any live agent other blind spots apply; this one is about sets that are polled from other zones.
    polled = {agent.zone for agent in each.agents if agent.live}
    if not polled:
        return
    zones = {agent.zone for agent in each.agents} | {zone for _, zone, _ in each.missing}
    for zone in sorted(zones - polled - {""}):
        agents = [agent for agent in each.agents if agent.zone == zone]
        yield of_agents(each, agents, "zone-without-poller", Confidence.POSSIBLE, part=zone, zone=zone)


def never_announces_upgrades(size: str) -> bool:
    """Return whether VMs of this size never get events for OS upgrades and reimages: the series G, M, N and H."""
    return _WITHOUT_UPGRADE_EVENTS.match(size.strip()) is not None


def _upgrades(each: SetFacts) -> Iterator[BlindSpot]:
    agents = [agent for agent in each.agents if never_announces_upgrades(agent.size)]
    sizes = {agent.size for agent in agents} | {size for _, _, size in each.missing if never_announces_upgrades(size)}
    if sizes:
        yield of_agents(each, agents, "size-without-upgrade-events", sizes=sorted(sizes))
    others = [agent for agent in each.agents if agent not in agents]
    if each.upgrade_notices or (agents and not others):
        return
    if each.upgrade_notices is None:
        yield of_agents(each, others, "upgrades-unknown", Confidence.UNKNOWN)
    else:
        yield of_agents(each, others, "upgrades-unannounced")


# Every blind spot of a fleet, in the order of their danger.


ORDER = (
    "era-not-begun",
    "set-aside",
    "reports-quarantined",
    "document-lacking",
    "switched-off",
    "near-switch-off",
    "metadata-unavailable",
    "spool-unwritable",
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


RANKS = {code: rank for rank, code in enumerate(ORDER)}
# The time without polls is reported in whole hours.
HOUR = timedelta(hours=1)
# Intermediate states, such as an unrecorded change of presence, are checked again after this time.
SOON = timedelta(seconds=5)
# An agent's problem with the metadata service may become another one, or the agent is not heard any more.
PROBLEM_CHECK = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Named:
    """A number of machines, and the names of the first of them."""

    names: tuple[str, ...] = ()
    count: int = 0


UNNAMED = Named()


def of_set(each: SetFacts, *, now: datetime, version: str, protocol: int, clock_tolerance: float) -> list[BlindSpot]:
    """Return all blind spots of one set, the most dangerous first. The arguments are those of `of_its_agents`."""
    of_these = of_its_agents(each, now=now, version=version, protocol=protocol, clock_tolerance=clock_tolerance)
    return sorted([*of_these, *of_the_set(each, now=now)], key=lambda spot: RANKS[spot.code])


def due_at(each: SetFacts, spots: Iterable[BlindSpot], *, now: datetime) -> datetime | None:
    """Return when the blind spots of a set may change although no machine reports a change; None if never.

    Changes of presence are handled by reconciliation.
    """
    edges = [agent.lacking_since + LACKING for agent in each.agents if agent.lacking_since is not None]
    if each.admits_until is not None:
        edges.append(each.admits_until)
    polled = max((agent.last_poll_at or agent.enrolled_at for agent in each.agents), default=None)
    if polled is not None and not any(agent.live for agent in each.agents):
        whole = max(now - polled, NEAR_SWITCH_OFF - HOUR) // HOUR
        edges.append(polled + (whole + 1) * HOUR)
    if any(agent.turning for agent in each.agents):
        edges.append(now + SOON)
    if any(agent.poll_problem for agent in each.agents):
        edges.append(now + PROBLEM_CHECK)
    if any(spot.code == "many-spools" for spot in spots):
        edges.append(now + HOUR)
    return min((edge for edge in edges if edge > now), default=None)


def elsewhere(
    further: Iterable[BlindSpot] = (),
    *,
    alone: Named = UNNAMED,
    waiting: Named = UNNAMED,
    quarantined: Named = UNNAMED,
    era_missing: bool = False,
) -> list[BlindSpot]:
    """Return the blind spots that belong to no set, the most dangerous first: `further` ones, and those that follow
    from these facts.

    `alone`: machines of the inventory without a set or agent. `waiting`: machines that wait for admission.
    `quarantined`: machines with quarantined reports. `era_missing`: the database was restored, but this was not
    recorded as a new era.
    """
    found = list(further)
    for code, machines in (("waits-for-admission", waiting), ("reports-quarantined", quarantined)):
        if machines.count:
            found.append(BlindSpot(code, Confidence.POSSIBLE, None, names=machines.names, count=machines.count))
    if era_missing:
        found.append(BlindSpot("era-not-begun", Confidence.CERTAIN, None))
    if alone.count:
        found.append(replace(without_agent(None, alone.names), count=alone.count))
    return sorted(found, key=lambda spot: RANKS[spot.code])
