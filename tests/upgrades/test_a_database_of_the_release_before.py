"""A database of the release before is migrated, read and worked on; and that release may write to it meanwhile."""

from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from pytest_django.plugin import DjangoDbBlocker

from fleet.models import Approval, Entry, Machine, Rule
from fleet.operations import reconcile
from fleet.operations.intake import presence
from tests.databases import database, django_on
from tests.upgrades.recorded import FOLDER, columns

pytestmark = pytest.mark.usefixtures("migrated")
LAST_MIGRATION = "0011_drills"
EVENT = "C7061BAC-AFDC-4513-B24B-AA5F13A1612"


@pytest.fixture(scope="module")
def migrated_once(django_test_environment: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """A database as that release left it, with all migrations since then."""
    with database() as name, django_db_blocker.unblock(), django_on(name):
        for app in (("fleet", LAST_MIGRATION), ("auth",), ("sessions",)):
            call_command("migrate", *app, verbosity=0)
        with connection.cursor() as cursor:
            # The ready-made rules are among its rows.
            cursor.execute("DELETE FROM fleet_rule")
            cursor.execute("BEGIN")
            cursor.execute((FOLDER / "database.sql").read_text(encoding="utf-8"))
            cursor.execute("COMMIT")
            for table in [table for table, known in columns().items() if known.get("id") == "int8"]:
                cursor.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) + 1 FROM {table}))"
                )
        call_command("migrate", verbosity=0)
        yield name


@pytest.fixture
def migrated(migrated_once: str, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock(), django_on(urlsplit(f"//x/{migrated_once}").path.lstrip("/")):
        yield


@pytest.fixture
def admin() -> Client:
    client = Client()
    client.force_login(User.objects.get(username="ada"))
    return client


def test_every_page_shows_it(admin: Client) -> None:
    pages = ("sets/1", "machines/2", "timeline", "audit", "policy", "caches", "people", "blind-spots")
    for page in (*pages, *(f"events/{EVENT}{number}" for number in range(1, 5))):
        assert admin.get(f"/{page}/").status_code == 200, page
    assert admin.get("/").status_code == 200


def test_what_was_written_then_shows_its_sentence_marked_as_recorded(admin: Client) -> None:
    shown = admin.get(f"/events/{EVENT}1/").content.decode()
    told = Entry.objects.get(kind="event_ended").text
    assert told in shown
    assert "(as recorded)" in shown


def test_api_returns_the_text_of_that_release(admin: Client) -> None:
    rows = admin.get(f"/api/v1/events/{EVENT}1/timeline/").json()["results"]
    texts = list(Entry.objects.filter(event__event_id=f"{EVENT}1").order_by("at", "pk").values_list("text", flat=True))
    assert sorted(row["text"] for row in rows) == sorted(texts)
    event = admin.get(f"/api/v1/events/{EVENT}2/").json()
    (overridden,) = [one for one in event["approval"]["overrides"] if one["code"] == "lost-for-good"]
    assert (overridden["reason"], bool(overridden["sentence"])) == ("nothing is kept there", True)


def test_the_audit_still_proves_it() -> None:
    call_command("verify_audit")


def test_decision_of_the_former_release_continues() -> None:
    waiting = Approval.objects.get(state="WAITING")
    assert waiting.due_at is not None
    due = waiting.due_at + timedelta(seconds=1)
    presence.flush(contacts=[presence.Contact(Machine.objects.get(resource_name="worker1").pk, due, due)])
    reconcile.advance(now=due, via="beat")
    waiting.refresh_from_db()
    assert (waiting.state, waiting.orders.get().machine.resource_name) == ("GRANTED", "worker1")
    assert Rule.objects.filter(name="preempts", enabled=True).exists()


def test_the_release_before_finds_every_column_that_it_writes() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name, udt_name || CASE is_nullable WHEN 'YES' THEN ' null' ELSE '' END,"
            " column_default IS NOT NULL OR is_identity = 'YES' OR is_generated = 'ALWAYS'"
            " FROM information_schema.columns WHERE table_schema = 'public' AND table_name LIKE 'fleet\\_%'"
        )
        today = {(table, column): (kind, filled) for table, column, kind, filled in cursor.fetchall()}
    for table, known in columns().items():
        for column, kind in known.items():
            # A column may have become nullable; it may not have gone, changed its type, or become stricter.
            assert today[table, column][0] in (kind, f"{kind} null"), f"{table}.{column}"
    for (table, column), (kind, filled) in today.items():
        if table in columns() and column not in columns()[table]:
            assert filled or kind.endswith(" null"), f"{table}.{column} is new, and that release does not fill it"
