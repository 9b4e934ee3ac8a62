"""New names for tables and columns of databases that were migrated between 0.1.0 and 0.2.0.

Migrations 0012 to 0015 create them under these names, so nothing changes in other databases.
"""

from django.db import migrations

CHECKED = ("drill", "maintenance", "scheduledevent", "signon", "wave")
COLUMNS = (
    *((table, "look_at", "next_check_at") for table in CHECKED),
    ("apitoken", "told_days", "notified_days"),
    ("availabilityset", "apart", "name_suffix"),
    ("opentrouble", "told_at", "recorded_at"),
    ("spool", "told_epoch", "reported_epoch"),
)
INDEXES = (
    *((f"{name}_by_look", f"{name}_by_next_check") for name in ("drill", "event", "maintenance", "wave")),
    ("set_aside_once", "quarantined_row_once"),
)


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


class Migration(migrations.Migration):
    dependencies = [("fleet", "0015_partitions")]

    operations = [migrations.RunPython(rename)]
