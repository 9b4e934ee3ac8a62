"""For migrations that are not atomic: an index for all partitions of a table, built while everybody works."""

import hashlib
import re
from typing import Any

from django.db import connection
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations import AddIndex
from django.db.migrations.state import ProjectState


class AddIndexToPartitions(AddIndex):
    """What `AddIndexConcurrently` is to a table that has no partitions, which Postgres does for none that has.

    Each partition gets its own, one after the other; then they become one. What was begun and not ended is begun anew.
    """

    atomic = False

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        table, name = model._meta.db_table, self.index.name
        statement = str(self.index.create_sql(model, schema_editor))
        leaves = [leaf for (leaf,) in _ask("SELECT inhrelid::regclass::text FROM pg_inherits"
                                           " WHERE inhparent = to_regclass(%s) ORDER BY inhrelid", table)]  # fmt: skip
        own = {
            leaf: f"{name[:20]}_{hashlib.md5(leaf.encode(), usedforsecurity=False).hexdigest()[:8]}" for leaf in leaves
        }
        for leaf, index in own.items():
            if _ask("SELECT FROM pg_index WHERE indexrelid = to_regclass(%s) AND indisvalid", index) == []:
                _do(f"DROP INDEX CONCURRENTLY IF EXISTS {index}", _on(statement, "INDEX CONCURRENTLY", index, leaf))
        if _ask("SELECT FROM pg_class WHERE oid = to_regclass(%s)", name) == []:
            _do(_on(statement, "INDEX", name, f"ONLY {table}"))
        for index in own.values():
            if _ask("SELECT FROM pg_inherits WHERE inhrelid = to_regclass(%s)", index) == []:
                _do(f"ALTER INDEX {name} ATTACH PARTITION {index}")

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        _do(f"DROP INDEX IF EXISTS {self.index.name}")


def _on(statement: str, what: str, index: str, table: str) -> str:
    return re.sub(r"^CREATE INDEX \S+ ON \S+ ", f"CREATE {what} {index} ON {table} ", statement, count=1)


def _ask(statement: str, *values: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def _do(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
