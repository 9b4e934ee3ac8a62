"""Every blind spot of a fleet, in the order of their danger."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from fleet.domain.blind_spots.agents import of_its_agents
from fleet.domain.blind_spots.facts import BlindSpot, CacheFacts, Confidence, SetAsideFacts, SetFacts
from fleet.domain.blind_spots.sets import of_the_set, without_agent

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
        found += of_its_agents(each, now=now, version=version, protocol=protocol, clock_tolerance=clock_tolerance)
        found += of_the_set(each, now=now)
    if waiting:
        found.append(BlindSpot("waits-for-admission", Confidence.POSSIBLE, None, names=tuple(waiting)))
    if era_missing:
        found.append(BlindSpot("era-not-begun", Confidence.CERTAIN, None))
    if alone:
        found.append(without_agent(None, alone))
    found += [_unheard(cache) for cache in caches if not cache.listening]
    found += [_set_aside(row) for row in aside]
    return sorted(found, key=lambda spot: ORDER.index(spot.code))


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
    return BlindSpot("set-aside", Confidence.CERTAIN, None, names=(row.name,), values=values, event_id=row.event_id)
