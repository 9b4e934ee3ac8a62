"""Tables of machines, availability sets, credentials, enrolment and inventory."""

from dataclasses import asdict

from django.contrib.postgres.indexes import GinIndex
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import CheckConstraint, Index, Q, UniqueConstraint
from django.db.models.functions import Upper

from fleet.domain.requirements import Requirements
from fleet.domain.sets import KINDS, MAX_NEEDS
from fleet.models.fields import Line, user_column, validate_web_address
from fleet.models.index_scan import words_of
from fleet.models.rows import ChangeColumn, Row

# Values of what an administrator can require for a set. A set with others is kept and listed, even if it is empty.
UNSET = {**asdict(Requirements()), "admits_until": None}


class RunbookColumn(Row):
    """Column with the address of instructions for events of a set or service."""

    runbook = Line(
        max_length=500,
        blank=True,
        default="",
        db_default="",
        validators=[validate_web_address],
        help_text="A web address (http or https) that pages of its events link to; empty: none.",
    )

    class Meta:
        abstract = True


class AvailabilitySet(ChangeColumn, RunbookColumn):
    """A set: the machines to which Azure delivers the same events.

    `key` is `kind|subscription|resource group|name` in lower case; the name of a scale set includes the placement
    group. The other columns have the spelling as stated. `merged_into` is set if the set turned out to be the same as
    another one.
    """

    key = models.TextField(unique=True)
    kind = models.TextField()
    name = Line(help_text="The name that a provisional set gets; another one has its name.")
    subscription = models.TextField(blank=True, default="")
    resource_group = models.TextField(blank=True, default="")
    service = Line(blank=True, default="", help_text="What it belongs to; empty for nothing.")
    # The suffix that distinguishes it from another set of its name, such as its subscription; empty without one.
    name_suffix = models.TextField(blank=True, default="", db_default="")
    # Whether its scale set announces upgrades and reimages of the operating system; None when not stated.
    upgrade_notices = models.BooleanField(null=True, blank=True)
    # Seconds of notice of a deletion, as the scale set's TerminateNotificationProfile states.
    terminate_notice_seconds = models.IntegerField(null=True, blank=True)
    second_person = models.BooleanField(
        default=False, help_text="Whether approving in it always takes a second person."
    )
    # A process of an earlier release writes no value.
    step_up = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Whether approvers must authenticate again to approve in the set; tokens then cannot approve in it.",
    )
    exempt_service_accounts = models.BooleanField(
        default=False,
        db_default=False,
        help_text=(
            "Whether service accounts may approve in it without authenticating again. A person's token never may."
        ),
    )
    min_live = models.IntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(MAX_NEEDS)],
        help_text="How many live machines the set needs to do its work; 0 if not specified.",
    )
    # Until then notifications about its events are held back; NULL: none is.
    silenced_until = models.DateTimeField(null=True, blank=True)
    # Requirements that an administrator wants to lower where two persons are required, by name, with the requester and
    # time, until another administrator requests the same.
    lowering = models.JSONField(null=True, blank=True)
    lowering_by = user_column(models.SET_NULL, db_index=False)
    lowering_at = models.DateTimeField(null=True, blank=True)
    # Until then its machines that return without their credential are admitted automatically.
    admits_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    # Never a chain: a set merged into a merged one refers to the last one.
    merged_into = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [CheckConstraint(condition=Q(kind__in=list(KINDS)), name="set_kind_known")]
        indexes = [
            Index(fields=["name", "id"], name="set_listed"),
            Index(fields=["service"], name="set_by_service"),
            GinIndex(words_of("name", "service", "resource_group"), name="set_by_words"),
        ]

    def __str__(self) -> str:
        return self.name


class Service(RunbookColumn):
    """Settings of a service. `name` is in lower case; the sets of the service have it in any case. A service without
    settings has no row.
    """

    name = models.TextField(unique=True)

    def __str__(self) -> str:
        return self.name


# Machines, their credentials, and their inventory.


class JoinToken(Row):
    """A token with which new agents enrol. Agents may use it until it expires. Only a hash of the secret is stored.

    `set_id` and `expires_in_seconds` are not columns: they are input for a new token.
    """

    set_id: int | None = None
    expires_in_seconds: int

    prefix = models.TextField(unique=True)
    secret_hash = models.TextField()
    comment = Line("purpose", max_length=2000, blank=True, default="", help_text="What it is for.")
    # A set as `[kind:]name`.
    set_name = Line(
        "or a new set, as kind:name",
        max_length=300,
        blank=True,
        default="",
        help_text="As `kind:name`: the set in which machines that enrol by it are, and no other.",
    )
    # The same as the fields of a `SetKey`: machines that enrol by it are there and nowhere else. Its place is empty
    # until a machine states it. NULL, as in tokens of 0.1.0: `set_name` counts while a machine names none.
    confined_to = models.JSONField(null=True, blank=True)
    created_by = user_column()
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    uses = models.IntegerField(default=0)
    max_uses = models.IntegerField(
        "machines",
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(100_000)],
        help_text="How many machines it admits; as many as ask if nothing is said.",
    )
    # The API token by which it was made, and with which it ends.
    made_with = models.ForeignKey(
        "fleet.ApiToken", null=True, blank=True, on_delete=models.SET_NULL, related_name="join_tokens"
    )

    def __str__(self) -> str:
        return self.prefix

    @property
    def reason(self) -> str:
        """The purpose of the token, for timeline entries."""
        return str(self.comment)


class MachinesInFleet(models.Manager["Machine"]):
    """Manager of the machines that are not decommissioned."""

    def get_queryset(self) -> models.QuerySet["Machine"]:
        return super().get_queryset().filter(decommissioned_at=None)


class Machine(ChangeColumn):
    """One Azure VM, identified by its vmId. `resource_name` is the name that Azure uses in `Resources`.

    A decommissioned machine keeps its row, for the history and for a return. `objects` omits it, so it is in no list
    and no count; `every` has it.
    """

    vm_id = models.TextField(unique=True)
    resource_name = models.TextField()
    # The stated name while another machine of its set has it; else empty. And since when it states it.
    called = models.TextField(blank=True, default="", db_default="")
    named_at = models.DateTimeField(null=True, blank=True)
    # The name of the Kubernetes node that it is; empty for other machines.
    node_name = models.TextField(blank=True, default="", db_default="")
    availability_set = models.ForeignKey(AvailabilitySet, on_delete=models.PROTECT, related_name="machines")
    # What its configuration and its join token say of the set, as `[kind:]name`; empty when they do not.
    stated_set = models.TextField(blank=True, default="")
    token_set = models.TextField(blank=True, default="")
    # The fields of a `SetKey` where its join token or a person confines it to a set; nothing else counts then.
    confined_to = models.JSONField(null=True, blank=True)
    # The source that decides its set (`fleet.domain.sets.SetSource`); empty without any statement.
    set_source = models.TextField(blank=True, default="")
    # The faults of these statements now, in sentences; empty again once they agree.
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
    # An administrator discounted the reports until then; they count again once the machine reports.
    discounted_at = models.DateTimeField(null=True, blank=True)
    # It is revoked, too. NULL again once it has enrolled again.
    decommissioned_at = models.DateTimeField(null=True, blank=True)
    # When a complete inventory listed it no longer; NULL while one lists it, or none ever did.
    unlisted_at = models.DateTimeField(null=True, blank=True)
    # SHA-256 of the credential; a new enrolment replaces it and so revokes the old one.
    credential_hash = models.TextField(blank=True, default="")
    # When Azure attested its identity; NULL where it enrolled in another way.
    attested_at = models.DateTimeField(null=True, blank=True)
    # Of the key that it has; 0 where it has a credential. `credential_hash` is the name of the key then.
    key_generation = models.BigIntegerField(default=0, db_default=0)
    warnings = models.JSONField(default=list, blank=True)
    # With which it enrolled last; NULL before 0.2.0, and where it enrolled by its credential.
    join_token = models.ForeignKey(JoinToken, null=True, blank=True, on_delete=models.SET_NULL, related_name="machines")

    objects = MachinesInFleet()
    every = models.Manager()

    class Meta:
        indexes = [
            Index(fields=["availability_set", "resource_name"], name="machine_by_set_and_name"),
            Index(fields=["resource_name", "id"], name="machine_by_name"),
            Index(Upper("resource_name"), name="machine_by_name_in_any_case"),
            Index(fields=["node_name"], name="machine_by_node_name", opclasses=["text_pattern_ops"]),
            Index(fields=["enrolled_at", "id"], name="machine_by_enrolment"),
            GinIndex(words_of("resource_name"), name="machine_by_words"),
            Index(fields=["credential_hash"], name="machine_by_credential"),
            # Queried by each tick: few.
            Index(fields=["availability_set"], name="machine_beside_its_name", condition=~Q(called="")),
            # Queried once a second by each gateway for recent revocations.
            Index(fields=["revoked_at"], name="machine_revoked", condition=Q(revoked_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return self.resource_name


class Admission(Row):
    """A request to enrol that an administrator must admit: from an unknown machine, or a known one without a
    credential.

    It does not count as a machine and gets no orders. A later request with the secret of `ask_hash` is from the same
    caller. `machine` is NULL if it was unknown. `revoked`: the machine was revoked at the time of the request.
    """

    vm_id = models.TextField(db_default="")
    machine = models.ForeignKey(Machine, null=True, blank=True, on_delete=models.CASCADE, related_name="admissions")
    # Its statements about itself: the fields of `Claimed`, and its set as `[kind:]name`.
    said = models.JSONField(default=dict, blank=True, db_default={})
    # The subscription that Azure has signed; empty where it brought no attested document.
    attested = models.TextField(blank=True, default="", db_default="")
    ask_hash = models.TextField()
    # An agent of 0.1.0 sends no secret: any caller at its address with the same join token would be mistaken for it.
    bound = models.BooleanField(default=True)
    resource_name = models.TextField(blank=True, default="")
    address = models.TextField(blank=True, default="")
    agent_version = models.TextField(blank=True, default="")
    join_token = models.ForeignKey(JoinToken, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    revoked = models.BooleanField(default=False)
    first_requested_at = models.DateTimeField()
    last_requested_at = models.DateTimeField()
    admitted_at = models.DateTimeField(null=True, blank=True)
    admitted_by = models.TextField(blank=True, default="")

    class Meta:
        constraints = [UniqueConstraint(fields=["vm_id", "ask_hash"], name="admission_once_by_id")]


class UnusedKey(Row):
    """A key or credential that was issued to a machine but not used yet, because the answer may have been lost.

    The first call with it deletes the row. Until then, the machine may get another key. To get it, the machine must
    prove its identity with one of `proved_by` (names of keys and credentials, the earlier one first). If it had none,
    it needs the secret of `ask_hash` and the same evidence again: Azure's document (`attested`), else the join token.
    """

    machine = models.OneToOneField(Machine, primary_key=True, on_delete=models.CASCADE, related_name="unused_key")
    found_by = models.TextField(unique=True)
    proved_by = models.JSONField(default=list)
    ask_hash = models.TextField(blank=True, default="")
    attested = models.BooleanField(default=False)
    join_token = models.ForeignKey(JoinToken, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    given_at = models.DateTimeField()


class Nonce(Row):
    """A used nonce of an attested document or of a signed enrolment, stored while the nonce is valid."""

    nonce = models.TextField(primary_key=True)
    spent_at = models.DateTimeField(db_index=True)


class Entrance(Row):
    """The enrolment policy if no setting states one: a single row, written when the tables were created.

    An installation that had machines before attested documents existed has its earlier policy. `chosen` is an
    administrator's later choice, or empty; `subscriptions` are those that the administrator named.
    """

    policy = models.TextField(blank=True)
    chosen = models.TextField(blank=True, default="", db_default="")
    subscriptions = models.JSONField(default=list, blank=True, db_default=[])


class RefusedEnrolment(Row):
    """Refused enrolments of one machine for one reason, counted. Deleted a week after the last one.

    `vm_id` and `name` are as the caller stated them. The number of rows is limited: one row with both empty counts all
    further ones.
    """

    code = models.TextField()
    vm_id = models.TextField(blank=True, default="")
    name = models.TextField(blank=True, default="")
    address = models.TextField(blank=True, default="")
    # A `Reason` as JSON.
    reason = models.JSONField()
    count = models.BigIntegerField(default=0)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [UniqueConstraint(fields=["code", "vm_id"], name="refused_enrolment_once")]


class InventoryMachine(Row):
    """One machine in an imported inventory. `machine` is NULL until an agent has enrolled on it.

    `resource_id` is Azure's id in lower case. `set_*` and `placement_group` are the set as the inventory states it, or
    empty. `availability_set` is the set in which it is shown: none for a standalone machine without an agent.
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
            Index(Upper("name"), name="inventory_by_name"),
            Index(fields=["name", "id"], name="inventory_listed"),
        ]

    def __str__(self) -> str:
        return self.name
