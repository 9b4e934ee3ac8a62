"""Blind spots of the agents of one set: who is away, too old, off in time, or says what cannot be."""

import re
from datetime import datetime, timedelta

from fleet.domain.blind_spots.facts import AgentFacts, BlindSpot, Confidence, SetFacts, of_agents
from fleet.domain.intake.spools import MANY_A_DAY
from fleet.domain.orders.signatures import SignatureCheck
from fleet.domain.states import Presence

# An agent that is told that its document is not here sends it within seconds.
LACKING = timedelta(minutes=1)


def read_version(text: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version; empty when there are none."""
    found = re.match(r"\d+(?:\.\d+)*", text.strip())
    return tuple(int(part) for part in found[0].split(".")[:6]) if found else ()


def of_its_agents(
    each: SetFacts, *, now: datetime, version: str, protocol: int, clock_tolerance: float
) -> list[BlindSpot]:
    """All of them; `version` and `protocol` are the backend's own."""
    return [
        *_presence(each),
        *_old(each, version, protocol),
        *_clocks(each, clock_tolerance),
        *_stated_elsewhere(each),
        *_lists_elsewhere(each),
        *_named_twice(each),
        *_signatures(each),
        *_lacking(each, now),
        *_many_spools(each),
    ]


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
            found.append(of_agents(each, agents, code))
    return found


def _old(each: SetFacts, version: str, protocol: int) -> list[BlindSpot]:
    def old(agent: AgentFacts) -> bool:
        theirs = read_version(agent.agent_version)
        return agent.protocol < protocol or (bool(theirs) and theirs < read_version(version))

    agents = [agent for agent in each.agents if old(agent)]
    if not agents:
        return []
    versions = sorted({agent.agent_version for agent in agents})
    return [of_agents(each, agents, "agent-too-old", Confidence.POSSIBLE, versions=versions, own=version)]


def _clocks(each: SetFacts, tolerance: float) -> list[BlindSpot]:
    agents = [a for a in each.agents if a.clock_offset is not None and abs(a.clock_offset) > tolerance]
    if not agents:
        return []
    worst = max((agent.clock_offset or 0 for agent in agents), key=abs)
    return [of_agents(each, agents, "wrong-clock", offset=worst)]


def _stated_elsewhere(each: SetFacts) -> list[BlindSpot]:
    return [
        of_agents(
            each,
            [agent],
            "states-another-set",
            Confidence.POSSIBLE,
            part=str(agent.machine_id),
            warning=agent.outside,
        )
        for agent in each.agents
        if agent.outside is not None
    ]


def _lists_elsewhere(each: SetFacts) -> list[BlindSpot]:
    found = []
    others = {(agent.lists_of, agent.lists_of_set) for agent in each.agents if agent.lists_of is not None}
    for name, other in sorted(others, key=lambda one: (one[0] or "", one[1] or 0)):
        agents = [agent for agent in each.agents if (agent.lists_of, agent.lists_of_set) == (name, other)]
        found.append(
            of_agents(
                each,
                agents,
                "lists-of-another-set",
                Confidence.POSSIBLE,
                part=str(other or ""),
                other_set=other,
                set=name,
            )
        )
    return found


def _named_twice(each: SetFacts) -> list[BlindSpot]:
    # One that is not heard any more was made anew under its old name, and says so elsewhere.
    heard = (Presence.LIVE, Presence.LATE, Presence.EXPECTED)
    agents = [agent for agent in each.agents if agent.called and agent.presence in heard]
    named = sorted({agent.called for agent in agents})
    return [of_agents(each, agents, "name-held", Confidence.POSSIBLE, called=named)] if agents else []


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
            found.append(of_agents(each, agents, code))
    return found


def _lacking(each: SetFacts, now: datetime) -> list[BlindSpot]:
    """Agents of 0.1.0 mostly: newer ones send what is missing."""
    agents = [agent for agent in each.agents if agent.lacking_since is not None and now > agent.lacking_since + LACKING]
    return [of_agents(each, agents, "document-lacking")] if agents else []


def _many_spools(each: SetFacts) -> list[BlindSpot]:
    agents = [agent for agent in each.agents if agent.spools >= MANY_A_DAY]
    most = max((agent.spools for agent in agents), default=0)
    return [of_agents(each, agents, "many-spools", Confidence.LIKELY, most=most)] if agents else []
