"""Caches, their notifications, and their coverage. No column is of one product: `source` names the channel."""

from django.contrib.postgres.indexes import GinIndex
from django.db import models

from fleet.domain.caches.maintenances import ACTIVE, MaintenanceStatus
from fleet.domain.scheduling import AT_ONCE
from fleet.models.index_scan import ChangeColumn, words_of
from fleet.models.machines import Machine

# The channel `AzureRedisEvents` of Azure Cache for Redis.
AZURE_REDIS = "azure-redis"


class Cache(ChangeColumn):
    """A cache by its host name, lower case. `divisor` is the number of ports that make a shard; `tier` may be empty."""

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
    """One operation on (cache, shard), computed from its notifications by `fleet.domain.caches.maintenances`.

    `shard` is None where no notification stated a port. `began_at` is when the node was taken, as far as it is known.
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
            models.CheckConstraint(
                condition=models.Q(status__in=[status.value for status in MaintenanceStatus]),
                name="maintenance_status_known",
            ),
        ]
        indexes = [
            models.Index(fields=["cache", "-first_at", "-id"], name="maintenance_by_cache"),
            models.Index(fields=["-first_at", "-id"], name="maintenance_newest"),
            models.Index(fields=["changed_at"], name="maintenance_by_change"),
            models.Index(
                fields=["next_check_at"],
                name="maintenance_by_next_check",
                condition=models.Q(status__in=[status.value for status in ACTIVE]),
            ),
            models.Index(
                fields=["cache"],
                name="maintenance_active",
                condition=models.Q(status__in=[status.value for status in ACTIVE]),
            ),
        ]

    def __str__(self) -> str:
        return f"maintenance {self.pk}"


class Notification(models.Model):
    """One received line, merged from all listeners: copies within a minute of each other are one notification.

    `raw` is the line as text; `raw_base64` has its bytes where they were no text. `raw_hash` is the SHA-256 of the
    bytes. `first_at` and `last_at` are when the first and the last copy was heard (corrected), `received_at` when the
    backend had it. The other columns are the line's statements; None, and of texts empty, is "not stated".
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
            models.Index(fields=["cache", "raw_hash", "first_at"], name="notification_copies"),
            models.Index(fields=["cache", "shard", "first_at"], name="notification_by_shard"),
            models.Index(fields=["cache", "ssl_port", "-first_at"], name="notification_by_node"),
            models.Index(fields=["-first_at", "-id"], name="notification_newest"),
        ]

    def __str__(self) -> str:
        return self.raw


class Reporter(models.Model):
    """One machine's copies of one notification."""

    notification = models.ForeignKey(
        Notification, on_delete=models.CASCADE, related_name="reporters", db_constraint=False
    )
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="+", db_constraint=False)
    first_at = models.DateTimeField()
    copies = models.IntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["notification", "machine"], name="reporter_once"),
        ]

    def __str__(self) -> str:
        return f"{self.notification_id} by {self.machine_id}"


class Coverage(ChangeColumn):
    """A stretch of time in which one machine listened to one cache, or did not.

    `until` is None for the newest one. `vouched_at` is the machine's last contact within it: a stretch that ends
    without a word (the agent was restarted) ends there.
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
            models.UniqueConstraint(
                fields=["cache", "machine"], condition=models.Q(until__isnull=True), name="one_open_coverage"
            ),
        ]
        indexes = [
            models.Index(fields=["cache", "-since"], name="coverage_by_cache"),
            models.Index(fields=["changed_at"], name="coverage_by_change"),
        ]

    def __str__(self) -> str:
        return f"{self.state} on {self.machine_id}"
