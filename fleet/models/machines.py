"""Sets, machines, their credentials and how present they are."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Upper

SET_KINDS = ("availability_set", "scale_set", "cloud_service", "standalone", "provisional")


class AvailabilitySet(models.Model):
    """The machines to which Azure delivers the same events.

    `key` is `kind|subscription|resource group|name`, lower case (a scale set's name carries its placement group); the
    other columns keep what was stated, for showing. `merged_into` is set once the set turned out to be another one.
    """

    key = models.TextField(unique=True)
    kind = models.TextField()
    name = models.TextField()
    subscription = models.TextField(blank=True, default="")
    resource_group = models.TextField(blank=True, default="")
    service = models.TextField(blank=True, default="")
    # Whether its scale set announces upgrades and reimages of the operating system; None when nobody said.
    upgrade_notices = models.BooleanField(null=True, blank=True)
    # Whether approving in it always takes a second person.
    second_person = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    # Never a chain: who was merged into a set that is merged itself leads to the last one.
    merged_into = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(kind__in=list(SET_KINDS)), name="set_kind_known"),
        ]

    def __str__(self) -> str:
        return self.name


class JoinToken(models.Model):
    """Lets new agents enrol; may be reused until it expires. Only a hash of the secret is kept."""

    prefix = models.TextField(unique=True)
    secret_hash = models.TextField()
    comment = models.TextField(blank=True, default="")
    # A set as `[kind:]name` for machines that name none themselves.
    set_name = models.TextField(blank=True, default="")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    uses = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.prefix


class Machine(models.Model):
    """One Azure VM, by its vmId. `resource_name` is what Azure puts into `Resources`."""

    vm_id = models.TextField(unique=True)
    resource_name = models.TextField()
    availability_set = models.ForeignKey(AvailabilitySet, on_delete=models.PROTECT, related_name="machines")
    # What its configuration and its join token say of the set, as `[kind:]name`; empty when they do not.
    stated_set = models.TextField(blank=True, default="")
    token_set = models.TextField(blank=True, default="")
    # Whose word about the set counts (`fleet.domain.sets.SetSource`); empty when nobody says anything.
    set_source = models.TextField(blank=True, default="")
    # What is wrong with those words now, in sentences; empty again once they agree.
    set_warnings = models.JSONField(default=list, blank=True)
    fault_domain = models.IntegerField(null=True, blank=True)
    update_domain = models.IntegerField(null=True, blank=True)
    zone = models.TextField(blank=True, default="")
    region = models.TextField(blank=True, default="")
    size = models.TextField(blank=True, default="")
    os_type = models.TextField(blank=True, default="")
    compute = models.JSONField(default=dict, blank=True)
    agent_version = models.TextField(blank=True, default="")
    protocol = models.IntegerField(default=0)
    enrolled_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    # SHA-256 of the credential; a new enrolment replaces it and so revokes the old one.
    credential_hash = models.TextField(blank=True, default="")
    warnings = models.JSONField(default=list, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["availability_set", "resource_name"], name="machine_by_set_and_name"),
            models.Index(fields=["credential_hash"], name="machine_by_credential"),
        ]

    def __str__(self) -> str:
        return self.resource_name


class InventoryMachine(models.Model):
    """One machine as an imported inventory lists it. `machine` is empty while no agent has enrolled on it.

    `resource_id` is Azure's id, lower case. `set_*` and `placement_group` are what the inventory says of its set, empty
    when it says nothing; `availability_set` is where it is shown: a machine that stands alone is in none before it has
    an agent.
    """

    resource_id = models.TextField(unique=True)
    name = models.TextField()
    subscription = models.TextField()
    resource_group = models.TextField()
    set_kind = models.TextField(blank=True, default="")
    set_name = models.TextField(blank=True, default="")
    set_subscription = models.TextField(blank=True, default="")
    set_resource_group = models.TextField(blank=True, default="")
    placement_group = models.TextField(blank=True, default="")
    vm_id = models.TextField(blank=True, default="", db_index=True)
    zone = models.TextField(blank=True, default="")
    region = models.TextField(blank=True, default="")
    size = models.TextField(blank=True, default="")
    os_type = models.TextField(blank=True, default="")
    machine = models.OneToOneField(Machine, null=True, blank=True, on_delete=models.PROTECT, related_name="inventory")
    availability_set = models.ForeignKey(
        AvailabilitySet, null=True, blank=True, on_delete=models.PROTECT, related_name="inventory"
    )
    imported_at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(Upper("name"), name="inventory_by_name"),
        ]

    def __str__(self) -> str:
        return self.name


class PresenceRow(models.Model):
    """The narrow, hot row of a machine: when it was heard, when it last had a good answer (corrected), its clock.

    `clock_offset` is seconds that the machine's clock is ahead of the backend's.
    """

    machine = models.OneToOneField(Machine, primary_key=True, on_delete=models.PROTECT, related_name="presence")
    last_heard_at = models.DateTimeField(null=True, blank=True)
    last_poll_at = models.DateTimeField(null=True, blank=True)
    clock_offset = models.FloatField(null=True, blank=True)

    def __str__(self) -> str:
        return f"presence of {self.machine_id}"


class Spool(models.Model):
    """One spool of one machine: its number (epoch) and up to where its reports are acknowledged."""

    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="spools")
    spool = models.TextField()
    epoch = models.IntegerField()
    acknowledged = models.BigIntegerField(default=0)
    first_seen_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["machine", "spool"], name="spool_once_per_machine"),
            models.UniqueConstraint(fields=["machine", "epoch"], name="epoch_once_per_machine"),
        ]

    def __str__(self) -> str:
        return f"spool {self.epoch} of {self.machine_id}"


class Head(models.Model):
    """The newest readable document of a machine, by its own sequence. `at` is the corrected time it was read."""

    machine = models.OneToOneField(Machine, primary_key=True, on_delete=models.PROTECT, related_name="head")
    epoch = models.IntegerField()
    seq = models.BigIntegerField()
    document_hash = models.TextField()
    incarnation = models.BigIntegerField(null=True, blank=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"head of {self.machine_id}"
