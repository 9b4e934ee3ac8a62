"""Blind spots of a set as a whole: switched off, without agents, with zones and upgrades unheard of, unnamed."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from fleet.domain.blind_spots.facts import BlindSpot, Confidence, SetFacts, of_agents
from fleet.domain.sets import PROVISIONAL

# A set without any request for 24 hours is switched off; people need some hours to see to it.
SWITCHED_OFF = timedelta(hours=24)
NEAR_SWITCH_OFF = timedelta(hours=20)
# Series of sizes that never get events for upgrades and reimages of the operating system.
_WITHOUT_UPGRADE_EVENTS = re.compile(r"(?:standard_|basic_)?[gmnh][a-z]*\d", re.IGNORECASE)


def of_the_set(each: SetFacts, *, now: datetime) -> list[BlindSpot]:
    """All of them."""
    return [
        *_switch_off(each, now),
        *_admits(each, now),
        *_missing(each),
        *_zones(each),
        *_upgrades(each),
        *_unnamed(each),
    ]


def _switch_off(each: SetFacts, now: datetime) -> list[BlindSpot]:
    if not each.agents:
        return []
    silent = now - max(agent.last_poll_at or agent.enrolled_at for agent in each.agents)
    if silent <= NEAR_SWITCH_OFF:
        return []
    hours = int(silent.total_seconds() // 3600)
    if silent <= SWITCHED_OFF:
        return [of_agents(each, each.agents, "near-switch-off", hours=hours)]
    # Another program on the machines may still ask.
    return [of_agents(each, each.agents, "switched-off", Confidence.LIKELY, hours=hours)]


def _admits(each: SetFacts, now: datetime) -> list[BlindSpot]:
    if each.admits_until is None or each.admits_until <= now:
        return []
    return [of_agents(each, each.agents, "admits-by-itself", Confidence.POSSIBLE, until=each.admits_until)]


def without_agent(set_id: int | None, names: Iterable[str]) -> BlindSpot:
    found = tuple(names)
    return BlindSpot(code="no-agent", certainty=Confidence.CERTAIN, set_id=set_id, names=found, count=len(found))


def _missing(each: SetFacts) -> list[BlindSpot]:
    return [without_agent(each.set_id, (name for name, _, _ in each.missing))] if each.missing else []


def _zones(each: SetFacts) -> list[BlindSpot]:
    # Where nobody polls at all, others say so; the question of zones is one of sets that are watched from elsewhere.
    polled = {agent.zone for agent in each.agents if agent.live}
    if not polled:
        return []
    zones = {agent.zone for agent in each.agents} | {zone for _, zone, _ in each.missing}
    found = []
    for zone in sorted(zones - polled - {""}):
        agents = [agent for agent in each.agents if agent.zone == zone]
        found.append(of_agents(each, agents, "zone-without-poller", Confidence.POSSIBLE, part=zone, zone=zone))
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
        found.append(of_agents(each, agents, "size-without-upgrade-events", sizes=sorted(sizes)))
    others = [agent for agent in each.agents if agent not in agents]
    if each.upgrade_notices or (agents and not others):
        return found
    if each.upgrade_notices is None:
        return [*found, of_agents(each, others, "upgrades-unknown", Confidence.UNKNOWN)]
    return [*found, of_agents(each, others, "upgrades-unannounced")]


def _unnamed(each: SetFacts) -> list[BlindSpot]:
    return [of_agents(each, each.agents, "unnamed-set", Confidence.POSSIBLE)] if each.kind == PROVISIONAL else []
