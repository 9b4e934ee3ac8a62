"""Notifications of silence: silent sources, unwatched sets, blind spots, seals and storage, at begin and end."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from drydock_agent import wire

from fleet.audit.seals import seal
from fleet.domain.blind_spots import MOST_ALONE
from fleet.domain.timeline import EntryKind
from fleet.models import Admission, Entry, OpenTrouble, PresenceRow, QuarantinedRow
from fleet.models.blind_spots import trouble
from fleet.operations import blind_spots, reconcile
from fleet.operations.machines import enrolment
from tests.factories import Fleet, seconds
from tests.messages.telling import a_message, news
from tests.words import text

pytestmark = pytest.mark.django_db
KINDS = [
    kind.value
    for kind in (
        EntryKind.SOURCE_QUIET, EntryKind.SET_UNWATCHED, EntryKind.COVERAGE_OPENED, EntryKind.COVERAGE_CLOSED,
        EntryKind.AUDIT_FAILED, EntryKind.STORAGE_TROUBLE,
    )
]  # fmt: skip


NAMES = ("web1", "web2", "web3", "db1", "db2", "db3")


class Watched(Fleet):
    """Machines of these sets, else two of three each; one may be `silent` before the first look. Blind spots are
    compared again and again while the named machines are heard.
    """

    def __init__(self, sets: dict[str, str] | None = None, *, silent: str = "") -> None:
        super().__init__()
        for name, home in (sets or {name: name[:-1] for name in NAMES}).items():
            self.enrol(name, availability_set=home)
        if silent:
            self.later(1830)
            self.heard(*(name for name in self.agents if name != silent))
        self.look()

    def look(self) -> bool:
        return blind_spots.compare(now=self.now, via="beat")

    def pass_by(self, count: float, *heard: str, every: float = 60) -> None:
        until = self.now + seconds(count)
        while self.now < until:
            self.later(every)
            if heard:
                self.heard(*heard)
            self.look()


def told() -> list[str]:
    return [text(line) for line in Entry.objects.filter(kind__in=KINDS).order_by("pk")]


def all_but(*names: str) -> list[str]:
    return [name for name in NAMES if name not in names]


def test_quiet_source_is_reported_once_and_its_return() -> None:
    watched = Watched()
    watched.pass_by(720, *all_but("web2"))
    assert told() == ["Machines of web no longer report: web2."]
    watched.pass_by(900, *all_but("web2", "web3"))
    assert len(told()) == 1
    watched.pass_by(60, *all_but())
    assert told()[1:] == ["Resolved: Silent agents in web: web2."]


def test_trouble_shorter_than_two_checks_is_not_reported() -> None:
    watched = Watched()
    watched.pass_by(60, *all_but("db1", "db2", "db3"))
    assert OpenTrouble.objects.filter(recorded_at=None).exists()
    watched.pass_by(300, *all_but())
    assert (told(), OpenTrouble.objects.count()) == ([], 0)


def test_unwatched_set_is_reported_within_two_minutes_and_its_expiry_after_twenty_hours() -> None:
    watched = Watched()
    watched.pass_by(120, *all_but("db1", "db2", "db3"))
    assert told() == ["No live agent in db any more: Drydock sees no event there. Not live: db1, db2, db3."]
    watched.pass_by(660, *all_but("db1", "db2", "db3"))
    assert len(told()) == 1
    watched.later(20 * 3600)
    watched.pass_by(120, *all_but("db1", "db2", "db3"))
    assert told()[1:] == ["Scheduled Events will soon be disabled in db: db1, db2, db3."]
    watched.later(20 * 3600)
    watched.pass_by(60, *all_but("db1", "db2", "db3"))
    assert len(told()) == 2


def test_neither_own_downtime_nor_a_live_fleet_is_reported() -> None:
    watched = Watched()
    watched.pass_by(720)
    assert told() == []
    watched.pass_by(900, *all_but())
    assert told() == []


def test_many_troubles_are_one_entry() -> None:
    watched = Watched({f"vm{number}": f"set{number:02}" for number in range(30)})
    watched.pass_by(180, "vm0", every=30)
    sets = "29 sets: set01, set02, set03, set04, set05 and 24 more"
    assert told() == [f"No live agent in {sets}; Drydock sees no event there."]
    message = a_message(EntryKind.SET_UNWATCHED, now=watched.now)
    assert news(message, now=watched.now).stale == ""
    watched.pass_by(30, *watched.agents, every=30)
    assert news(message, now=watched.now).stale == "over"
    assert told()[1:] == [f"Resolved: No live agent, in {sets}."]


def test_few_troubles_have_an_entry_each() -> None:
    few = [trouble("wrong-clock", availability_set_id=number, of=f"set{number}") for number in range(MOST_ALONE)]
    assert blind_spots.together(few) == few
    (one,) = blind_spots.together([*few, trouble("wrong-clock", availability_set_id=99, of="set99")])
    assert (one.availability_set_id, one.count, one.key) == (None, 6, "wrong-clock:")


def test_trouble_at_the_first_check_is_not_reported() -> None:
    watched = Watched({"vm1": "web", "old": "old"}, silent="old")
    watched.pass_by(90, "vm1", every=30)
    assert told() == []
    watched.heard()
    watched.later(11)
    watched.look()
    assert told() == ["Resolved: No live agent in old: old."]


def test_wrong_clocks_and_missing_documents_are_reported() -> None:
    watched = Watched()
    PresenceRow.objects.filter(machine__resource_name="web1").update(clock_offset=-90)
    lacking = PresenceRow.objects.filter(machine__resource_name="db2")
    lacking.update(lacking_since=watched.now - timedelta(hours=1))
    watched.pass_by(90, *all_but())
    assert sorted(told()) == ["Documents missing after a restore in db: db2.", "Wrong clocks in web: web1."]


def test_admissions_and_quarantined_rows_are_reported() -> None:
    watched = Watched()
    vm_id = watched.agents["web1"].machine.vm_id
    asking = {"join_token": watched.join_token, "machine_id": vm_id, "ask": "web1"}
    enrolment.enrol(request=wire.EnrolRequest(**asking), now=watched.now)
    assert Admission.objects.exists()
    now = watched.now
    QuarantinedRow.objects.create(what="event", row_id=1, since=now, reason="x", tries=4, next_try_at=now)
    watched.pass_by(90, *all_but())
    assert sorted(told()) == ["Machines that wait for admission: web1.", "Objects that Drydock cannot process: event."]


def test_late_seal_and_full_database_are_reported(settings: Any) -> None:
    watched = Watched()
    seal(now=watched.now, via="beat")
    watched.pass_by(660, *all_but())
    assert told() == ["The timeline has not been sealed since 2022-04-11 22:12:00 UTC: check the log of Celery."]
    settings.DATABASE_MAX_GIGABYTES = 0.001
    watched.pass_by(30, *all_but())
    assert "GB: increase its size" in told()[1]


def test_one_process_checks_at_a_time() -> None:
    watched = Watched()
    assert not watched.look()
    quiet = partial(reconcile.run_if_quiet, blind_spots.RUN, blind_spots.compare, quiet_seconds=90)
    assert quiet(now=watched.now + seconds(60)) is None
    assert quiet(now=watched.now + seconds(120))


def test_number_of_queries_is_fixed(django_assert_max_num_queries: Any) -> None:
    watched = Watched()
    for number in range(20):
        watched.enrol(f"more{number}", availability_set=f"more{number}")
    watched.later(700)
    watched.heard("web1")
    with django_assert_max_num_queries(33):
        watched.look()
