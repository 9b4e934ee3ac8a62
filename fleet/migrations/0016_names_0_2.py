"""New names for tables and columns of databases that were migrated between 0.1.0 and 0.2.0.

Migrations 0012 to 0015 create them under these names, so nothing changes in other databases.
"""

from django.db import migrations

CHECKED = ("drill", "maintenance", "scheduledevent", "signon", "wave")
COLUMNS = (
    *((table, "look_at", "next_check_at") for table in CHECKED),
    ("apitoken", "told_days", "notified_days"),
    ("admission", "first_asked_at", "first_requested_at"),
    ("admission", "last_asked_at", "last_requested_at"),
    ("availabilityset", "apart", "name_suffix"),
    ("availabilityset", "needs_live", "min_live"),
    ("availabilityset", "step_up_spares_services", "exempt_service_accounts"),
    ("opentrouble", "told_at", "recorded_at"),
    ("personsession", "way", "sign_in_method"),
    ("personsession", "began_at", "signed_in_at"),
    ("profile", "looked_until", "handover_read_until"),
    ("signon", "good_until", "valid_until"),
    ("spool", "told_epoch", "reported_epoch"),
)
INDEXES = (
    *((f"{name}_by_look", f"{name}_by_next_check") for name in ("drill", "event", "maintenance", "wave")),
    ("set_aside_once", "quarantined_row_once"),
)
# Requirements that rows keep, by the names of their columns.
KEPT = (("scheduledevent", "kept"), ("availabilityset", "lowering"))


def rename(apps, schema_editor):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("ALTER TABLE IF EXISTS fleet_setaside RENAME TO fleet_quarantinedrow")
        for old, new in INDEXES:
            cursor.execute(f"ALTER INDEX IF EXISTS {old} RENAME TO {new}")
        for table, old, new in COLUMNS:
            cursor.execute(
                "SELECT FROM pg_attribute WHERE attrelid = %s::regclass AND attname = %s", [f"fleet_{table}", old]
            )
            if cursor.fetchone() is not None:
                cursor.execute(f"ALTER TABLE fleet_{table} RENAME COLUMN {old} TO {new}")
        # Columns whose change does not count as one.
        cursor.execute(
            "SELECT replace(pg_get_functiondef(oid), 'look_at', 'next_check_at') FROM pg_proc"
            " WHERE proname LIKE 'fleet\\_%%\\_changes' AND prosrc LIKE '%%.look_at%%'",
            [],
        )
        for (definition,) in cursor.fetchall():
            cursor.execute(definition)
        for table, column in KEPT:
            cursor.execute(
                f"UPDATE fleet_{table} SET {column} = replace(replace({column}::text, 'needs_live', 'min_live'),"
                f" 'step_up_spares_services', 'exempt_service_accounts')::jsonb"
                f" WHERE {column}::text LIKE '%%needs_live%%' OR {column}::text LIKE '%%step_up_spares_services%%'",
                [],
            )


class Migration(migrations.Migration):
    dependencies = [("fleet", "0015_partitions")]

    operations = [migrations.RunPython(rename)]
