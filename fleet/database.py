"""Each new connection to the database is as patient as its thread's role: see `fleet.domain.patience`."""

from typing import Any

from django.db.backends.signals import connection_created

from fleet.domain.patience import ROLES, role


def _limit(connection: Any, **_: Any) -> None:
    patience = ROLES.get(role())
    if patience is None:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false),"
            " set_config('idle_in_transaction_session_timeout', %s, false)",
            [f"{seconds:g}s" for seconds in (patience.statement, patience.lock, patience.idle)],
        )


connection_created.connect(_limit, dispatch_uid="fleet.database")
