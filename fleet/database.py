"""Database connections: timeouts by role of the thread, a limit for each process (see `fleet.domain.db_timeouts`), and
a faster parser of timestamps than Django's.
"""

import os
from datetime import UTC, datetime
from socket import gethostname
from typing import Any, cast

from django.db import connections
from django.db.backends.postgresql.psycopg_any import BaseTzLoader
from django.db.backends.signals import connection_created

from fleet.domain.db_timeouts import PREFIX, ROLES, name_of, role

# What an index leads to lies in memory, or on a disk without a moving head. By Postgres' default of 4 it reads whole
# tables for the machines of fifty sets.
RANDOM_PAGE_COST = "1.1"


class UtcLoader(BaseTzLoader):  # type: ignore[misc]
    """Parser of Postgres timestamps that is five times as fast as Django's for the usual form in UTC. With Django's
    parser, reading thousands of machines spent an eighth of the processor time on timestamps.
    """

    timezone = UTC

    def load(self, data: Any) -> datetime:
        try:
            found = datetime.fromisoformat(str(data, "ascii"))
        except ValueError:
            return cast(datetime, super().load(data))
        return found if found.tzinfo is UTC else found.astimezone(UTC)


def opens_at_most(most: int, *, kind: str) -> None:
    """Set the maximum number of database connections of this process; `kind` names the kind of process. Call it before
    the first connection is opened.
    """
    options = connections.settings["default"].get("OPTIONS", {})
    # A name in DATABASE_URL is set on purpose.
    if options.get("application_name") == PREFIX:
        options["application_name"] = name_of(kind, most=most, process=f"{os.getpid()}@{gethostname()}")


def _set_up(connection: Any, **_: Any) -> None:
    connection.connection.adapters.register_loader("timestamptz", UtcLoader)
    patience = ROLES.get(role())
    if patience is None:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false),"
            " set_config('idle_in_transaction_session_timeout', %s, false),"
            " set_config('random_page_cost', %s, false)",
            [*(f"{time:g}s" for time in (patience.statement, patience.lock, patience.idle)), RANDOM_PAGE_COST],
        )


connection_created.connect(_set_up, dispatch_uid="fleet.database")
