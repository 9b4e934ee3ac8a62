"""The tables of 0.2.0.

No row is read or written. Tables that agents write with each report come last, so they are locked for a moment only.
"""

import uuid
from datetime import UTC, datetime

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import migrations, models
from django.db.models.functions import Now

from fleet.migrations._together import Together

USER = settings.AUTH_USER_MODEL
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def create(model, /, *rules, **fields):
    """A table with these fields, indexes and constraints; with an `id` where no field is its key."""
    if not any(field.primary_key for field in fields.values()):
        key = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")
        fields = {"id": key, **fields}
    indexes = [rule for rule in rules if isinstance(rule, models.Index)]
    constraints = [rule for rule in rules if isinstance(rule, models.BaseConstraint)]
    return migrations.CreateModel(model, [*fields.items()], {"indexes": indexes, "constraints": constraints})


CREATED = (
    create(
        "AccountLink",
        account=models.ForeignKey(USER, models.CASCADE, related_name="+"),
        person=models.ForeignKey(USER, models.CASCADE, related_name="+"),
        kind=models.TextField(),
        since=models.DateTimeField(),
        until=models.DateTimeField(blank=True, null=True),
    ),
    create(
        "Admission",
        models.UniqueConstraint(fields=("vm_id", "ask_hash"), name="admission_once_by_id"),
        vm_id=models.TextField(db_default=""),
        machine=models.ForeignKey("fleet.machine", models.CASCADE, blank=True, null=True, related_name="admissions"),
        said=models.JSONField(blank=True, db_default={}, default=dict),
        attested=models.TextField(blank=True, db_default="", default=""),
        ask_hash=models.TextField(),
        bound=models.BooleanField(default=True),
        resource_name=models.TextField(blank=True, default=""),
        address=models.TextField(blank=True, default=""),
        agent_version=models.TextField(blank=True, default=""),
        join_token=models.ForeignKey("fleet.jointoken", models.PROTECT, blank=True, null=True, related_name="+"),
        revoked=models.BooleanField(default=False),
        first_requested_at=models.DateTimeField(),
        last_requested_at=models.DateTimeField(),
        admitted_at=models.DateTimeField(blank=True, null=True),
        admitted_by=models.TextField(blank=True, default=""),
    ),
    create(
        "ArchiveFile",
        models.Index(fields=["kind", "first_id"], name="archive_by_id"),
        models.Index(condition=models.Q(last_seal__isnull=False), fields=["kind", "last_seal"], name="archive_by_seal"),
        GinIndex(fields=["events"], name="archive_by_event"),
        number=models.BigIntegerField(primary_key=True, serialize=False),
        kind=models.TextField(),
        form=models.SmallIntegerField(),
        rows=models.BigIntegerField(),
        first_id=models.BigIntegerField(),
        last_id=models.BigIntegerField(),
        first_at=models.DateTimeField(),
        last_at=models.DateTimeField(),
        first_seal=models.BigIntegerField(blank=True, null=True),
        last_seal=models.BigIntegerField(blank=True, null=True),
        manifest=models.JSONField(),
        bytes=models.BigIntegerField(),
        hash=models.TextField(),
        events=ArrayField(models.BigIntegerField(), default=list),
        archived_at=models.DateTimeField(),
        dropped_at=models.DateTimeField(blank=True, null=True),
    ),
    create(
        "ArchiveState",
        name=models.TextField(primary_key=True, serialize=False),
        tried_at=models.DateTimeField(),
        worked_at=models.DateTimeField(blank=True, null=True),
        fault=models.TextField(blank=True, default=""),
        fault_since=models.DateTimeField(blank=True, null=True),
        held=models.JSONField(default=dict),
    ),
    create(
        "CalendarFeed",
        user=models.ForeignKey(USER, models.CASCADE, related_name="calendar_feeds"),
        prefix=models.TextField(unique=True),
        secret_hash=models.TextField(),
        name=models.TextField(),
        set_pattern=models.TextField(blank=True, default=""),
        service=models.TextField(blank=True, default=""),
        created_at=models.DateTimeField(),
        ended_at=models.DateTimeField(blank=True, null=True),
        last_used_at=models.DateTimeField(blank=True, null=True),
    ),
    create(
        "Channel",
        kind=models.TextField(),
        name=models.TextField(),
        owner=models.ForeignKey(USER, models.CASCADE, blank=True, null=True, related_name="channels"),
        settings=models.JSONField(default=dict),
        secrets=models.TextField(blank=True, default=""),
        enabled=models.BooleanField(default=True),
        created_at=models.DateTimeField(),
        changed_at=models.DateTimeField(),
        deleted_at=models.DateTimeField(blank=True, null=True),
        made_with=models.ForeignKey("fleet.apitoken", models.SET_NULL, blank=True, null=True, related_name="channels"),
        last_ok_at=models.DateTimeField(blank=True, null=True),
        failing_since=models.DateTimeField(blank=True, null=True),
        failures=models.IntegerField(default=0),
        last_error=models.TextField(blank=True, default=""),
        last_answer=models.TextField(blank=True, default=""),
        held_until=models.DateTimeField(blank=True, null=True),
        leased_until=models.DateTimeField(blank=True, null=True),
        mirrored_at=models.DateTimeField(blank=True, null=True),
    ),
    create(
        "Cursor",
        name=models.TextField(primary_key=True, serialize=False),
        era=models.SmallIntegerField(),
        xid=models.BigIntegerField(),
        entry_id=models.BigIntegerField(),
        moved_at=models.DateTimeField(),
    ),
    create(
        "MessageDelivery",
        models.Index(
            condition=models.Q(state__in=["QUEUED", "SENDING"]),
            fields=["channel", "created_at", "id"],
            name="delivery_open",
        ),
        models.Index(fields=["channel", "-created_at", "-id"], name="delivery_newest"),
        models.Index(fields=["-created_at", "-id"], name="delivery_log"),
        models.Index(fields=["state", "-created_at", "-id"], name="delivery_by_state"),
        models.CheckConstraint(
            condition=models.Q(state__in=["QUEUED", "SENDING", "DELIVERED", "DROPPED", "GIVEN_UP"]),
            name="delivery_state_known",
        ),
        id=models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False),
        channel=models.ForeignKey("fleet.channel", models.PROTECT, related_name="deliveries"),
        moment=models.TextField(),
        group=models.TextField(blank=True, default=""),
        state=models.TextField(default="QUEUED"),
        created_at=models.DateTimeField(),
        due_at=models.DateTimeField(),
        attempts=models.IntegerField(default=0),
        settled_at=models.DateTimeField(blank=True, null=True),
        why=models.TextField(blank=True, default=""),
    ),
    create(
        "DeliveryAttempt",
        models.Index(fields=["-at"], name="attempt_newest"),
        models.UniqueConstraint(fields=("delivery", "number"), name="attempt_once"),
        delivery=models.ForeignKey("fleet.messagedelivery", models.CASCADE, related_name="tries"),
        number=models.IntegerField(),
        at=models.DateTimeField(),
        ended_at=models.DateTimeField(blank=True, null=True),
        ok=models.BooleanField(blank=True, null=True),
        status=models.IntegerField(blank=True, null=True),
        error=models.TextField(blank=True, default=""),
        answer=models.TextField(blank=True, default=""),
    ),
    create(
        "Entrance",
        policy=models.TextField(blank=True),
        chosen=models.TextField(blank=True, db_default="", default=""),
        subscriptions=models.JSONField(blank=True, db_default=[], default=list),
    ),
    create("FormerName", hash=models.TextField(primary_key=True, serialize=False), number=models.BigIntegerField()),
    create(
        "HookCall",
        models.Index(fields=["at"], name="hook_call_by_age"),
        models.UniqueConstraint(fields=("channel", "key"), name="hook_call_once"),
        channel=models.ForeignKey("fleet.channel", models.CASCADE, related_name="+"),
        key=models.TextField(),
        at=models.DateTimeField(),
    ),
    create(
        "KnownDevice",
        user=models.ForeignKey(USER, models.CASCADE, related_name="+"),
        secret_hash=models.TextField(unique=True),
        made_at=models.DateTimeField(),
    ),
    create(
        "Route",
        name=models.TextField(),
        position=models.IntegerField(default=0),
        enabled=models.BooleanField(default=True),
        channel=models.ForeignKey("fleet.channel", models.PROTECT, blank=True, null=True, related_name="routes"),
        owner=models.ForeignKey(USER, models.CASCADE, blank=True, null=True, related_name="routes"),
        moments=models.JSONField(default=list),
        event_types=models.JSONField(default=list),
        sources=models.JSONField(default=list),
        severities=models.JSONField(default=list),
        set_pattern=models.TextField(blank=True, default=""),
        service=models.TextField(blank=True, default=""),
        resource_group=models.TextField(blank=True, default=""),
        weekdays=models.JSONField(default=list),
        from_time=models.TimeField(blank=True, null=True),
        until_time=models.TimeField(blank=True, null=True),
        time_zone=models.TextField(default="UTC"),
        unclaimed_after_seconds=models.IntegerField(blank=True, null=True),
        before_decide_by_seconds=models.IntegerField(blank=True, null=True),
        version=models.IntegerField(default=1),
        created_at=models.DateTimeField(),
        changed_at=models.DateTimeField(),
        deleted_at=models.DateTimeField(blank=True, null=True),
    ),
    create(
        "Message",
        models.UniqueConstraint(
            condition=models.Q(entry_id__isnull=False),
            fields=("entry_id", "channel", "moment", "only_if", "route"),
            name="message_once",
        ),
        models.Index(condition=models.Q(state="WAITING"), fields=["channel", "due_at", "id"], name="message_waiting"),
        models.Index(condition=models.Q(event__isnull=False), fields=["event", "id"], name="message_by_event"),
        models.Index(condition=models.Q(state="UNROUTED"), fields=["-id"], name="message_unrouted"),
        models.Index(condition=models.Q(delivery=None), fields=["-id"], name="message_unsent"),
        models.Index(fields=["-created_at", "-id"], name="message_newest"),
        models.Index(fields=["channel", "-created_at", "-id"], name="message_by_channel"),
        models.Index(fields=["state", "-created_at", "-id"], name="message_by_state"),
        models.Index(fields=["moment", "-created_at", "-id"], name="message_by_moment"),
        models.CheckConstraint(
            condition=models.Q(state__in=["WAITING", "PACKED", "TOLD", "DROPPED", "GIVEN_UP", "UNROUTED"]),
            name="message_state_known",
        ),
        moment=models.TextField(),
        subject=models.TextField(),
        entry_id=models.BigIntegerField(blank=True, null=True),
        event=models.ForeignKey(
            "fleet.scheduledevent", models.PROTECT, blank=True, db_constraint=False, null=True, related_name="messages"
        ),
        at=models.DateTimeField(),
        created_at=models.DateTimeField(),
        due_at=models.DateTimeField(),
        only_if=models.TextField(blank=True, default=""),
        severity=models.TextField(),
        service=models.TextField(blank=True, default=""),
        drill=models.BooleanField(default=False),
        deadline=models.DateTimeField(blank=True, null=True),
        data=models.JSONField(default=dict),
        channel=models.ForeignKey(
            "fleet.channel", models.PROTECT, blank=True, db_constraint=False, null=True, related_name="messages"
        ),
        route=models.ForeignKey(
            "fleet.route", models.PROTECT, blank=True, db_constraint=False, null=True, related_name="messages"
        ),
        route_version=models.IntegerField(blank=True, null=True),
        state=models.TextField(default="WAITING"),
        delivery=models.ForeignKey(
            "fleet.messagedelivery", models.PROTECT, blank=True, db_constraint=False, null=True, related_name="messages"
        ),
        why=models.TextField(blank=True, default=""),
    ),
    create(
        "Nonce", nonce=models.TextField(primary_key=True, serialize=False), spent_at=models.DateTimeField(db_index=True)
    ),
    create(
        "OpenTrouble",
        key=models.TextField(primary_key=True, serialize=False),
        code=models.TextField(),
        availability_set=models.ForeignKey(
            "fleet.availabilityset", models.CASCADE, blank=True, db_index=False, null=True, related_name="+"
        ),
        cache=models.ForeignKey("fleet.cache", models.CASCADE, blank=True, db_index=False, null=True, related_name="+"),
        of=models.TextField(blank=True, default=""),
        names=models.JSONField(default=list),
        count=models.IntegerField(default=0),
        values=models.JSONField(default=dict),
        since=models.DateTimeField(),
        recorded_at=models.DateTimeField(blank=True, null=True),
    ),
    create(
        "OutsideAccount",
        models.UniqueConstraint(fields=("kind", "team", "account"), name="outside_account_once"),
        kind=models.TextField(),
        team=models.TextField(blank=True, default=""),
        account=models.TextField(),
        name=models.TextField(blank=True, default=""),
        user=models.ForeignKey(USER, models.CASCADE, blank=True, null=True, related_name="outside_accounts"),
        seen_at=models.DateTimeField(blank=True, null=True),
        linked_at=models.DateTimeField(blank=True, null=True),
    ),
    create(
        "PersonSession",
        models.Index(fields=["last_seen_at"], name="person_session_by_age"),
        user=models.ForeignKey(USER, models.CASCADE, related_name="+"),
        key_hash=models.TextField(unique=True),
        sign_in_method=models.TextField(blank=True, default=""),
        browser=models.TextField(blank=True, default=""),
        system=models.TextField(blank=True, default=""),
        address=models.TextField(blank=True, default=""),
        last_address=models.TextField(blank=True, default=""),
        signed_in_at=models.DateTimeField(blank=True, null=True),
        last_seen_at=models.DateTimeField(),
    ),
    create(
        "PollGap",
        models.Index(fields=["machine", "-ends_at"], name="poll_gap_newest"),
        machine=models.ForeignKey("fleet.machine", models.PROTECT, db_index=False, related_name="poll_gaps"),
        begins_at=models.DateTimeField(),
        ends_at=models.DateTimeField(),
    ),
    create(
        "PushKey",
        name=models.TextField(primary_key=True, serialize=False),
        public_key=models.TextField(),
        private_key=models.TextField(),
        created_at=models.DateTimeField(),
    ),
    create(
        "Reference",
        models.UniqueConstraint(fields=("channel", "subject"), name="reference_once"),
        channel=models.ForeignKey("fleet.channel", models.CASCADE, related_name="references"),
        subject=models.TextField(),
        value=models.JSONField(default=dict),
        changed_at=models.DateTimeField(),
    ),
    create(
        "RefusedEnrolment",
        models.UniqueConstraint(fields=("code", "vm_id"), name="refused_enrolment_once"),
        code=models.TextField(),
        vm_id=models.TextField(blank=True, default=""),
        name=models.TextField(blank=True, default=""),
        address=models.TextField(blank=True, default=""),
        reason=models.JSONField(),
        count=models.BigIntegerField(default=0),
        first_at=models.DateTimeField(),
        last_at=models.DateTimeField(db_index=True),
    ),
    create(
        "SavedView",
        models.Index(condition=models.Q(shared=True), fields=["page", "name"], name="view_shared"),
        models.UniqueConstraint(fields=("owner", "page", "name"), name="view_once"),
        owner=models.ForeignKey(USER, models.CASCADE, related_name="saved_views"),
        name=models.TextField(),
        page=models.TextField(),
        query=models.TextField(blank=True, default=""),
        shared=models.BooleanField(default=False),
        created_at=models.DateTimeField(),
    ),
    create(
        "ServiceAccount",
        user=models.OneToOneField(
            USER, models.CASCADE, primary_key=True, related_name="service_account", serialize=False
        ),
        owner=models.ForeignKey(USER, models.SET_NULL, blank=True, null=True, related_name="+"),
        purpose=models.TextField(),
        created_at=models.DateTimeField(),
    ),
    create(
        "QuarantinedRow",
        models.UniqueConstraint(fields=("what", "row_id"), name="quarantined_row_once"),
        what=models.TextField(),
        row_id=models.BigIntegerField(),
        since=models.DateTimeField(),
        reason=models.TextField(),
        tries=models.IntegerField(default=1),
        next_try_at=models.DateTimeField(),
    ),
    create(
        "SetBlindSpot",
        models.Index(fields=["rank", "set_name", "availability_set", "part"], name="set_blind_spot_listed"),
        models.UniqueConstraint(fields=("availability_set", "code", "part"), name="set_blind_spot_once"),
        availability_set=models.ForeignKey(
            "fleet.availabilityset", models.CASCADE, db_constraint=False, related_name="+"
        ),
        rank=models.SmallIntegerField(),
        code=models.TextField(),
        set_name=models.TextField(db_collation="C"),
        part=models.TextField(blank=True, db_collation="C", default=""),
        certainty=models.TextField(),
        machine_ids=ArrayField(models.BigIntegerField(), default=list),
        names=ArrayField(models.TextField(), default=list),
        count=models.IntegerField(default=0),
        values=models.JSONField(default=dict),
        other_set=models.ForeignKey(
            "fleet.availabilityset",
            models.CASCADE,
            blank=True,
            db_constraint=False,
            db_index=False,
            null=True,
            related_name="+",
        ),
    ),
    create(
        "SetCount",
        models.Index(fields=["judged_at"], name="set_judged_longest_ago"),
        models.Index(fields=["due_at"], name="set_judged_again"),
        models.Index(fields=["judged_by"], name="set_judged_by"),
        availability_set=models.OneToOneField(
            "fleet.availabilityset",
            models.CASCADE,
            db_constraint=False,
            primary_key=True,
            related_name="count",
            serialize=False,
        ),
        live=models.IntegerField(default=0),
        late=models.IntegerField(default=0),
        silent=models.IntegerField(default=0),
        gone=models.IntegerField(default=0),
        expected=models.IntegerField(default=0),
        agents=models.IntegerField(default=0),
        without_agent=models.IntegerField(default=0),
        regions=ArrayField(models.TextField(), default=list),
        judged_at=models.DateTimeField(),
        judged_by=models.TextField(),
        due_at=models.DateTimeField(blank=True, null=True),
    ),
    create(
        "SignOn",
        models.Index(condition=models.Q(next_check_at__isnull=False), fields=["next_check_at"], name="sign_on_due"),
        models.Index(condition=models.Q(user=None), fields=["seen_at"], name="sign_on_strangers"),
        models.UniqueConstraint(fields=("issuer", "subject"), name="sign_on_subject_once"),
        issuer=models.TextField(),
        subject=models.TextField(),
        user=models.OneToOneField(USER, models.CASCADE, blank=True, null=True, related_name="sign_on"),
        name=models.TextField(blank=True, default=""),
        values=models.JSONField(default=list),
        refused=models.TextField(blank=True, default=""),
        refresh_token=models.TextField(blank=True, default=""),
        seen_at=models.DateTimeField(blank=True, null=True),
        linked_at=models.DateTimeField(blank=True, null=True),
        checked_at=models.DateTimeField(blank=True, null=True),
        valid_until=models.DateTimeField(blank=True, null=True),
        next_check_at=models.DateTimeField(blank=True, null=True),
    ),
    create(
        "SignOnGrant",
        models.CheckConstraint(
            condition=models.Q(group__in=["viewer", "operator", "approver", "admin"]), name="sign_on_grant_group_known"
        ),
        value=models.TextField(unique=True),
        group=models.TextField(),
        scopes=models.JSONField(default=list),
        created_at=models.DateTimeField(),
    ),
    create(
        "StaleSet",
        availability_set=models.ForeignKey(
            "fleet.availabilityset", models.DO_NOTHING, db_constraint=False, related_name="+"
        ),
    ),
    create(
        "Stop",
        models.UniqueConstraint(fields=("lifted_at",), name="one_stop_at_a_time", nulls_distinct=False),
        stopped_at=models.DateTimeField(),
        stopped_by=models.TextField(),
        why=models.TextField(),
        lifted_at=models.DateTimeField(blank=True, null=True),
        lifted_by=models.TextField(blank=True, default=""),
        lifted_why=models.TextField(blank=True, default=""),
    ),
    create(
        "UnusedKey",
        machine=models.OneToOneField(
            "fleet.machine", models.CASCADE, primary_key=True, related_name="unused_key", serialize=False
        ),
        found_by=models.TextField(unique=True),
        proved_by=models.JSONField(default=list),
        ask_hash=models.TextField(blank=True, default=""),
        attested=models.BooleanField(default=False),
        join_token=models.ForeignKey("fleet.jointoken", models.CASCADE, blank=True, null=True, related_name="+"),
        given_at=models.DateTimeField(),
    ),
    create(
        "WaitingReport",
        models.UniqueConstraint(fields=("what", "about", "machine_id", "epoch", "seq"), name="waiting_report_once"),
        what=models.TextField(),
        about=models.TextField(),
        machine_id=models.BigIntegerField(),
        epoch=models.IntegerField(),
        seq=models.BigIntegerField(),
        since=models.DateTimeField(),
    ),
    create(
        "WrongClock",
        process=models.TextField(primary_key=True, serialize=False),
        kind=models.TextField(),
        skew_seconds=models.FloatField(),
        seen_at=models.DateTimeField(db_default=Now()),
    ),
)

CHANGED_AT = models.DateTimeField(db_default=Now(), editable=False)
NEXT_CHECK_AT = models.DateTimeField(db_default=LONG_AGO, default=LONG_AGO)
ADDED = {
    "apitoken": {
        "allowed_from": models.JSONField(db_default=[], default=list),
        "made_by": models.ForeignKey(USER, models.SET_NULL, blank=True, db_index=False, null=True, related_name="+"),
        "made_with": models.ForeignKey("fleet.apitoken", models.CASCADE, blank=True, null=True, related_name="made"),
        "notified_days": models.SmallIntegerField(blank=True, null=True),
    },
    "approval": {
        "changed_at": CHANGED_AT,
        "consent_token": models.ForeignKey(
            "fleet.apitoken", models.SET_NULL, blank=True, db_index=False, null=True, related_name="+"
        ),
        "decided_for": models.ForeignKey(USER, models.PROTECT, blank=True, db_index=False, null=True, related_name="+"),
        "decided_on": models.JSONField(blank=True, db_default={}, default=dict),
        "request_id": models.TextField(blank=True, db_default="", default=""),
        "returned": models.BooleanField(db_default=False, default=False),
        "token": models.ForeignKey(
            "fleet.apitoken", models.SET_NULL, blank=True, db_index=False, null=True, related_name="+"
        ),
        "trace_id": models.TextField(blank=True, db_default="", default=""),
    },
    "availabilityset": {
        "admits_until": models.DateTimeField(blank=True, null=True),
        "name_suffix": models.TextField(blank=True, db_default="", default=""),
        "changed_at": CHANGED_AT,
        "lowering": models.JSONField(blank=True, null=True),
        "lowering_at": models.DateTimeField(blank=True, null=True),
        "lowering_by": models.ForeignKey(
            USER, models.SET_NULL, blank=True, db_index=False, null=True, related_name="+"
        ),
        "min_live": models.IntegerField(blank=True, null=True),
        "step_up": models.BooleanField(db_default=False, default=False),
        "exempt_service_accounts": models.BooleanField(db_default=False, default=False),
    },
    "cache": {"changed_at": CHANGED_AT},
    "claim": {"changed_at": CHANGED_AT},
    "coverage": {"changed_at": CHANGED_AT},
    "drill": {"changed_at": CHANGED_AT, "next_check_at": NEXT_CHECK_AT},
    "hold": {"changed_at": CHANGED_AT},
    "jointoken": {
        "confined_to": models.JSONField(blank=True, null=True),
        "made_with": models.ForeignKey(
            "fleet.apitoken", models.SET_NULL, blank=True, null=True, related_name="join_tokens"
        ),
        "max_uses": models.IntegerField(blank=True, null=True),
    },
    "lastrun": {
        "newest_id": models.BigIntegerField(db_default=0, default=0),
        "snapshot": models.TextField(blank=True, db_default="", default=""),
        "times": models.TextField(blank=True, db_default="", default=""),
    },
    "loginattempts": {"at": models.DateTimeField(null=True)},
    "maintenance": {"changed_at": CHANGED_AT, "next_check_at": NEXT_CHECK_AT},
    "order": {
        "changed_at": CHANGED_AT,
        "posts": models.IntegerField(blank=True, null=True),
        "retry_after_seconds": models.FloatField(blank=True, null=True),
    },
    "profile": {
        "first_steps": models.BooleanField(db_default=True, default=True),
        "handover_read_until": models.DateTimeField(blank=True, null=True),
        "notifications": models.BooleanField(db_default=False, default=False),
        "sound": models.BooleanField(db_default=False, default=False),
    },
    "seal": {"last_era": models.SmallIntegerField(db_default=1, default=1)},
    "wave": {"changed_at": CHANGED_AT, "next_check_at": NEXT_CHECK_AT},
    "machine": {
        "attested_at": models.DateTimeField(blank=True, null=True),
        "called": models.TextField(blank=True, db_default="", default=""),
        "changed_at": CHANGED_AT,
        "confined_to": models.JSONField(blank=True, null=True),
        "join_token": models.ForeignKey(
            "fleet.jointoken", models.SET_NULL, blank=True, null=True, related_name="machines"
        ),
        "key_generation": models.BigIntegerField(db_default=0, default=0),
        "named_at": models.DateTimeField(blank=True, null=True),
    },
    "scheduledevent": {
        "changed_at": CHANGED_AT,
        "kept": models.JSONField(blank=True, null=True),
        "next_check_at": models.DateTimeField(blank=True, null=True),
    },
    "documentbody": {"number": models.BigIntegerField(db_default=0, editable=False)},
    "entry": {"era": models.SmallIntegerField(db_default=1, editable=False)},
    "spool": {
        "acknowledged_before": models.BigIntegerField(db_default=0, default=0),
        "reported_epoch": models.IntegerField(db_default=0, default=0),
    },
    "presencerow": {
        # From now on for machines that are there, by a default that 0014 removes: a value that is stored once.
        "watched_from": models.DateTimeField(blank=True, db_default=Now(), null=True),
        "bounded_since": models.DateTimeField(blank=True, null=True),
        "changed_at": CHANGED_AT,
        "lacking_since": models.DateTimeField(blank=True, null=True),
        "new_caches": models.IntegerField(db_default=0, default=0),
        "new_statements": models.IntegerField(db_default=0, default=0),
        "odd_bytes": models.BigIntegerField(db_default=0, default=0),
        "odd_since": models.DateTimeField(blank=True, null=True),
        "quarantined": models.IntegerField(db_default=0, default=0),
        "seen": models.SmallIntegerField(blank=True, null=True),
        "signatures": models.TextField(blank=True, db_default="", default=""),
        "unreadable_since": models.DateTimeField(blank=True, null=True),
    },
}


class Migration(migrations.Migration):
    dependencies = [("fleet", "0011_drills"), migrations.swappable_dependency(USER)]

    # Of databases that were migrated between the releases: one that has all of these has this one, too.
    replaces = [
        ("fleet", name)
        for name in """
        0012_names 0013_login_devices 0014_posts 0015_stop 0016_revoked 0017_aside 0018_admissions
        0019_join_tokens 0020_what_is_due 0021_confinement 0022_signatures 0023_restores
        0024_waiting_reports 0025_admission_rule 0026_names 0027_eras 0028_oddities 0029_pages_that_tell
        0030_handover 0031_milestones 0032_look_at_all 0034_find_and_saved_views 0035_messages
        0036_needs_live 0037_default_route 0038_message_queue 0039_delivery_log 0040_calendars_and_push
        0041_troubles 0042_message_log 0043_coming_back 0044_acts_from_elsewhere 0045_traces 0046_changes
        0048_spool_marks 0049_poll_gaps 0050_pages_by_index 0051_blind_spots 0053_archive 0054_sign_on
        0055_former_names 0056_to_decide 0057_doors 0058_sets_that_ask_again 0059_acts_by_way 0060_sessions
        0061_unused_keys 0062_service_accounts 0063_token_makers 0064_what_tokens_made 0065_decided_on
        0066_refused_enrolments 0067_wrong_clocks 0068_requirements_kept 0069_bounds_of_machines
        """.split()
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RenameModel("Head", "LatestDocument"),
                migrations.AlterModelTable("latestdocument", "fleet_head"),
                migrations.AlterField(
                    "latestdocument",
                    "machine",
                    models.OneToOneField(
                        "fleet.machine",
                        models.PROTECT,
                        primary_key=True,
                        related_name="latest_document",
                        serialize=False,
                    ),
                ),
                migrations.RenameModel("Sweep", "LastRun"),
                migrations.AlterModelTable("lastrun", "fleet_sweep"),
            ]
        ),
        Together(
            *CREATED,
            migrations.AlterModelOptions("messagedelivery", {"verbose_name_plural": "deliveries"}),
            *(
                migrations.AddField(model, name, field)
                for model, fields in ADDED.items()
                for name, field in fields.items()
            ),
        ),
    ]
