"""A database that was migrated with every migration written between 0.1.0 and 0.2.0, which four have replaced since."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from pytest_django.plugin import DjangoDbBlocker

from tests.databases import database, django_on

REPLACING = ("0012_schema_0_2", "0013_data_0_2", "0014_indexes_0_2", "0015_partitions")
FIRST, LAST = "0012_names", "0069_bounds_of_machines"


def recorded() -> set[str]:
    return {name for app, name in MigrationRecorder(connection).applied_migrations() if app == "fleet"}


def columns() -> set[tuple[str, str, str]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT table_name, column_name, udt_name FROM information_schema.columns")
        return set(cursor.fetchall())


@pytest.fixture
def between(migrated_template: str, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The schema is that of today; the replaced migrations are recorded, and those that replace them are not."""
    with database(migrated_template) as name, django_db_blocker.unblock(), django_on(name):
        MigrationRecorder.Migration.objects.filter(app="fleet", name__in=REPLACING).delete()
        yield


def test_migrating_records_the_new_migrations_and_changes_nothing(between: None) -> None:
    before, tables = recorded(), columns()
    assert len({name for name in before if FIRST <= name <= LAST}) == 58
    out = StringIO()
    call_command("migrate", "--plan", stdout=out)
    assert "No planned migration operations." in out.getvalue()
    call_command("migrate", verbosity=0)
    assert recorded() == before | set(REPLACING)
    assert columns() == tables
    executor = MigrationExecutor(connection)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []
    for model in apps.get_models():
        model._default_manager.first()


def test_a_database_with_only_some_of_them_is_refused(between: None) -> None:
    MigrationRecorder.Migration.objects.filter(app="fleet", name=LAST).delete()
    before = recorded()
    with pytest.raises(CommandError, match="Conflicting migrations detected"):
        call_command("migrate", verbosity=0)
    assert recorded() == before
