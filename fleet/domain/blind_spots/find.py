"""Every blind spot of a fleet, in the order of their danger."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fleet.domain.blind_spots.agents import LACKING, of_its_agents
from fleet.domain.blind_spots.facts import BlindSpot, CacheFacts, Confidence, SetAsideFacts, SetFacts
from fleet.domain.blind_spots.sets import NEAR_SWITCH_OFF, of_the_set, without_agent

ORDER = (
    "era-not-begun",
    "set-aside",
    "reports-quarantined",
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


RANKS = {code: rank for rank, code in enumerate(ORDER)}
# Hours of a switch-off are told as whole ones.
HOUR = timedelta(hours=1)
# What is in between, such as a machine whose turn nobody has noted yet, is looked at again so soon.
SOON = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Named:
    """So many machines, of whom the first are named."""

    names: tuple[str, ...] = ()
    count: int = 0


NOBODY = Named()


def of_set(each: SetFacts, *, now: datetime, version: str, protocol: int, clock_tolerance: float) -> list[BlindSpot]:
    """Those of one set, the most dangerous first. `version` and `protocol` are the backend's own."""
    found = of_its_agents(each, now=now, version=version, protocol=protocol, clock_tolerance=clock_tolerance)
    return sorted(found + of_the_set(each, now=now), key=lambda spot: RANKS[spot.code])


def due_at(each: SetFacts, spots: Iterable[BlindSpot], *, now: datetime) -> datetime | None:
    """When time alone may change the blind spots of a set; that somebody is not heard any more is noted elsewhere."""
    edges = [agent.lacking_since + LACKING for agent in each.agents if agent.lacking_since is not None]
    if each.admits_until is not None:
        edges.append(each.admits_until)
    polled = max((agent.last_poll_at or agent.enrolled_at for agent in each.agents), default=None)
    if polled is not None and not any(agent.live for agent in each.agents):
        whole = max(now - polled, NEAR_SWITCH_OFF - HOUR) // HOUR
        edges.append(polled + (whole + 1) * HOUR)
    if any(agent.turning for agent in each.agents):
        edges.append(now + SOON)
    if any(spot.code == "many-spools" for spot in spots):
        edges.append(now + HOUR)
    return min((edge for edge in edges if edge > now), default=None)


def elsewhere(
    *,
    alone: Named = NOBODY,
    waiting: Named = NOBODY,
    quarantined: Named = NOBODY,
    caches: Iterable[CacheFacts] = (),
    aside: Iterable[SetAsideFacts] = (),
    era_missing: bool = False,
) -> list[BlindSpot]:
    """Those that are of no set, the most dangerous first.

    `alone` are machines that stand alone in an inventory and have no agent, `waiting` those for which somebody waits
    for admission, `quarantined` those of which something is quarantined; `era_missing`: the database numbers its
    transactions anew.
    """
    found = [_set_aside(row) for row in aside] + [_unheard(cache) for cache in caches if not cache.listening]
    if waiting.count:
        found.append(
            BlindSpot("waits-for-admission", Confidence.POSSIBLE, None, names=waiting.names, count=waiting.count)
        )
    if quarantined.count:
        found.append(
            BlindSpot(
                "reports-quarantined", Confidence.POSSIBLE, None, names=quarantined.names, count=quarantined.count
            )
        )
    if era_missing:
        found.append(BlindSpot("era-not-begun", Confidence.CERTAIN, None))
    if alone.count:
        found.append(replace(without_agent(None, alone.names), count=alone.count))
    return sorted(found, key=lambda spot: RANKS[spot.code])


def _unheard(cache: CacheFacts) -> BlindSpot:
    return BlindSpot(
        code="cache-unheard",
        certainty=Confidence.CERTAIN,
        set_id=None,
        names=(cache.host,),
        count=1,
        part=cache.host,
        values={"supported": cache.supported, "reasons": cache.reasons},
        cache_id=cache.cache_id,
    )


def _set_aside(row: SetAsideFacts) -> BlindSpot:
    values = {"what": row.what, "why": row.why, "tries": row.tries}
    return BlindSpot(
        "set-aside",
        Confidence.CERTAIN,
        None,
        names=(row.name,),
        values=values,
        event_id=row.event_id,
        count=1,
        part=f"{row.what} {row.name}",
    )
