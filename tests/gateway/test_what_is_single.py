"""Single-process tasks: a second process leaves the task to the first, and writes nothing."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from fleet.audit import seals
from fleet.models import LastRun, StaleSet
from fleet.notifications import router, tasks
from fleet.operations import blind_spots, reconcile
from fleet.operations.locks import Lock
from fleet.operations.sets import coverage
from tests.architecture.sources import FLEET
from tests.holding import session
from tests.processes import ROOT

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
# Whether it did anything.
SINGLE: dict[Lock, Callable[[], bool]] = {
    Lock.RECONCILE: lambda: reconcile.advance(now=NOW, via="beat").ran,
    Lock.SEAL: lambda: seals.seal(now=NOW, via="beat").ran,
    Lock.ROUTER: lambda: router.route(now=NOW, via="celery").ran,
    Lock.TROUBLES: lambda: blind_spots.compare(now=NOW, via="beat"),
    Lock.WATCHDOG: lambda: tasks.is_ping_due(now=NOW, via="celery"),
    Lock.BLIND_SPOTS: lambda: coverage.renew(now=NOW) > 0,
}
# How each job of Celery beat stays harmless when two beats send it at once: its lock, or the test that plays it.
SCHEDULED: dict[str, Lock | str] = {
    "advance": Lock.RECONCILE,
    "watch": Lock.WATCHDOG,
    "tell": Lock.ROUTER,
    "seal": Lock.SEAL,
    "renew": Lock.BLIND_SPOTS,
    "compare": Lock.TROUBLES,
    "partition": "tests/partitions/test_partitions_are_made_and_leave.py::test_two_that_make_them_at_once_make_one",
    "retain": "tests/archive/test_where_the_archive_lies.py::test_of_two_at_once_one_works",
    "refresh": "tests/people/test_two_runs_at_once.py::test_each_account_is_checked_with_the_provider_once",
    "tidy_up": "tests/people/test_two_runs_at_once.py::test_credentials_are_tidied_up_once",
}


def test_each_scheduled_job_may_be_sent_by_two_beats() -> None:
    assert SCHEDULED.keys() == settings.CELERY_BEAT_SCHEDULE.keys()
    for by in SCHEDULED.values():
        if isinstance(by, Lock):
            assert by in SINGLE
        else:
            file, _, name = by.partition("::")
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("lock", SINGLE)
def test_a_second_one_does_nothing_while_the_first_is_at_it(db: Any, lock: Lock) -> None:
    with session() as first:
        first.execute("SELECT pg_advisory_xact_lock(%s)", [lock.value])
        StaleSet.objects.create(availability_set_id=0)
        before = set(LastRun.objects.all())
        assert not SINGLE[lock]()
        # That seals were checked is noted apart; two who do so read the same, and change nothing.
        assert set(LastRun.objects.exclude(name=seals.RUN)) == before
        first.rollback()
        assert SINGLE[lock]()


def test_the_page_names_all_of_them() -> None:
    calls = [re.findall(r"try_take\(Lock\.(\w+)\)", path.read_text("utf-8")) for path in Path(FLEET).rglob("*.py")]
    assert {Lock[name] for names in calls for name in names} == set(SINGLE)
    page = (ROOT / "docs" / "admin" / "scale.md").read_text(encoding="utf-8").partition("### Exclusive work")[2]
    table = page.partition("\n### ")[0]
    assert set(re.findall(r"`([A-Z_]{4,})`", table)) - {"SKIP LOCKED"} == {lock.name for lock in SINGLE}
