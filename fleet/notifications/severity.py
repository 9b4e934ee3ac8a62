"""Severity of events, of cache maintenance and of the other notification types."""

from collections.abc import Mapping

from fleet.domain.approvals.guards import EventFacts
from fleet.domain.event_types import DELETING_TYPES, TYPES, Severity, event_type_of
from fleet.domain.recommendation import OWN
from fleet.notifications.routing import NotificationType

# Of a cache's maintenance, by its tier. Basic is down meanwhile, and so may be one of which nobody has said the tier.
OF_TIER: Mapping[str, Severity] = {"standard": Severity.INFO, "premium": Severity.INFO}

# Of what is about no event and no cache.
OF_NOTIFICATION_TYPE: Mapping[NotificationType, Severity] = {
    NotificationType.SOURCE_QUIET: Severity.WARNING,
    NotificationType.SET_UNWATCHED: Severity.WARNING,
    NotificationType.SET_LOWERED: Severity.WARNING,
    NotificationType.COVERAGE_OPENED: Severity.WARNING,
    NotificationType.COVERAGE_CLOSED: Severity.INFO,
    NotificationType.AUDIT_FAILED: Severity.CRITICAL,
    NotificationType.STORAGE_TROUBLE: Severity.CRITICAL,
    NotificationType.BREAK_GLASS: Severity.CRITICAL,
    NotificationType.ACCOUNT: Severity.WARNING,
    NotificationType.CHANNEL_FAILING: Severity.WARNING,
    NotificationType.CHANNEL_WORKS: Severity.INFO,
}


def stay_up(facts: EventFacts) -> int:
    """Live machines of the set that neither this event names nor another that has started."""
    down = {name.casefold() for name in facts.resources}
    down |= {name.casefold() for other in facts.others if other.set_id == facts.set_id for name in other.taken}
    return sum(machine.live and machine.name.casefold() not in down for machine in facts.machines)


def severity(facts: EventFacts) -> Severity:
    """How bad an event is, also after it has ended: who heard that it came hears under the same that it is over."""
    if facts.event_type in DELETING_TYPES:
        return Severity.CRITICAL
    if facts.needs_live is not None and stay_up(facts) < facts.needs_live:
        return Severity.CRITICAL
    own = facts.source == OWN and facts.event_type in TYPES
    return Severity.INFO if own else event_type_of(facts.event_type).severity


def cache_severity(tier: str) -> Severity:
    """How bad the maintenance of a cache is."""
    return OF_TIER.get(tier, Severity.WARNING)


def type_severity(moment: NotificationType) -> Severity:
    """How bad it is what is about no event and no cache."""
    return OF_NOTIFICATION_TYPE.get(moment, Severity.WARNING)
