"""Notes that stay with an event, and silences of its notifications: who may write them, and where they are shown."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from fleet.models import AvailabilitySet, Entry, ScheduledEvent
from fleet.operations.approvals import claims
from fleet.projections.events.rows import silenced_until
from tests.api.conftest import caller, problem
from tests.approvals.asking import entries, refused
from tests.dashboard.conftest import acts, logged_in, marks, text_of
from tests.factories import EVENT, Fleet, acting, announced, approver, operator, seconds, the_event, who

pytestmark = pytest.mark.django_db
HOSTILE = "<script>alert(1)</script> [x](javascript:alert(1)) \u202egnp"
ADDRESS = f"/events/{EVENT}/"


@pytest.fixture
def today(db: None) -> Fleet:
    """A fleet of this moment, for pages and calls."""
    return Fleet(now=datetime.now(UTC))


def note(fleet: Fleet, text: str, by: Any = None) -> None:
    claims.note(event_id=EVENT, actor=acting(by or operator(), why=text), now=fleet.now)


def silence(fleet: Fleet, until: datetime | None, *, whole_set: bool = False) -> None:
    actor = acting(operator(), why="known")
    claims.silence(event_id=EVENT, whole_set=whole_set, until=until, actor=actor, now=fleet.now)


def test_notes_are_kept_with_name_and_time_also_after_the_event(fleet: Fleet, event: ScheduledEvent) -> None:
    note(fleet, "vm1 is the primary")
    fleet.later(60)
    fleet.all_say()
    note(fleet, "two lines\nof text", approver())
    lines = entries("event_noted")
    assert [(who(line), line.at, line.why) for line in lines] == [
        ("otto", fleet.now - seconds(60), "vm1 is the primary"), ("anna", fleet.now, "two lines\nof text"),
    ]  # fmt: skip
    assert {(line.event_id, line.availability_set_id) for line in lines} == {(event.pk, event.availability_set_id)}


def test_note_is_bounded(fleet: Fleet, event: ScheduledEvent) -> None:
    for text in ("", "\u200b \n", "x" * 2001):
        assert refused(lambda: note(fleet, text)).code == "validation"  # noqa: B023
    note(fleet, "x" * 2000)
    assert len(entries("event_noted")) == 1


def test_notes_are_next_to_the_decision_and_in_the_report(today: Fleet) -> None:
    announced(today)
    for number in range(6):
        note(today, f"note {number}")
    note(today, HOSTILE)
    client = logged_in(operator())
    panel = client.get(f"{ADDRESS}?part=decision", headers={"HX-Request": "true"})
    assert "note 5" in text_of(panel) and "note 1" not in text_of(panel)
    assert "kind=event_noted" in panel.content.decode()
    for page in (panel, client.get(f"/reports{ADDRESS}")):
        assert "<script>alert" not in page.content.decode() and "javascript:alert" in text_of(page)
    assert "note 0" in text_of(client.get(f"/reports{ADDRESS}"))
    assert "\\<script\\>alert" in client.get(f"/reports{ADDRESS}report.md").content.decode()
    assert "note" in acts(panel)


def test_note_on_the_page_and_by_the_api(today: Fleet) -> None:
    announced(today)
    client = logged_in(operator())
    assert client.post(f"{ADDRESS}note/", {"note": "by page"}).status_code == 302
    for text in ("", "\x00", "x" * 2001):
        assert client.post(f"{ADDRESS}note/", {"note": text}).status_code == 422
    call = caller(operator(), "read", "approve")
    shown = call.post(f"events/{EVENT}/notes/", {"comment": HOSTILE}).json()
    assert (shown["kind"], shown["actor"], shown["via"]) == ("event_noted", "otto", "api")
    assert shown["why"].startswith("<script>")
    problem(call.post(f"events/{EVENT}/notes/", {"comment": "x" * 2001}), 422, "validation")
    assert [line.via for line in entries("event_noted")] == ["page", "api"]


def test_silence_has_an_end_and_leaves_a_line(fleet: Fleet, event: ScheduledEvent) -> None:
    for until in (fleet.now, fleet.now - seconds(1), fleet.now + timedelta(hours=25)):
        assert refused(lambda: silence(fleet, until)).code == "validation"  # noqa: B023
    end = fleet.now + timedelta(hours=1)
    silence(fleet, end)
    silence(fleet, end)
    (line,) = entries("silence_changed")
    assert (who(line), line.event_id, line.why) == ("otto", event.pk, "known")
    assert line.after == {"silenced_until": end.isoformat().replace("+00:00", "Z")}
    assert silenced_until(the_event(), now=fleet.now) == end
    assert silenced_until(the_event(), now=end) is None
    silence(fleet, end + timedelta(hours=1), whole_set=True)
    assert entries("silence_changed")[-1].event_id is None
    silence(fleet, None)
    assert silenced_until(the_event(), now=fleet.now) == end + timedelta(hours=1)
    silence(fleet, None, whole_set=True)
    assert silenced_until(the_event(), now=fleet.now) is None
    # Nothing is left to end.
    silence(fleet, None)
    assert len(entries("silence_changed")) == 4


def test_silence_on_the_page_and_by_the_api(today: Fleet) -> None:
    announced(today)
    client: Client = logged_in(operator())
    for sent in ({}, {"hours": "2"}, {"hours": "1000"}, {"hours": "1", "comment": "x" * 2001}):
        assert client.post(f"{ADDRESS}silence/", sent).status_code == 422, sent
    client.post(f"{ADDRESS}silence/", {"hours": "4", "whole_set": "1"})
    row = AvailabilitySet.objects.get(pk=the_event().availability_set_id)
    assert row.silenced_until is not None and ScheduledEvent.objects.get().silenced_until is None
    assert "silence" in marks(client.get(ADDRESS), "data-key")
    assert "silenced until" in text_of(client.get(f"/sets/{row.pk}/"))
    call = caller(operator(), "read", "approve")
    assert call.get(f"events/{EVENT}/").json()["silenced_until"]
    assert call.get(f"sets/{row.pk}/").json()["silenced_until"]
    client.post(f"{ADDRESS}silence/", {"hours": "0"})
    assert call.get(f"events/{EVENT}/").json()["silenced_until"] is None
    until = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
    assert call.post(f"events/{EVENT}/silence/", {"until": until, "comment": "deploy"}).status_code == 204
    assert call.get(f"events/{EVENT}/").json()["silenced_until"]
    late = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    refusal = problem(call.post(f"events/{EVENT}/silence/", {"until": late}), 422, "validation")
    assert [error["field"] for error in refusal["errors"]] == ["until"]
    assert Entry.objects.filter(kind="silence_changed").count() == 3


def test_claim_is_assigned_on_the_page_and_by_the_api(today: Fleet) -> None:
    announced(today)
    approver()
    client = logged_in(operator())
    assert 'value="anna"' in client.get(ADDRESS).content.decode()
    version = the_event().version
    stale = client.post(f"{ADDRESS}claim/", {"assign_to": "anna", "expected_version": version + 1})
    assert marks(stale, "data-refusal") == ["version-changed"]
    client.post(f"{ADDRESS}claim/", {"assign_to": "anna", "expected_version": version})
    assert "Claimed by anna" in text_of(client.get(ADDRESS))
    refused_page = client.post(f"{ADDRESS}claim/", {"assign_to": "<i>x", "take_over": "1"})
    assert (refused_page.status_code, marks(refused_page, "data-refusal")) == (422, ["validation"])
    assert "<i>x" not in refused_page.content.decode()
    call = caller(operator(), "read", "approve")
    problem(call.post(f"events/{EVENT}/claims/", {"assign_to": "otto"}), 409, "already-claimed")
    stale_call = call.post(f"events/{EVENT}/claims/", {"take_over": True}, if_match='"999"')
    problem(stale_call, 412, "precondition-failed")
    body = {"assign_to": "otto", "take_over": True, "comment": "night shift"}
    assert call.post(f"events/{EVENT}/claims/", body).json()["by"] == "otto"
