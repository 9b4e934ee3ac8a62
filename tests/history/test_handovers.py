"""A shift sends its handover once, with what is open, due, decided and missed; the next one confirms it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from fleet.audit import handovers
from fleet.audit.reports import handover
from fleet.domain.reasons import Refused
from fleet.models import Entry
from fleet.models.people import Scope
from fleet.notifications import router
from fleet.operations.approvals import claims
from tests import factories
from tests.api.conftest import caller, problem
from tests.approvals.asking import entries
from tests.dashboard.conftest import acts, logged_in, text_of
from tests.factories import EVENT, Fleet, acting, listing, operator, who
from tests.messages.sent import a_channel, a_route
from tests.words import sentence, text

pytestmark = pytest.mark.django_db
LEFT, LATE, FAR = (f"0A1B2C3D-0000-4000-8000-00000000000{number}" for number in range(3))


@pytest.fixture
def shift(fleet: Fleet) -> Fleet:
    """An hour ago: one event is claimed, one was left to Azure, one was missed, and one is days ahead."""
    fleet.now -= timedelta(hours=1)
    fleet.enrol_set()
    now = fleet.now
    due = {LEFT: 5400, LATE: 60, FAR: 3 * 86400}
    more = [listing(name, resources=(f"vm{number}",), not_before=now + timedelta(seconds=ahead))
            for number, (name, ahead) in enumerate(due.items(), start=2)]  # fmt: skip
    fleet.all_say(listing(resources=("vm1",), not_before=now + timedelta(hours=2)), *more)
    claims.claim(event_id=EVENT, actor=acting(operator(), why="calling"), now=now)
    claims.hold(event_id=LEFT, actor=acting(operator(), why="the shop is open"), now=now)
    fleet.later(3590)
    fleet.heard()
    return fleet


def send(fleet: Fleet, by: Any = None, **times: Any) -> handovers.SentHandover:
    whole: dict[str, Any] = {"since": None, "until": None} | times
    return handovers.send(**whole, actor=acting(by or operator(), why="watch vm1"), now=fleet.now)


def test_handover_lists_due_open_missed_and_decided_events_with_the_reason(shift: Fleet) -> None:
    found = handover(since=shift.now - timedelta(hours=2), until=shift.now, now=shift.now)
    assert [row.event_id for row in found.missed] == [LATE]
    assert {EVENT, LEFT} <= {row.event_id for row in found.due}
    assert FAR not in {row.event_id for row in found.due} and FAR in {row.event_id for row in found.still_open}
    sent = send(shift)
    assert [line.values["part"] for line in sent.lines if "part" in line.values].count("missed") == 1
    lines = [sentence(line) for line in sent.lines]
    assert any("claimed by otto" in line and line.startswith("Due: Freeze of vm1") for line in lines)
    assert any("left to Azure by otto" in line for line in lines)
    assert any("unclaimed" in line and line.startswith("Open:") for line in lines)
    assert any("the shop is open" in line for line in lines)
    (line,) = entries("handover_sent")
    assert (who(line), line.why, line.data["missed"], line.data["decided"]) == ("otto", "watch vm1", 1, 1)
    # Sealed entries contain no name.
    assert "otto" not in str(line.data)


def test_user_sends_the_handover_of_one_time_once(shift: Fleet) -> None:
    times = {"since": shift.now - timedelta(hours=1), "until": shift.now}
    first = send(shift, **times)
    assert send(shift, **times).entry.id == first.entry.id
    # Another user of the shift may send one, too, and the same user later.
    send(shift, factories.approver(), **times)
    shift.later(5)
    send(shift)
    assert len(entries("handover_sent")) == 3


def test_it_notifies_by_the_routes(shift: Fleet) -> None:
    channel = a_channel("ops", kind="webhook", at=shift.now)
    a_route("All", at=shift.now, channel=channel)
    send(shift)
    (message,) = router._messages(entries("handover_sent"), now=shift.now)
    assert (message.moment, message.channel_id, message.severity) == ("handover.sent", channel.pk, "info")


def test_next_shift_confirms_it_by_name_and_time(shift: Fleet) -> None:
    sent = send(shift)

    def confirm(by: Any) -> None:
        handovers.confirm(handover_id=sent.entry.id, actor=acting(by), now=shift.now)

    for by in (operator(), factories.viewer()):
        with pytest.raises(Refused, match="not-permitted"):
            confirm(by)
    shift.later(5)
    anna = factories.approver()
    confirm(anna)
    confirm(anna)
    (line,) = entries("handover_confirmed")
    assert (who(line), line.at, line.data["handover"]) == ("anna", shift.now, sent.entry.id)
    assert "otto" in text(line) and "otto" not in str(line.data)
    confirm(factories.admin())
    (found,) = handovers.recent(now=shift.now)
    assert [row.actor for row in found.confirmed] == ["anna", "ada"]
    assert handovers.recent(now=shift.now + timedelta(days=4)) == ()
    with pytest.raises(Refused):
        handovers.confirm(handover_id=line.pk, actor=acting(anna), now=shift.now)


def test_reader_of_other_sets_sees_no_handover(shift: Fleet, settings: Any) -> None:
    settings.SCOPED_READ_ACCESS = True
    sent = send(shift)
    bob = operator("bob")
    Scope.objects.create(user=bob, kind="name", pattern="db*")
    assert caller(bob).get("handovers/").json()["results"] == []
    problem(caller(bob).post(f"handovers/{sent.entry.id}/confirm/"), 404, "not-found")
    assert "watch vm1" not in text_of(logged_in(bob).get("/handover/", follow=True))


def test_page_sends_and_confirms(shift: Fleet, viewer: Client) -> None:
    otto, anna = logged_in(operator()), logged_in(factories.approver())
    address = otto.get("/handover/")["Location"]
    page = otto.get(address)
    assert {"send", "read"} <= acts(page) and "confirm" not in acts(page)
    shown = text_of(page)
    assert "not decided in time" in shown and "the shop is open" in shown and "due in 12 hours" in shown
    now = datetime.now(UTC)
    ends = {"since": now - timedelta(hours=2), "until": now}
    times = {name: at.isoformat(timespec="milliseconds") for name, at in ends.items()}
    hostile = "<script>alert(1)</script>"
    answer = otto.post("/handover/send/", times | {"comment": hostile}, follow=True)
    assert "send" not in acts(answer) and "<script>alert" not in answer.content.decode()
    assert hostile.replace("<", "&lt;").replace(">", "&gt;") in answer.content.decode()
    otto.post("/handover/send/", times)
    assert len(entries("handover_sent")) == 1
    assert otto.post("/handover/send/", times | {"comment": "x" * 2001}).status_code == 422
    assert viewer.post("/handover/send/", times).status_code == 403
    for reader in (viewer, otto):
        assert "confirm" not in acts(reader.get("/handover/", follow=True))
    assert "confirm" in acts(anna.get("/handover/", follow=True))
    number = Entry.objects.get(kind="handover_sent").pk
    assert otto.post(f"/handover/{number}/confirm/").status_code == 403
    shown = text_of(anna.post(f"/handover/{number}/confirm/", follow=True))
    assert "anna confirmed it" in shown
    assert "handed over" in text_of(anna.get("/timeline/"))


def test_api_sends_lists_and_confirms(shift: Fleet) -> None:
    otto, anna = caller(operator(), "read", "approve"), caller(factories.approver(), "read", "approve")
    times = {"since": (datetime.now(UTC) - timedelta(hours=8)).isoformat(), "until": datetime.now(UTC).isoformat()}
    sent = otto.post("handovers/", {**times, "comment": "all quiet"}).json()
    assert (sent["actor"], sent["why"], sent["confirmed"]) == ("otto", "all quiet", [])
    assert any("the shop is open" in line for line in sent["lines"])
    assert anna.post(f"handovers/{sent['id']}/confirm/").status_code == 204
    (listed,) = anna.get("handovers/").json()["results"]
    assert [row["actor"] for row in listed["confirmed"]] == ["anna"]
    problem(anna.post("handovers/1/confirm/"), 404, "not-found")
