"""Blind spots: situations in which Drydock would not see Azure's announcements, and how certain this is.

Source: "Scheduled Events for Linux VMs in Azure", Microsoft, dated 01/25/2023. "Possible" where reports of users
contradict that page.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from fleet.domain.intake import MANY_A_DAY
from fleet.domain.orders.series import SignatureCheck
from fleet.domain.reasons import Reason
from fleet.domain.sets import PROVISIONAL
from fleet.domain.states import Presence
from fleet.domain.timeline import EntryKind

# The problems of the metadata service that are none: not stated, and a good answer.
NO_PROBLEM = ("", "ok")
# The problem of an agent that cannot store what it polls (`drydock_agent.wire`), which is a blind spot of its own.
SPOOL_UNWRITABLE = "spool-unwritable"


def code_of(problem: str) -> str:
    """Return the code of the blind spot of agents with this problem."""
    return problem if problem == SPOOL_UNWRITABLE else "metadata-unavailable"


class Confidence(StrEnum):
    """How certain a blind spot is."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"
    UNKNOWN = "cannot be told from here"


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """Facts about one enrolled machine that is not revoked. `clock_offset`: seconds by which the machine's clock is
    ahead.
    """

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
    # A stated set to which it is not confined.
    outside: Reason | None = None
    # The stated name while another machine of its set has it; else empty.
    called: str = ""
    # The set of an open event that it lists without being of that set: its name, empty where it has none, and its row
    # id; None without one.
    lists_of: str | None = None
    lists_of_set: int | None = None
    # The agent's handling of signatures of orders; empty until reported.
    signatures: str = ""
    # Since when it reminds of a document that is not here; and how many spools it began within a day.
    lacking_since: datetime | None = None
    spools: int = 0
    # While it is heard: why it gets no document, as `drydock_agent.wire.metadata_text` names it; else empty.
    poll_problem: str = ""
    # Reconciling has not noted yet that it is as present as it is.
    turning: bool = False

    @property
    def live(self) -> bool:
        return self.presence is Presence.LIVE


@dataclass(frozen=True, slots=True)
class SetFacts:
    """Facts about one set and its machines. `missing`: machines in the inventory without an agent, as (name, zone,
    size).
    """

    set_id: int
    kind: str
    upgrade_notices: bool | None
    agents: tuple[AgentFacts, ...]
    missing: tuple[tuple[str, str, str], ...] = ()
    # Until then returning machines are admitted automatically.
    admits_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class BlindSpot:
    """One blind spot.

    `machine_ids`: affected machines with an agent. `names`: names of affected machines; they may be fewer than `count`.
    `values`: further values of the sentences. `part` distinguishes blind spots with the same code in one set.
    `other_set`: row id of another set that is mentioned.
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
        """What an administrator can do about the blind spot, as a reason."""
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
    ids, names = tuple(agent.machine_id for agent in agents), tuple(agent.name for agent in agents)
    about: dict[str, Any] = {"count": len(agents), "part": part, "other_set": other_set}
    return BlindSpot(code, certainty, each.set_id, ids, names, values, **about)


# Finding all blind spots of a set, the most dangerous first.

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
    if each.agents:
        silent = now - max(agent.last_poll_at or agent.enrolled_at for agent in each.agents)
        hours = int(silent.total_seconds() // 3600)
        if silent > SWITCHED_OFF:
            # Another program on the machines may still poll.
            yield of_agents(each, each.agents, "switched-off", Confidence.LIKELY, hours=hours)
        elif silent > NEAR_SWITCH_OFF:
            yield of_agents(each, each.agents, "near-switch-off", hours=hours)
    if each.admits_until is not None and each.admits_until > now:
        yield of_agents(each, each.agents, "admits-by-itself", Confidence.POSSIBLE, until=each.admits_until)
    if each.missing:
        found = tuple(name for name, _, _ in each.missing)
        yield BlindSpot("no-agent", Confidence.CERTAIN, each.set_id, names=found, count=len(found))
    yield from _zones(each)
    if each.kind == "scale_set":
        yield from _upgrades(each)
    if each.kind == PROVISIONAL:
        yield of_agents(each, each.agents, "unnamed-set", Confidence.POSSIBLE)


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


# Notifications of blind spots: when one begins, and when it ends. Pure.

# A blind spot found by one check only is not notified: machines restart, networks fail briefly.
SETTLES = timedelta(seconds=30)
# More that begin or end together are notified as one.
MOST_ALONE = 5
# This many names are stored with a notification.
MOST_NAMES = 20

STORAGE = ("not-sealed", "database-large", "partition-late", "transactions-run-out", "archive-fails")
COVERAGE = ("near-switch-off", "document-lacking", "wrong-clock", "waits-for-admission", "set-aside", "era-not-begun")
# The entry of each, by its code.
OPENING: Mapping[str, EntryKind] = {
    "set-unwatched": EntryKind.SET_UNWATCHED,
    "agent-silent": EntryKind.SOURCE_QUIET,
    "cache-unheard": EntryKind.SOURCE_QUIET,
    "audit-failed": EntryKind.AUDIT_FAILED,
    **dict.fromkeys((*COVERAGE, "reports-quarantined", "clocks-wrong"), EntryKind.COVERAGE_OPENED),
    **dict.fromkeys(STORAGE, EntryKind.STORAGE_TROUBLE),
}
# One check finds these reliably.
AT_ONCE = frozenset({"audit-failed", "clocks-wrong", "reports-quarantined", *STORAGE})
