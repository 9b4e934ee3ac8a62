"""The queries of a call; and whether an index can answer a query, with no other index to choose from, so that no
estimate decides.
"""

import re
from collections.abc import Callable
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext

_OTHERS = """SELECT index.indexrelid::regclass::text FROM pg_index index
    WHERE index.indrelid IN (SELECT indrelid FROM pg_index WHERE indexrelid = ANY(%(kept)s::regclass[]))
        AND index.indexrelid <> ALL(%(kept)s::regclass[])
        AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = index.indexrelid)"""
_TABLES = """SELECT tree.relid FROM pg_index, pg_partition_tree(indrelid) tree
    WHERE indexrelid = ANY(%(kept)s::regclass[])
    UNION SELECT indrelid FROM pg_index WHERE indexrelid = ANY(%(kept)s::regclass[])"""
# The state of a table without statistics: for a table with one row, any index is as good as the next.
_UNCOUNTED = f"UPDATE pg_class SET relpages = 0, reltuples = -1 WHERE oid IN ({_TABLES})"
_UNKNOWN = f"DELETE FROM pg_statistic WHERE starelid IN ({_TABLES})"


def queries(call: Callable[..., object], *arguments: Any, **named: Any) -> list[str]:
    """Call it and return the SQL of its queries."""
    with CaptureQueriesContext(connection) as caught:
        call(*arguments, **named)
    return [query["sql"] for query in caught.captured_queries]


def is_answered_by(asked: QuerySet[Any] | str, *indexes: str) -> bool:
    """Whether Postgres takes all of these indexes for this query while their table has no others but those of its
    constraints, and nothing is known of their rows. Everything stands again afterwards.
    """
    sql, parameters = (asked, None) if isinstance(asked, str) else asked.query.sql_with_params()
    with transaction.atomic(), connection.cursor() as cursor:
        # A table whose rows wait to be checked cannot be changed.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(_OTHERS, {"kept": list(indexes)})
        cursor.execute(f"DROP INDEX {', '.join(name for (name,) in cursor.fetchall())}")
        for forget in (_UNCOUNTED, _UNKNOWN):
            cursor.execute(forget, {"kept": list(indexes)})
        cursor.execute("SET LOCAL enable_seqscan = off")
        # A plan that sorts could begin with any index.
        cursor.execute("SET LOCAL enable_sort = off")
        cursor.execute(f"EXPLAIN {sql}", parameters)
        plan = "\n".join(line for (line,) in cursor.fetchall())
        transaction.set_rollback(True)
    # Of a table in partitions, the plan names the index of each.
    return all(re.search(rf" {name}(_from_0|_[0-9a-f]{{8}})? ", plan) for name in indexes)
