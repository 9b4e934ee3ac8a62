"""Large tables become partitions by ranges of ids, while all processes continue to work.

A table as it is becomes the first partition of a new parent, open at both ends, so that nothing is read or moved: a few
statements of milliseconds in one transaction. It is retried with a short wait for its locks, and no other
session waits longer for it than that. Completed steps are not repeated: a migration that was killed continues.

Foreign keys from and to these tables go: a partition that comes or leaves would lock every table that they name. What
is pointed to is never deleted.

Processes of 0.1.0 continue to write. They insert into `fleet_observation` and `fleet_documentbody` with `ON CONFLICT` on
keys that no parent by ranges of ids can have: so these two names stay those of the first partitions.
"""

import re
import time
from dataclasses import dataclass

from django.db import OperationalError, connection, migrations, models, transaction

from fleet.migrations._together import Together

# Shorter than Postgres waits before it looks for a deadlock: those who work are not the ones that it ends.
LOCK_SECONDS = 0.3
PAUSE_SECONDS = 0.7
PATIENCE_SECONDS = 600.0
LOCKED, DEADLOCK = "55P03", "40P01"


@dataclass(frozen=True)
class Table:
    """`before` becomes the partition `first` of `parent`, by ranges of `key`. `numbers` is the column with numbers of
    its own, `unique` what the parent's constraints are, by name; each holds the key.
    """

    before: str
    parent: str
    first: str
    unique: tuple[tuple[str, str], ...] = ()
    key: str = "id"
    numbers: str = "id"


def in_place(name, key="id", unique=None):
    return Table(name, name, f"{name}_from_0", unique or ((f"{name}_pkey", "PRIMARY KEY (id)"),), key)


TABLES = (
    in_place("fleet_reporter", "notification_id", (("reporter_once", "UNIQUE (notification_id, machine_id)"),)),
    in_place("fleet_notification"),
    in_place("fleet_message"),
    Table("fleet_observation", "fleet_observation_all", "fleet_observation",
          (("fleet_observation_all_pkey", "PRIMARY KEY (id)"),)),
    Table("fleet_documentbody", "fleet_documentbody_all", "fleet_documentbody", key="number", numbers="number"),
    in_place("fleet_entry"),
)  # fmt: skip
# Statements that name the parent, and rows of whatever partition: Postgres gives each new one the last of these.
GUARDS = (
    "CREATE TRIGGER fleet_entry_is_append_only BEFORE UPDATE OR DELETE ON fleet_entry"
    " FOR EACH STATEMENT EXECUTE FUNCTION fleet_entry_is_append_only()",
    "CREATE TRIGGER fleet_entry_is_not_emptied BEFORE TRUNCATE ON fleet_entry"
    " FOR EACH STATEMENT EXECUTE FUNCTION fleet_entry_is_append_only()",
    "CREATE TRIGGER fleet_entry_row_is_append_only BEFORE UPDATE OR DELETE ON fleet_entry"
    " FOR EACH ROW EXECUTE FUNCTION fleet_entry_is_append_only()",
)
# No query uses them, and each report pays for them.
NEEDLESS = (
    "fleet_documentbody_hash_19aea65a_like",
    "fleet_observation_document_id_455db225_like",
    "fleet_observation_document_id_455db225",
)
# By which the place and age of a body are known.
BODY_INDEXES = {
    "body_by_number": "fleet_documentbody (number)",
    "body_by_age": "fleet_documentbody (first_received_at)",
}


def ask(statement, *values):
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall()


def do(*statements):
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def patiently(what, work):
    """Do this in one transaction that waits a moment for locks, again and again."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with transaction.atomic():
                do(f"SET LOCAL lock_timeout = '{LOCK_SECONDS:g}s'")
                work()
            return
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", "") not in (LOCKED, DEADLOCK):
                raise
            if time.monotonic() > until:
                raise RuntimeError(
                    f"Another session has locked {what} for {PATIENCE_SECONDS / 60:g} minutes: a backup, a long query or an open"
                    " transaction (pg_stat_activity says who). Nothing is half done; end it and migrate again."
                ) from error
        # Sessions that waited behind this one go first.
        time.sleep(PAUSE_SECONDS)


def is_partitioned(name):
    return ask("SELECT FROM pg_class WHERE oid = to_regclass(%s) AND relkind = 'p'", name) != []


def forward(apps, schema_editor):
    if not is_partitioned("fleet_documentbody_all"):
        do(*(f"DROP INDEX CONCURRENTLY IF EXISTS {name}" for name in (*NEEDLESS, *BODY_INDEXES)))
        do(*(f"CREATE INDEX CONCURRENTLY {name} ON {where}" for name, where in BODY_INDEXES.items()))
    for table in TABLES:
        if is_partitioned(table.parent):
            continue
        for owner, name, other in foreign_keys(table.before):
            drop = f'ALTER TABLE {owner} DROP CONSTRAINT "{name}"'
            # Those that others write first are locked first.
            lock = f"LOCK TABLE {other}, {owner} IN ACCESS EXCLUSIVE MODE"
            patiently(f"{other} or {owner}", lambda lock=lock, drop=drop: do(lock, drop))
        patiently(table.before, lambda table=table: convert(table))
        analyze(table.parent)


def foreign_keys(table):
    return ask(
        "SELECT conrelid::regclass::text, conname, confrelid::regclass::text FROM pg_constraint"
        " WHERE contype = 'f' AND %s::regclass IN (conrelid, confrelid) ORDER BY conname", table)  # fmt: skip


def convert(table):
    do(f"LOCK TABLE {table.before} IN ACCESS EXCLUSIVE MODE")
    sequence = number(table)
    indexes = ask(
        "SELECT indexrelid::regclass::text, indisunique FROM pg_index WHERE indrelid = %s::regclass", table.before)  # fmt: skip
    renamed = table.before != table.first
    if renamed:
        do(f"ALTER TABLE {table.before} RENAME TO {table.first}")
        do(*(f"ALTER INDEX {name} RENAME TO {name}_from_0" for name, _ in indexes))
    do(
        f"CREATE TABLE {table.parent} (LIKE {table.first} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE"
        f" INCLUDING COMPRESSION) PARTITION BY RANGE ({table.key})"
    )
    for name, unique in indexes:
        if not unique:
            # When the first partition is attached, its own is found to be the same; none is built.
            own, new = (f"{name}_from_0", name) if renamed else (name, f"{name}_all")
            ((said,),) = ask("SELECT pg_get_indexdef(%s::regclass)", own)
            do(re.sub(r"^CREATE INDEX \S+ ON \S+ ", f"CREATE INDEX {new} ON {table.parent} ", said, count=1))
    do(*(f"ALTER TABLE {table.parent} ADD CONSTRAINT {name} {what}" for name, what in table.unique))
    do(f"ALTER SEQUENCE {sequence} OWNED BY {table.parent}.{table.numbers}")
    do(f"ALTER TABLE {table.parent} ATTACH PARTITION {table.first} FOR VALUES FROM (MINVALUE) TO (MAXVALUE)")
    if table.parent == "fleet_entry":
        # As databases of the time between the releases call it.
        do(*GUARDS, "ALTER INDEX entry_acts_by_via_from_0 RENAME TO entry_acts_by_via_34646e5d")


def number(table):
    """One sequence, of the name that it had, numbers the rows of the parent and of each partition: identity columns of
    parents came with Postgres 17.
    """
    column = f"ALTER TABLE {table.before} ALTER COLUMN {table.numbers}"
    sequence, following = following_of(table.before, table.numbers)
    if sequence is None:
        sequence = f"{table.parent}_{table.numbers}_seq"
    else:
        do(f"{column} DROP IDENTITY")
    do(f"CREATE SEQUENCE {sequence} START WITH {following}", f"{column} SET DEFAULT nextval('{sequence}')")
    return sequence


def following_of(table, column):
    """The sequence of the column and its next number; None and 1 where it has none."""
    ((sequence,),) = ask("SELECT pg_get_serial_sequence(%s, %s)", table, column)
    if sequence is None:
        return None, 1
    ((following,),) = ask(f"SELECT CASE WHEN is_called THEN last_value + 1 ELSE last_value END FROM {sequence}")
    return sequence, following


def analyze(table):
    """Analyse the parent: autovacuum does not, and without it the planner guesses how many rows a query finds."""
    do(f"ANALYZE {'ONLY ' if connection.pg_version >= 180000 else ''}{table}")


# The model, its field, and more of each foreign key that the database no longer has.
ENTRY = {"on_delete": models.DO_NOTHING, "related_name": "entries", "db_index": False, "blank": True, "null": True}
FOREIGN_KEYS = (
    ("entry", "approval", "fleet.approval", ENTRY),
    ("entry", "availability_set", "fleet.availabilityset", ENTRY),
    ("entry", "cache", "fleet.cache", ENTRY),
    ("entry", "event", "fleet.scheduledevent", ENTRY),
    ("entry", "machine", "fleet.machine", ENTRY),
    ("notification", "cache", "fleet.cache",
     {"on_delete": models.PROTECT, "related_name": "notifications", "db_index": False}),
    ("notification", "maintenance", "fleet.maintenance",
     {"on_delete": models.SET_NULL, "related_name": "notifications", "blank": True, "null": True}),
    ("observation", "document", "fleet.documentbody", {**ENTRY, "related_name": "observations"}),
    ("observation", "machine", "fleet.machine",
     {"on_delete": models.PROTECT, "related_name": "observations", "db_index": False}),
    ("reporter", "machine", "fleet.machine", {"on_delete": models.PROTECT, "related_name": "+"}),
    ("reporter", "notification", "fleet.notification", {"on_delete": models.CASCADE, "related_name": "reporters"}),
)  # fmt: skip


class Migration(migrations.Migration):
    # One table after the other, each in a moment.
    atomic = False
    dependencies = [("fleet", "0014_indexes_0_2")]
    replaces = [("fleet", "0052_partitions")]

    operations = [
        migrations.RunPython(forward),
        migrations.SeparateDatabaseAndState(state_operations=[
            Together(
                migrations.RemoveConstraint("message", "message_once"),
                migrations.RemoveConstraint("observation", "report_once"),
                *(
                    migrations.AlterField(model, name, models.ForeignKey(to, db_constraint=False, **more))
                    for model, name, to, more in FOREIGN_KEYS
                ),
                migrations.AddIndex("documentbody", models.Index(fields=["number"], name="body_by_number_all")),
                migrations.AddIndex("documentbody", models.Index(fields=["first_received_at"], name="body_by_age_all")),
                migrations.AlterModelTable("documentbody", "fleet_documentbody_all"),
                migrations.AlterModelTable("observation", "fleet_observation_all"),
            )
        ]),
    ]
