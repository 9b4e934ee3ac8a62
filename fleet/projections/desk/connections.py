"""Whether Postgres has room for all connections that the processes of this installation may open."""

from django.db import connection

from fleet.domain.connections import Connections, read_names


def connections() -> Connections:
    """Who is connected now, and how many there may be. One query."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT coalesce(datname = current_database(), false), coalesce(application_name, ''), count(*),
                   current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
                   - coalesce(current_setting('reserved_connections', true)::int, 0)
            FROM pg_stat_activity
            -- Of sessions of other roles not even that is shown to everybody.
            WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'
            GROUP BY 1, 2
            """
        )
        rows = cursor.fetchall()
    ours = {name: count for own, name, count, _ in rows if own}
    return read_names(ours, others=sum(count for own, _, count, _ in rows if not own), room=rows[0][3])
