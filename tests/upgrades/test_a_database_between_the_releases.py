"""A database that was migrated with every migration written between 0.1.0 and 0.2.0, which four have replaced since."""

import re
from collections.abc import Iterator
from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from pytest_django.plugin import DjangoDbBlocker

from fleet import migrations
from fleet.models import QuarantinedRow
from tests.databases import database, django_on

REPLACING = ("0012_schema_0_2", "0013_data_0_2", "0014_indexes_0_2", "0015_partitions")
names = import_module("fleet.migrations.0016_names_0_2")
NEWER = sorted(path.stem for path in Path(migrations.__path__[0]).glob("0*.py") if path.stem > REPLACING[-1])
ADDED = {("fleet_presencerow", name, "text") for name in ("poll_problem", "events_version", "instance_version")}
ADDED |= {
    ("fleet_availabilityset", "terminate_notice_seconds", "int4"),
    ("fleet_preparation", "prepare_planned_at", "timestamptz"),
    ("fleet_machine", "discounted_at", "timestamptz"),
    ("fleet_machine", "decommissioned_at", "timestamptz"),
    ("fleet_machine", "unlisted_at", "timestamptz"),
    ("fleet_machine", "node_name", "text"),
    ("fleet_availabilityset", "runbook", "text"),
    ("fleet_availabilityset", "silenced_until", "timestamptz"),
    ("fleet_scheduledevent", "silenced_until", "timestamptz"),
}
NEW_TABLE = {("fleet_service", "id", "int8"), ("fleet_service", "name", "text"), ("fleet_service", "runbook", "text")}
ADDED |= NEW_TABLE
FIRST, LAST = "0012_names", "0069_bounds_of_machines"


def recorded() -> set[str]:
    return {name for app, name in MigrationRecorder(connection).applied_migrations() if app == "fleet"}


def columns() -> set[tuple[str, str, str]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT table_name, column_name, udt_name FROM information_schema.columns")
        return set(cursor.fetchall())


@pytest.fixture
def between(migrated_template: str, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The schema is that of today, without later columns; the replaced migrations are recorded, those that replace them
    are not.
    """
    with database(migrated_template) as name, django_db_blocker.unblock(), django_on(name):
        MigrationRecorder.Migration.objects.filter(app="fleet", name__in=[*REPLACING, *NEWER]).delete()
        with connection.cursor() as cursor:
            for table, column, _ in ADDED - NEW_TABLE:
                cursor.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
            cursor.execute("DROP TABLE fleet_service")
        yield


@pytest.fixture
def former_names(between: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE fleet_quarantinedrow RENAME TO fleet_setaside")
        for old, new in names.INDEXES:
            cursor.execute(f"ALTER INDEX {new} RENAME TO {old}")
        for table, old, new in names.COLUMNS:
            cursor.execute(f"ALTER TABLE fleet_{table} RENAME COLUMN {new} TO {old}")
        cursor.execute(
            "SELECT replace(pg_get_functiondef(oid), 'next_check_at', 'look_at') FROM pg_proc"
            " WHERE prosrc LIKE '%.next_check_at%'"
        )
        definitions = cursor.fetchall()
        assert len(definitions) == 4
        for (definition,) in definitions:
            cursor.execute(definition)


def test_migrating_records_the_new_migrations_and_changes_nothing(between: None) -> None:
    before, tables = recorded(), columns()
    assert len({name for name in before if FIRST <= name <= LAST}) == 58
    out = StringIO()
    call_command("migrate", "--plan", stdout=out)
    assert re.findall(r"^fleet\.(\w+)", out.getvalue(), re.MULTILINE) == NEWER
    call_command("migrate", verbosity=0)
    assert recorded() == before | {*REPLACING, *NEWER}
    assert columns() == tables | ADDED
    executor = MigrationExecutor(connection)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []
    for model in apps.get_models():
        model._default_manager.first()


def test_tables_and_columns_get_their_present_names(former_names: None) -> None:
    tables = columns()
    assert ("fleet_wave", "look_at", "timestamptz") in tables
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_proc WHERE prosrc LIKE '%look_at%'")
        assert cursor.fetchone() == (0,)
        cursor.execute("UPDATE fleet_wave SET next_check_at = now()")
    assert QuarantinedRow.objects.count() == 0
    renamed = {(f"fleet_{table}", old): new for table, old, new in names.COLUMNS}
    assert (
        columns()
        == {
            (table.replace("setaside", "quarantinedrow"), renamed.get((table, column), column), kind)
            for table, column, kind in tables
        }
        | ADDED
    )


def test_a_database_with_only_some_of_them_is_refused(between: None) -> None:
    MigrationRecorder.Migration.objects.filter(app="fleet", name=LAST).delete()
    before = recorded()
    with pytest.raises(CommandError, match="Conflicting migrations detected"):
        call_command("migrate", verbosity=0)
    assert recorded() == before
