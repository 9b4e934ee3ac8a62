"""What rows of 0.1.0 need in the tables of 0.2.0, a first notification route, and the triggers that keep rows current.

The triggers follow the rows: what is filled in here is no change of them.
"""

import hashlib
from collections import defaultdict
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import migrations

ROWS = """
-- An event that has ended for good is never checked again; every other event is due now.
UPDATE fleet_scheduledevent AS event SET next_check_at = '9999-01-01 00:00:00+00'
WHERE status = 'ENDED' AND NOT EXISTS (
    SELECT FROM fleet_approval WHERE event_id = event.id
    AND state IN ('PROPOSED', 'WAITING', 'GRANTED', 'RELAYING', 'ACCEPTED'));
UPDATE fleet_presencerow AS row SET last_poll_at = GREATEST(row.last_poll_at, head.at)
FROM fleet_head AS head WHERE head.machine_id = row.machine_id;
-- An installation that has machines continues to admit them by join tokens.
INSERT INTO fleet_entrance (policy)
SELECT 'token' WHERE EXISTS (SELECT FROM fleet_machine) OR EXISTS (SELECT FROM fleet_jointoken);
-- Open events keep what their set requires now.
UPDATE fleet_scheduledevent AS event SET kept = jsonb_build_object('homes', '[]'::jsonb, 'requirements',
    '{"second_person": true, "step_up": false, "exempt_service_accounts": false, "min_live": null}'::jsonb)
FROM fleet_availabilityset AS of_event
WHERE of_event.id = event.availability_set_id AND of_event.second_person AND status IN ('SCHEDULED', 'STARTED');
"""

NAME = "Events that need action"
# Neither what users do themselves (claims, decisions) nor the steps of an announced event on the way to its end.
MOMENTS = [
    "approval.overdue",
    "approval.proposed",
    "approval.refused",
    "audit.failed",
    "break_glass.used",
    "channel.failing",
    "coverage.opened",
    "event.changed",
    "event.ended",
    "event.first_seen",
    "maintenance.announced",
    "maintenance.ended",
    "set.lowered",
    "set.unwatched",
    "source.quiet",
    "storage.trouble",
]


def offer(apps, schema_editor):
    """Create one route, so that a first channel gets notifications at once."""
    routes = apps.get_model("fleet", "Route")
    if not routes.objects.exists():
        now = datetime.now(UTC)
        routes.objects.create(position=1, name=NAME, moments=MOMENTS, created_at=now, changed_at=now)


def tell_apart(apps, schema_editor):
    """Store a suffix for each of several sets of one name."""
    sets = apps.get_model("fleet", "AvailabilitySet").objects
    by_name = defaultdict(list)
    for row in sets.filter(merged_into=None).exclude(kind="provisional").order_by("pk"):
        by_name[row.name.lower()].append(row)
    for rows in by_name.values():
        for row in rows:
            suffix = suffix_of(row, [other for other in rows if other is not row])
            if suffix:
                sets.filter(pk=row.pk).update(name_suffix=suffix)


def suffix_of(row, others):
    """Return as much of resource group, subscription and kind as distinguishes the set from the others."""
    place = (row.resource_group.lower(), row.subscription.lower())
    places = [(other.resource_group.lower(), other.subscription.lower()) for other in others]
    parts = []
    if any(group != place[0] for group, _ in places):
        parts.append(row.resource_group or "no resource group")
    if any(subscription != place[1] for _, subscription in places):
        parts.append(row.subscription or "no subscription")
    if place in places:
        parts.append(row.kind.replace("_", " "))
    return ", ".join(parts)


def list_sessions(apps, schema_editor):
    """List the sessions that have not expired, with their browser, address and start."""
    listed = apps.get_model("fleet", "PersonSession")
    users = set(apps.get_model("auth", "User").objects.values_list("pk", flat=True))
    age = timedelta(seconds=settings.SESSION_COOKIE_AGE)
    store, rows = SessionStore(), []
    sessions = apps.get_model("sessions", "Session").objects.filter(expire_date__gt=datetime.now(UTC))
    for session in sessions.iterator(chunk_size=500):
        user_id = str(store.decode(session.session_data).get(SESSION_KEY, ""))
        if user_id.isdigit() and int(user_id) in users:
            key_hash = hashlib.sha256(session.session_key.encode()).hexdigest()
            # When it was last written.
            seen_at = session.expire_date - age
            rows.append(listed(user_id=int(user_id), key_hash=key_hash, last_seen_at=seen_at))
    listed.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)


# By table: columns whose change does not move `changed_at`: when a row is checked next, when a listener last reported.
CHANGING = {
    "approval": (),
    "availabilityset": (),
    "cache": (),
    "claim": (),
    "coverage": ("vouched_at", "epoch", "seq"),
    "drill": ("next_check_at",),
    "hold": (),
    "machine": (),
    "maintenance": ("next_check_at",),
    "order": (),
    "scheduledevent": ("next_check_at",),
    "wave": ("next_check_at",),
}


def function(name, body, declare=""):
    return f"CREATE FUNCTION fleet_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ {declare} BEGIN {body} END $$;"


def trigger(name, of, when, event, condition=""):
    """`of` is the table, `when` BEFORE or AFTER; the function is called as the trigger, but for `_changed`."""
    return (
        f"CREATE TRIGGER fleet_{name} {when} {event} ON fleet_{of} FOR EACH ROW"
        f" {f'WHEN ({condition})' if condition else ''} EXECUTE FUNCTION fleet_{name.replace('_changed', '')}();"
    )


def changed(*columns):
    return " OR ".join(f'OLD."{column}" IS DISTINCT FROM NEW."{column}"' for column in columns)


def changes(table, apart):
    """A change moves `changed_at`, also one of a process of 0.1.0; nothing else moves it."""
    untold = " ".join(f"told.{column} := NEW.{column};" for column in (*apart, "changed_at"))
    body = f"""{untold}
        NEW.changed_at := CASE WHEN told IS DISTINCT FROM NEW THEN clock_timestamp() ELSE OLD.changed_at END;
        RETURN NEW;"""
    name = f"{table}_changes"
    return function(name, body, f"DECLARE told fleet_{table}%ROWTYPE := OLD;") + trigger(name, table, "BEFORE", "UPDATE")


# The row of a machine that each report writes: it changes for users when the machine's state does.
PRESENCE_CHANGES = (
    function("presencerow_changes", "NEW.changed_at := clock_timestamp(); RETURN NEW;"),
    trigger("presencerow_changes", "presencerow", "BEFORE", "UPDATE", changed("seen", "signatures")),
)
# Sixteen minutes: from then on a time without polls is a gap. Processes of 0.1.0 write polls, too.
POLL_LEAPS = (
    function(
        "poll_leaps",
        """INSERT INTO fleet_pollgap (machine_id, begins_at, ends_at)
        VALUES (NEW.machine_id, COALESCE(OLD.last_poll_at, OLD.watched_from), NEW.last_poll_at);
        RETURN NULL;""",
    ),
    trigger(
        "poll_leaps",
        "presencerow",
        "AFTER",
        "UPDATE OF last_poll_at",
        "NEW.last_poll_at > COALESCE(OLD.last_poll_at, OLD.watched_from) + interval '16 minutes'",
    ),
)

# Every writer of what blind spots of a set depend on adds a row for that set, in the same transaction: also a process
# of 0.1.0, and an administrator with SQL. A set that a machine leaves has changed, too.
OF_MACHINE = """INSERT INTO fleet_staleset (availability_set_id)
    SELECT availability_set_id FROM fleet_machine WHERE id = NEW.machine_id;"""
STALE = {
    "machine": """INSERT INTO fleet_staleset (availability_set_id) VALUES (NEW.availability_set_id);
        IF TG_OP = 'UPDATE' THEN
            INSERT INTO fleet_staleset (availability_set_id)
            SELECT OLD.availability_set_id WHERE OLD.availability_set_id <> NEW.availability_set_id
            UNION ALL SELECT availability_set_id FROM fleet_inventorymachine
            WHERE machine_id = NEW.id AND availability_set_id <> NEW.availability_set_id;
        END IF;""",
    "inventory": """IF TG_OP <> 'INSERT' AND OLD.availability_set_id IS NOT NULL THEN
            INSERT INTO fleet_staleset (availability_set_id) VALUES (OLD.availability_set_id);
        END IF;
        IF TG_OP <> 'DELETE' AND NEW.availability_set_id IS NOT NULL THEN
            INSERT INTO fleet_staleset (availability_set_id) VALUES (NEW.availability_set_id);
        END IF;""",
    # What its machines list of another set, and what others list of it, is shown with its name.
    "set": """INSERT INTO fleet_staleset (availability_set_id) VALUES (NEW.id);
        INSERT INTO fleet_staleset (availability_set_id)
        SELECT DISTINCT machine.availability_set_id FROM fleet_scheduledevent event
        JOIN fleet_sighting sighting ON sighting.event_id = event.id AND sighting."foreign"
        JOIN fleet_machine machine ON machine.id = sighting.machine_id
        WHERE event.availability_set_id = NEW.id AND event.status IN ('SCHEDULED', 'STARTED');""",
    "presence": OF_MACHINE,
    "spool": OF_MACHINE,
    "sighting": OF_MACHINE,
    "event": """INSERT INTO fleet_staleset (availability_set_id)
        SELECT machine.availability_set_id FROM fleet_sighting sighting
        JOIN fleet_machine machine ON machine.id = sighting.machine_id
        WHERE sighting.event_id = NEW.id AND sighting."foreign";""",
}
MACHINE = (
    "availability_set_id", "resource_name", "called", "revoked_at", "agent_version", "protocol", "zone", "size",
    "region", "set_warnings", "confined_to",
)  # fmt: skip
PRESENCE = ("seen", "signatures", "lacking_since")
FOREIGN = f'(OLD."foreign" OR NEW."foreign") AND ({changed("gone_at", "foreign")})'
STALE_TRIGGERS = (
    ("machine", "machine", "INSERT"),
    ("machine_changed", "machine", "UPDATE", changed(*MACHINE)),
    ("inventory", "inventorymachine", "INSERT OR DELETE"),
    ("inventory_changed", "inventorymachine", "UPDATE",
     changed("availability_set_id", "machine_id", "name", "zone", "size")),
    ("set", "availabilityset", "UPDATE",
     changed("kind", "name", "upgrade_notices", "admits_until", "merged_into_id")),
    ("presence", "presencerow", "INSERT"),
    ("presence_changed", "presencerow", f"UPDATE OF {', '.join(PRESENCE)}", changed(*PRESENCE)),
    ("spool", "spool", "INSERT"),
    ("sighting", "sighting", "INSERT", 'NEW."foreign"'),
    ("sighting_changed", "sighting", "UPDATE", FOREIGN),
    ("event", "scheduledevent", "UPDATE", changed("status", "availability_set_id")),
)  # fmt: skip
TRIGGERS = "".join((
    *(changes(*each) for each in CHANGING.items()),
    *PRESENCE_CHANGES,
    *POLL_LEAPS,
    *(function(f"{name}_stale", f"{body} RETURN NULL;") for name, body in STALE.items()),
    *(trigger(f"{name}_stale", of, "AFTER", *rest) for name, of, *rest in STALE_TRIGGERS),
    # The blind spots of each set are to be found.
    "INSERT INTO fleet_staleset (availability_set_id) SELECT id FROM fleet_availabilityset;",
))  # fmt: skip


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0012_schema_0_2"),
        ("sessions", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    replaces = [("fleet", "0033_apart")]

    operations = [
        migrations.RunPython(offer),
        migrations.RunPython(tell_apart),
        migrations.RunPython(list_sessions),
        # Last, since agents wait for what these lock.
        migrations.RunSQL(ROWS + TRIGGERS),
    ]
