"""Caches, notifications about their maintenance, and the periods in which agents listened.

The columns fit any product: `source` names the channel from which notifications came.
"""

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import CheckConstraint, Index, Q, UniqueConstraint

from fleet.domain.caches.maintenances import ACTIVE, MaintenanceStatus
from fleet.domain.scheduling import AT_ONCE
from fleet.models.index_scan import words_of
from fleet.models.machines import Machine
from fleet.models.rows import ChangeColumn, Row

# The channel `AzureRedisEvents` of Azure Cache for Redis.
AZURE_REDIS = "azure-redis"
IS_ACTIVE = Q(status__in=[status.value for status in ACTIVE])


class Cache(ChangeColumn):
    """A Redis cache, identified by the host name in lower case. `divisor` is the number of ports for each shard."""

    host = models.TextField(unique=True)
    source = models.TextField(default=AZURE_REDIS)
    tier = models.TextField(blank=True, default="")
    service = models.TextField(blank=True, default="")
    divisor = models.IntegerField(default=2)
    created_at = models.DateTimeField()

    class Meta:
        indexes = [GinIndex(words_of("host", "service"), name="cache_by_words")]

    def __str__(self) -> str:
        return self.host


class Maintenance(ChangeColumn):
    """One maintenance of a cache's shard, computed from notifications by `fleet.domain.caches.maintenances`.

    `shard` is None if no notification stated a port. `began_at` is when the node stopped, if known.
    """

    cache = models.ForeignKey(Cache, on_delete=models.PROTECT, related_name="maintenances")
    source = models.TextField(default=AZURE_REDIS)
    shard = models.IntegerField(null=True, blank=True)
    status = models.TextField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    node_port = models.IntegerField(null=True, blank=True)
    partner_port = models.IntegerField(null=True, blank=True)
    expected_at = models.DateTimeField(null=True, blank=True)
    # Only Scheduled stated it: the node may go up to three minutes earlier.
    approximate = models.BooleanField(default=False)
    began_at = models.DateTimeField(null=True, blank=True)
    failover_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    was_replica = models.BooleanField(null=True, blank=True)
    is_replica = models.BooleanField(null=True, blank=True)
    swapped = models.BooleanField(default=False)
    # When time alone may change it.
    next_check_at = models.DateTimeField(default=AT_ONCE, db_default=AT_ONCE)

    class Meta:
        constraints = [
            CheckConstraint(
                condition=Q(status__in=[status.value for status in MaintenanceStatus]), name="maintenance_status_known"
            )
        ]
        indexes = [
            Index(fields=["cache", "-first_at", "-id"], name="maintenance_by_cache"),
            Index(fields=["-first_at", "-id"], name="maintenance_newest"),
            Index(fields=["changed_at"], name="maintenance_by_change"),
            Index(fields=["next_check_at"], name="maintenance_by_next_check", condition=IS_ACTIVE),
            Index(fields=["cache"], name="maintenance_active", condition=IS_ACTIVE),
        ]


class Notification(Row):
    """One notification, merged from all listeners: equal messages within a minute are one notification.

    `raw` is the message as text; `raw_base64` has the bytes if they are not valid text; `raw_hash` is the SHA-256 of
    the bytes. `first_at` and `last_at`: when the first and the last listener received it (corrected by clock offset);
    `received_at`: when the backend received it. The other columns are what the message states; None or empty if not
    stated.
    """

    cache = models.ForeignKey(
        Cache, on_delete=models.PROTECT, related_name="notifications", db_index=False, db_constraint=False
    )
    source = models.TextField(default=AZURE_REDIS)
    raw = models.TextField(blank=True)
    raw_base64 = models.TextField(blank=True, default="")
    raw_hash = models.TextField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    received_at = models.DateTimeField()
    type = models.TextField(blank=True, default="")
    start_time = models.DateTimeField(null=True, blank=True)
    is_replica = models.BooleanField(null=True, blank=True)
    ip_address = models.TextField(blank=True, default="")
    ssl_port = models.IntegerField(null=True, blank=True)
    non_ssl_port = models.IntegerField(null=True, blank=True)
    shard = models.IntegerField(null=True, blank=True)
    flags = models.JSONField(default=list)
    # Announced a start that had passed when it arrived.
    late = models.BooleanField(default=False)
    maintenance = models.ForeignKey(
        Maintenance, null=True, blank=True, on_delete=models.SET_NULL, related_name="notifications", db_constraint=False
    )

    class Meta:
        indexes = [
            Index(fields=["cache", "raw_hash", "first_at"], name="notification_copies"),
            Index(fields=["cache", "shard", "first_at"], name="notification_by_shard"),
            Index(fields=["cache", "ssl_port", "-first_at"], name="notification_by_node"),
            Index(fields=["-first_at", "-id"], name="notification_newest"),
        ]


class Reporter(Row):
    """The copies of one notification that one machine received."""

    notification = models.ForeignKey(
        Notification, on_delete=models.CASCADE, related_name="reporters", db_constraint=False
    )
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="+", db_constraint=False)
    first_at = models.DateTimeField()
    copies = models.IntegerField(default=1)

    class Meta:
        constraints = [UniqueConstraint(fields=["notification", "machine"], name="reporter_once")]


class Coverage(ChangeColumn):
    """A period in which one machine listened to one cache, or did not (`state`).

    `until` is None for the newest period. `vouched_at` is the machine's last contact in it. If the agent stopped
    without reporting the end, the period ends at that time.
    """

    cache = models.ForeignKey(Cache, on_delete=models.PROTECT, related_name="coverage", db_index=False)
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="coverage")
    state = models.TextField()
    reason = models.TextField(blank=True, default="")
    since = models.DateTimeField()
    until = models.DateTimeField(null=True, blank=True)
    vouched_at = models.DateTimeField()
    epoch = models.IntegerField()
    seq = models.BigIntegerField()

    class Meta:
        constraints = [
            UniqueConstraint(fields=["cache", "machine"], condition=Q(until__isnull=True), name="one_open_coverage")
        ]
        indexes = [
            Index(fields=["cache", "-since"], name="coverage_by_cache"),
            Index(fields=["changed_at"], name="coverage_by_change"),
        ]
