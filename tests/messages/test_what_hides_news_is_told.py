"""Quiet sources, sets that nobody watches, blind spots, seals and storage: told when it begins, and when it is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from drydock_agent import wire

from fleet.audit.seals import seal
from fleet.domain.blind_spots.facts import MOST_ALONE, Trouble, together
from fleet.domain.timeline import EntryKind
from fleet.models import Admission, Entry, OpenTrouble, PresenceRow, QuarantinedRow
from fleet.operations import blind_spots
from fleet.operations.machines import enrolment
from tests.factories import Fleet, seconds
from tests.messages.telling import a_message, news
from tests.words import text

pytestmark = pytest.mark.django_db
KINDS = [
    kind.value
    for kind in (
        EntryKind.SOURCE_QUIET,
        EntryKind.SET_UNWATCHED,
        EntryKind.COVERAGE_OPENED,
        EntryKind.COVERAGE_CLOSED,
        EntryKind.AUDIT_FAILED,
        EntryKind.STORAGE_TROUBLE,
    )
]


class Watched(Fleet):
    """Two sets of three machines; somebody looks once a minute while those are heard that are named."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        for number in range(1, 4):
            self.enrol(f"web{number}")
            self.enrol(f"db{number}", availability_set="db")
        self.look()

    def look(self) -> blind_spots.Compared:
        return blind_spots.compare(now=self.now, via="beat")

    def pass_by(self, count: float, *heard: str) -> None:
        until = self.now + seconds(count)
        while self.now < until:
            self.later(60)
            if heard:
                self.heard(*heard)
            self.look()


def told() -> list[str]:
    return [text(line) for line in Entry.objects.filter(kind__in=KINDS).order_by("pk")]


def all_but(*names: str) -> list[str]:
    return [name for name in ("web1", "web2", "web3", "db1", "db2", "db3") if name not in names]


def test_a_fleet_that_is_heard_says_nothing() -> None:
    watched = Watched()
    watched.pass_by(900, *all_but())
    assert told() == []


def test_a_source_that_goes_quiet_is_told_once_and_once_more_when_it_is_back() -> None:
    watched = Watched()
    watched.pass_by(720, *all_but("web2"))
    assert told() == ["Not heard any more in web: web2."]
    watched.pass_by(900, *all_but("web2", "web3"))
    assert len(told()) == 1
    watched.pass_by(60, *all_but())
    assert told()[1:] == ["Over: Silent agents in web: web2."]


def test_what_is_back_before_the_second_look_was_nothing() -> None:
    watched = Watched()
    watched.pass_by(60, *all_but("db1", "db2", "db3"))
    assert OpenTrouble.objects.filter(recorded_at=None).exists()
    watched.pass_by(300, *all_but())
    assert (told(), OpenTrouble.objects.count()) == ([], 0)


def test_a_set_that_nobody_watches_is_told_within_two_minutes_and_says_nothing_of_its_machines() -> None:
    watched = Watched()
    watched.pass_by(120, *all_but("db1", "db2", "db3"))
    (line,) = told()
    assert line == (
        "No live agent watches db any more: nothing that Azure announces there would be seen. Not live: db1, db2, db3."
    )
    watched.pass_by(660, *all_but("db1", "db2", "db3"))
    assert len(told()) == 1


def test_after_twenty_hours_azure_is_about_to_switch_it_off() -> None:
    watched = Watched()
    watched.pass_by(120, *all_but("db1", "db2", "db3"))
    watched.later(20 * 3600)
    watched.pass_by(120, *all_but("db1", "db2", "db3"))
    assert told()[1:] == ["Scheduled Events are about to be switched off in db: db1, db2, db3."]
    watched.later(20 * 3600)
    watched.pass_by(60, *all_but("db1", "db2", "db3"))
    assert len(told()) == 2


def test_while_drydock_itself_was_away_nobody_went_quiet() -> None:
    watched = Watched()
    watched.pass_by(720)
    assert told() == []
    watched.pass_by(60, *all_but())
    assert told() == []


def test_many_at_once_are_one_line() -> None:
    fleet = Fleet()
    for number in range(30):
        fleet.enrol(f"vm{number}", availability_set=f"set{number:02}")
    blind_spots.compare(now=fleet.now, via="beat")
    for _ in range(6):
        fleet.later(30)
        fleet.heard("vm0")
        blind_spots.compare(now=fleet.now, via="beat")
    (line,) = told()
    assert line == (
        "No live agent watches 29 sets: set01, set02, set03, set04, set05 and 24 more;"
        " nothing that Azure announces there would be seen."
    )
    message = a_message(EntryKind.SET_UNWATCHED, now=fleet.now)
    assert news(message, now=fleet.now).stale == ""
    fleet.later(30)
    fleet.heard()
    blind_spots.compare(now=fleet.now, via="beat")
    assert news(message, now=fleet.now).stale == "over"
    assert told()[1:] == ["Over: No live agent, in 29 sets: set01, set02, set03, set04, set05 and 24 more."]


def test_few_stay_apart() -> None:
    few = [Trouble("wrong-clock", set_id=number, of=f"set{number}") for number in range(MOST_ALONE)]
    assert together(few) == few
    (one,) = together([*few, Trouble("wrong-clock", set_id=99, of="set99")])
    assert (one.set_id, one.count, one.key) == (None, 6, "wrong-clock:")


def test_what_was_so_when_somebody_first_looked_is_not_news() -> None:
    fleet = Fleet()
    fleet.enrol("vm1")
    fleet.enrol("old", availability_set="old")
    fleet.later(1800)
    for _ in range(4):
        fleet.later(30)
        fleet.heard("vm1")
        blind_spots.compare(now=fleet.now, via="beat")
    assert told() == []
    fleet.heard()
    fleet.later(11)
    blind_spots.compare(now=fleet.now, via="beat")
    assert told() == ["Over: No live agent in old: old."]


def test_clocks_and_documents_that_are_not_here() -> None:
    watched = Watched()
    PresenceRow.objects.filter(machine__resource_name="web1").update(clock_offset=-90)
    lacking = PresenceRow.objects.filter(machine__resource_name="db2")
    lacking.update(lacking_since=watched.now - timedelta(hours=1))
    watched.pass_by(90, *all_but())
    assert sorted(told()) == ["Documents that are not here in db: db2.", "Wrong clocks in web: web1."]


def test_what_waits_for_a_person_and_what_is_set_aside() -> None:
    watched = Watched()
    vm_id = watched.agents["web1"].machine.vm_id
    asking = {"join_token": watched.join_token, "machine_id": vm_id, "ask": "web1"}
    enrolment.enrol(request=wire.EnrolRequest(**asking), now=watched.now)
    assert Admission.objects.exists()
    QuarantinedRow.objects.create(
        what="event", row_id=1, since=watched.now, reason="x", tries=4, next_try_at=watched.now
    )
    watched.pass_by(90, *all_but())
    assert sorted(told()) == ["Machines that wait for admission: web1.", "What cannot be advanced: event."]


def test_sealing_that_stands_still_and_a_database_that_is_nearly_full(settings: Any) -> None:
    watched = Watched()
    seal(now=watched.now, via="beat")
    watched.pass_by(660, *all_but())
    assert told() == [
        "The timeline has not been sealed since 2022-04-11 22:12:00 UTC: see what Celery's log says.",
    ]
    settings.DATABASE_MAX_GIGABYTES = 0.001
    watched.pass_by(30, *all_but())
    assert "GB: give it more room" in told()[1]


def test_two_that_look_at_one_time_are_one_and_the_web_process_looks_when_celery_is_gone() -> None:
    watched = Watched()
    assert not watched.look().ran
    quiet = blind_spots.compare_if_quiet(now=watched.now + seconds(60), quiet_seconds=90, via="ticker")
    assert not quiet.ran
    assert blind_spots.compare_if_quiet(now=watched.now + seconds(120), quiet_seconds=90, via="ticker").ran


def test_it_asks_as_many_questions_for_a_large_fleet_as_for_a_small_one(django_assert_max_num_queries: Any) -> None:
    watched = Watched()
    for number in range(20):
        watched.enrol(f"more{number}", availability_set=f"more{number}")
    watched.later(700)
    watched.heard("web1")
    with django_assert_max_num_queries(33):
        watched.look()
