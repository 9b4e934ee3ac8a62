"""Indexes of tables that have rows, built while agents and users continue to work; those that they replace go last."""

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import RemoveIndexConcurrently
from django.contrib.postgres.search import SearchVectorField
from django.db import migrations, models
from django.db.models import Func, Q
from django.db.models.functions import Cast, Upper

from fleet.migrations._together import AddIndexAgain, Together


def index(model, name, *columns, where=None):
    if not all(isinstance(column, str) for column in columns):
        return AddIndexAgain(model, models.Index(*columns, name=name, condition=where))
    return AddIndexAgain(model, models.Index(fields=columns, name=name, condition=where))


def words(model, name, *expressions):
    """An index of the words of several columns, for searching."""
    vector = Func(
        *expressions,
        arg_joiner=" || ' ' || ",
        output_field=SearchVectorField(),
        template="to_tsvector('simple'::regconfig, translate(lower(%(expressions)s), '-_./:;,@()<>&|!*\"[]{}',"
        " '                     '))",
    )
    return AddIndexAgain(model, GinIndex(vector, name=name))


ACTS = Q(via__in=("page", "api", "rule", "command", "slack", "pagerduty"))
MILESTONES = (
    "approval_lapsed", "approval_refused", "approval_void", "drill_began", "drill_ended", "event_ended", "event_seen",
    "event_started", "maintenance_end_not_seen", "maintenance_ended", "maintenance_never_started",
    "maintenance_scheduled", "maintenance_started", "wave_stopped",
)  # fmt: skip
TO_DECIDE = Q(drill=False, status="SCHEDULED")
OPEN = ["SCHEDULED", "STARTED"]
ACTIVE = ["ANNOUNCED", "STARTING", "UNDER_WAY", "FAILED_OVER"]


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("fleet", "0013_data_0_2")]
    replaces = [("fleet", "0047_by_change")]

    operations = [
        Together(
            migrations.AlterField("presencerow", "watched_from", models.DateTimeField(blank=True, null=True)),
            index("apitoken", "token_by_expiry", "expires_at", where=Q(revoked_at__isnull=True)),
            index("approval", "approval_by_change", "changed_at"),
            index("approval", "approval_newest", "-decided_at", "-id"),
            index("availabilityset", "set_listed", "name", "id"),
            index("availabilityset", "set_by_service", "service"),
            words("availabilityset", "set_by_words", "name", "service", "resource_group"),
            words("cache", "cache_by_words", "host", "service"),
            index("claim", "claim_by_change", "changed_at"),
            index("coverage", "coverage_by_change", "changed_at"),
            index("drill", "drill_by_next_check", "next_check_at", where=Q(closed_at__isnull=True)),
            index("entry", "entry_place", "era", "xid", "id"),
            index("entry", "entry_told", "-at", "-id", where=~Q(kind="event_sighted")),
            index("entry", "entry_by_kind", "kind", "-at", "-id"),
            index("entry", "entry_of_milestones", "-at", "-id", where=Q(kind__in=MILESTONES)),
            index("entry", "entry_acts_by_actor", "actor", "-at", "-id", where=ACTS),
            index("entry", "entry_acts", "-at", "-id", where=ACTS),
            index("entry", "entry_acts_by_via", "via", "-at", "-id", where=ACTS),
            index("hold", "hold_by_change", "changed_at"),
            index("inventorymachine", "inventory_listed", "name", "id"),
            index("machine", "machine_by_name", "resource_name", "id"),
            index("machine", "machine_by_name_in_any_case", Upper("resource_name")),
            index("machine", "machine_by_enrolment", "enrolled_at", "id"),
            words("machine", "machine_by_words", "resource_name"),
            index("machine", "machine_beside_its_name", "availability_set", where=~Q(called="")),
            index("machine", "machine_revoked", "revoked_at", where=Q(revoked_at__isnull=False)),
            index("maintenance", "maintenance_by_change", "changed_at"),
            index("maintenance", "maintenance_by_next_check", "next_check_at", where=Q(status__in=ACTIVE)),
            index("order", "order_by_change", "changed_at"),
            index("presencerow", "presence_quarantined", "bounded_since", where=Q(quarantined__gt=0)),
            index("scheduledevent", "event_to_decide", "not_before", "id", where=TO_DECIDE),
            index("scheduledevent", "event_to_decide_by_age", "first_seen_at", "id", where=TO_DECIDE),
            index("scheduledevent", "event_open_drill", "not_before", "id", where=Q(drill=True, status__in=OPEN)),
            index("scheduledevent", "event_open_by_set", "availability_set", where=Q(status__in=OPEN)),
            index("scheduledevent", "event_by_next_check", "next_check_at"),
            index("scheduledevent", "event_by_change", "changed_at"),
            index("scheduledevent", "event_by_not_before", "not_before", "id"),
            words("scheduledevent", "event_by_words", "event_type", Cast("resources", models.TextField())),
            index("wave", "wave_by_next_check", "next_check_at", where=Q(state="RUNNING")),
            RemoveIndexConcurrently("drill", "drill_open"),
            RemoveIndexConcurrently("entry", "entry_stream"),
            RemoveIndexConcurrently("entry", "entry_by_actor"),
            RemoveIndexConcurrently("entry", "entry_of_acts"),
        ),
    ]
