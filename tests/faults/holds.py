"""Stops inside a transaction, or inside its COMMIT, that the harness sets and lifts.

Triggers in the ring's own database take a shared advisory lock whose number names the stop. A session that holds that
lock exclusively stops every transaction that reaches it; the product knows nothing of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

# The first half of the locks' numbers, so that they meet no other.
CLASS = 990_001

INSTALL = """
CREATE FUNCTION faults_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared({cls}, hashtext(TG_ARGV[0] || ' ' || TG_TABLE_NAME || ' ' || NEW.state));
  RETURN NULL;
END $$;
CREATE TRIGGER faults_in AFTER INSERT OR UPDATE OF state ON fleet_approval
  FOR EACH ROW EXECUTE FUNCTION faults_hold('in');
CREATE TRIGGER faults_in AFTER INSERT OR UPDATE OF state ON fleet_order
  FOR EACH ROW EXECUTE FUNCTION faults_hold('in');
CREATE CONSTRAINT TRIGGER faults_at AFTER INSERT OR UPDATE OF state ON fleet_approval
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION faults_hold('at');
CREATE CONSTRAINT TRIGGER faults_at AFTER INSERT OR UPDATE OF state ON fleet_order
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION faults_hold('at');
"""


def install(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(INSTALL.replace("{cls}", str(CLASS)))


@contextmanager
def held(url: str, where: str) -> Iterator[None]:
    """Holds transactions at `<in|at> <table> <state>`: at that write, or at the commit of what wrote that."""
    connection = psycopg.connect(url, autocommit=True)
    try:
        connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", [CLASS, where])
        yield
    finally:
        # Postgres may be the one that was killed; then nothing is held any more.
        with suppress(psycopg.Error):
            connection.close()


def waiting(url: str) -> int:
    """Return the number of transactions that wait at a stop."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND NOT granted", [CLASS]
        ).fetchone()
    return int(row[0]) if row else 0
