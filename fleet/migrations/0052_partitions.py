"""Large tables become partitions by ranges of ids, while everybody goes on working.

A table as it is becomes the first partition of a new parent, open at both ends, so that nothing is read or moved: a few
statements of milliseconds in one transaction. It is tried again and again with a short wait for its locks, and nobody
waits longer for it than that. What was done is not done again: who was killed in the middle begins anew.

Foreign keys from and to these tables go: a partition that comes or leaves would lock every table that they name. What
is pointed to is never deleted.

Processes of 0.1.0 go on writing. They insert into `fleet_observation` and `fleet_documentbody` with `ON CONFLICT` on
keys that no parent by ranges of ids can have: so these two names stay those of the first partitions.
"""

import re
import time
from dataclasses import dataclass

import django.db.models.deletion
from django.db import OperationalError, connection, migrations, models, transaction
from django.db.migrations.exceptions import IrreversibleError

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
# Nobody asks by them, and each report pays for them: (name, table, columns).
NEEDLESS = (
    ("fleet_documentbody_hash_19aea65a_like", "fleet_documentbody", "hash text_pattern_ops"),
    ("fleet_observation_document_id_455db225_like", "fleet_observation", "document_id text_pattern_ops"),
    ("fleet_observation_document_id_455db225", "fleet_observation", "document_id"),
)
# By which a body's place and age are known. One that was left half built is built again.
BODY_INDEXES = (
    "DROP INDEX CONCURRENTLY IF EXISTS body_by_number",
    "CREATE INDEX CONCURRENTLY body_by_number ON fleet_documentbody (number)",
    "DROP INDEX CONCURRENTLY IF EXISTS body_by_age",
    "CREATE INDEX CONCURRENTLY body_by_age ON fleet_documentbody (first_received_at)",
)


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
                    f"Somebody has held {what} for {PATIENCE_SECONDS / 60:g} minutes: a backup, a long query or an open"
                    " transaction (pg_stat_activity says who). Nothing is half done; end it and migrate again."
                ) from error
        # Whoever waited behind this goes first.
        time.sleep(PAUSE_SECONDS)


def is_partitioned(name):
    return ask("SELECT FROM pg_class WHERE oid = to_regclass(%s) AND relkind = 'p'", name) != []


def forward(apps, schema_editor):
    if ask("SELECT FROM pg_attribute WHERE attrelid = to_regclass('fleet_documentbody_all')") == []:
        # Of rows that are there nothing is written: they are all in the first partition anyway.
        patiently("fleet_documentbody", lambda: do(
            "ALTER TABLE fleet_documentbody ADD COLUMN IF NOT EXISTS number bigint NOT NULL DEFAULT 0"))  # fmt: skip
        do(*BODY_INDEXES, *(f"DROP INDEX CONCURRENTLY IF EXISTS {name}" for name, _, _ in NEEDLESS))
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
        do(*GUARDS)


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
    """Nobody does so for a parent by himself, and without it how many rows a query finds is guessed."""
    do(f"ANALYZE {'ONLY ' if connection.pg_version >= 180000 else ''}{table}")


def backward(apps, schema_editor):
    for table in TABLES:
        if is_partitioned(table.parent):
            found = ask("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", table.parent)
            if found != [(table.first,)]:
                raise IrreversibleError(
                    f"{table.parent} has {len(found)} partitions: they cannot become one table again without being"
                    " copied. Restore a backup from before 0052_partitions instead."
                )
    for table in reversed(TABLES):
        if is_partitioned(table.parent):
            patiently(table.parent, lambda table=table: revert(table))
    patiently("fleet_documentbody", lambda: do(
        "ALTER TABLE fleet_documentbody DROP COLUMN IF EXISTS number", "DROP INDEX IF EXISTS body_by_age"))  # fmt: skip
    for name, table, columns in NEEDLESS:
        do(f"DROP INDEX CONCURRENTLY IF EXISTS {name}", f"CREATE INDEX CONCURRENTLY {name} ON {table} ({columns})")
    for owner, name, column, other in FOREIGN_KEYS:
        if (owner, name) not in {(found, constraint) for found, constraint, _ in foreign_keys(owner)}:
            patiently(f"{owner} or {other}", lambda owner=owner, name=name, column=column, other=other: do(
                f"ALTER TABLE {owner} ADD CONSTRAINT {name} FOREIGN KEY ({column}) REFERENCES {other} (id)"
                " DEFERRABLE INITIALLY DEFERRED NOT VALID"))  # fmt: skip
        do(f"ALTER TABLE {owner} VALIDATE CONSTRAINT {name}")


def revert(table):
    do(f"LOCK TABLE {table.parent} IN ACCESS EXCLUSIVE MODE")
    sequence, following = following_of(table.parent, table.numbers)
    do(
        f"ALTER TABLE {table.parent} DETACH PARTITION {table.first}",
        f"ALTER TABLE {table.first} ALTER COLUMN {table.numbers} DROP DEFAULT",
        f"DROP TABLE {table.parent}",
    )
    if table.before != table.first:
        do(f"ALTER TABLE {table.first} RENAME TO {table.before}")
        for (name,) in ask("SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass", table.before):
            do(f"ALTER INDEX {name} RENAME TO {name.removesuffix('_from_0')}")
    if table.key != "number":
        do(
            f"ALTER TABLE {table.before} ALTER COLUMN {table.numbers} ADD GENERATED BY DEFAULT AS IDENTITY"
            f" (SEQUENCE NAME {sequence} START WITH {following})"
        )


FOREIGN_KEYS = (
    ("fleet_observation", "fleet_observation_machine_id_0e862cce_fk_fleet_machine_id", "machine_id", "fleet_machine"),
    ("fleet_entry", "fleet_entry_cache_id_fd68e11d_fk_fleet_cache_id", "cache_id", "fleet_cache"),
    ("fleet_entry", "fleet_entry_approval_id_045a5be5_fk_fleet_approval_id", "approval_id", "fleet_approval"),
    ("fleet_entry", "fleet_entry_availability_set_id_0c1d0034_fk_fleet_ava", "availability_set_id",
     "fleet_availabilityset"),
    ("fleet_entry", "fleet_entry_machine_id_6d2f5b47_fk_fleet_machine_id", "machine_id", "fleet_machine"),
    ("fleet_entry", "fleet_entry_event_id_3895804a_fk_fleet_scheduledevent_id", "event_id", "fleet_scheduledevent"),
    ("fleet_notification", "fleet_notification_cache_id_26e4e35b_fk_fleet_cache_id", "cache_id", "fleet_cache"),
    ("fleet_notification", "fleet_notification_maintenance_id_f215f7cb_fk_fleet_mai", "maintenance_id",
     "fleet_maintenance"),
    ("fleet_reporter", "fleet_reporter_notification_id_4c58eb1d_fk_fleet_not", "notification_id", "fleet_notification"),
    ("fleet_reporter", "fleet_reporter_machine_id_ad6abe64_fk_fleet_machine_id", "machine_id", "fleet_machine"),
    ("fleet_message", "fleet_message_event_id_8b8792ab_fk_fleet_scheduledevent_id", "event_id", "fleet_scheduledevent"),
    ("fleet_message", "fleet_message_delivery_id_0e067bee_fk_fleet_messagedelivery_id", "delivery_id",
     "fleet_messagedelivery"),
    ("fleet_message", "fleet_message_channel_id_ea6a923d_fk_fleet_channel_id", "channel_id", "fleet_channel"),
    ("fleet_message", "fleet_message_route_id_40ef7b2d_fk_fleet_route_id", "route_id", "fleet_route"),
)  # fmt: skip


class Migration(migrations.Migration):
    # One table after the other, each in a moment.
    atomic = False

    dependencies = [
        ("fleet", "0051_blind_spots"),
    ]

    operations = [
        migrations.RunPython(forward, backward),
        migrations.SeparateDatabaseAndState(state_operations=[
            migrations.RemoveConstraint(
                model_name='message',
                name='message_once',
            ),
            migrations.RemoveConstraint(
                model_name='observation',
                name='report_once',
            ),
            migrations.AddField(
                model_name='documentbody',
                name='number',
                field=models.BigIntegerField(db_default=0, editable=False),
            ),
            migrations.AlterField(
                model_name='entry',
                name='approval',
                field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='entries', to='fleet.approval'),
            ),
            migrations.AlterField(
                model_name='entry',
                name='availability_set',
                field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='entries', to='fleet.availabilityset'),
            ),
            migrations.AlterField(
                model_name='entry',
                name='cache',
                field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='entries', to='fleet.cache'),
            ),
            migrations.AlterField(
                model_name='entry',
                name='event',
                field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='entries', to='fleet.scheduledevent'),
            ),
            migrations.AlterField(
                model_name='entry',
                name='machine',
                field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='entries', to='fleet.machine'),
            ),
            migrations.AlterField(
                model_name='message',
                name='channel',
                field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='messages', to='fleet.channel'),
            ),
            migrations.AlterField(
                model_name='message',
                name='delivery',
                field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='messages', to='fleet.messagedelivery'),
            ),
            migrations.AlterField(
                model_name='message',
                name='event',
                field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='messages', to='fleet.scheduledevent'),
            ),
            migrations.AlterField(
                model_name='message',
                name='route',
                field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='messages', to='fleet.route'),
            ),
            migrations.AlterField(
                model_name='notification',
                name='cache',
                field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='notifications', to='fleet.cache'),
            ),
            migrations.AlterField(
                model_name='notification',
                name='maintenance',
                field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='notifications', to='fleet.maintenance'),
            ),
            migrations.AlterField(
                model_name='observation',
                name='document',
                field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='observations', to='fleet.documentbody'),
            ),
            migrations.AlterField(
                model_name='observation',
                name='machine',
                field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='observations', to='fleet.machine'),
            ),
            migrations.AlterField(
                model_name='reporter',
                name='machine',
                field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='fleet.machine'),
            ),
            migrations.AlterField(
                model_name='reporter',
                name='notification',
                field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='reporters', to='fleet.notification'),
            ),
            migrations.AddIndex(
                model_name='documentbody',
                index=models.Index(fields=['number'], name='body_by_number_all'),
            ),
            migrations.AddIndex(
                model_name='documentbody',
                index=models.Index(fields=['first_received_at'], name='body_by_age_all'),
            ),
            migrations.AlterModelTable(
                name='documentbody',
                table='fleet_documentbody_all',
            ),
            migrations.AlterModelTable(
                name='observation',
                table='fleet_observation_all',
            ),
        ]),
    ]
