"""What each notification means for a program that uses the cache, in words."""

from fleet.domain.notifications import NotificationType

NO_APPROVAL = (
    "These notifications are made for programs: they come seconds to minutes ahead, and nobody can answer one. "
    "There is nothing to approve; hooks on the machines act on them."
)

LABELS: dict[NotificationType, str] = {
    NotificationType.SCHEDULED: "Scheduled",
    NotificationType.STARTING: "Starting",
    NotificationType.START: "Start",
    NotificationType.FAILOVER_COMPLETE: "Failover complete",
    NotificationType.ENDED: "Ended",
    NotificationType.SCALE_COMPLETE: "Scale complete",
}

MEANINGS: dict[NotificationType, str] = {
    NotificationType.SCHEDULED: "Get ready. The time is approximate: the node may go up to 3 minutes earlier.",
    NotificationType.STARTING: "Stop writing or break the circuit: about 20 seconds are left.",
    NotificationType.START: "The node goes within seconds and closes its connections. Send nothing to it.",
    NotificationType.FAILOVER_COMPLETE: "The replica is the primary now. Refresh the topology; writing is safe again.",
    NotificationType.ENDED: "All nodes are there. Readers of the replica may return.",
    NotificationType.SCALE_COMPLETE: "Nodes were added or removed. Refresh the topology.",
}

TIERS: dict[str, str] = {
    "basic": "Basic has one node: it is down until the maintenance ends.",
    "standard": "Standard fails over to the replica: a few seconds of lost connections.",
    "premium": "Premium fails over to the replica, shard by shard: a few seconds of lost connections.",
}


def meaning(kind: NotificationType | None, *, tier: str, is_replica: bool | None) -> str:
    """One sentence for a client of a cache of this tier; `is_replica` is the role of the node concerned."""
    if kind is None:
        return "A type that is not documented; it is kept as it was heard."
    if tier == "basic" and kind is NotificationType.START:
        return "The one node goes within seconds: the cache is down until it ends. Use another store."
    if tier == "basic" and kind is NotificationType.ENDED:
        return "The node is back. Programs may return to the cache; what it held may be gone."
    if is_replica and kind in (NotificationType.STARTING, NotificationType.START):
        return "A replica goes: move its readers to the primary. Writing is not affected."
    return MEANINGS[kind]
