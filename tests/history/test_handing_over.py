"""Shift handover: the next operator reads every change since they last looked, in one view that a link preserves."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from fleet.audit.reports import handover, span
from fleet.models import Entry, Profile
from fleet.operations.approvals import claims
from tests import factories
from tests.dashboard.conftest import logged_in, text_of
from tests.plans import is_answered_by

pytestmark = pytest.mark.django_db
OTHER = "0A1B2C3D-0000-4000-8000-00000000000A"


@pytest.fixture
def shift(fleet: factories.Fleet) -> factories.Fleet:
    """An hour ago one event went its whole way; another waits, and otto is on it."""
    fleet.now -= timedelta(hours=1)
    factories.freeze_completed(fleet)
    fleet.later(60)
    fleet.all_say(factories.listing(OTHER, resources=("vm3",), not_before=datetime.now(UTC) + timedelta(minutes=10)))
    actor = factories.acting(factories.operator(), why="calling the database people")
    claims.claim(event_id=OTHER, actor=actor, now=fleet.now)
    return fleet


def view(client: Client, **times: datetime) -> str:
    sent = {name: at.isoformat() for name, at in times.items()}
    return text_of(client.get("/handover/", sent))


def test_it_tells_what_was_decided_started_ended_and_is_open_and_by_whom(
    shift: factories.Fleet, viewer: Client
) -> None:
    now = datetime.now(UTC)
    found = handover(since=now - timedelta(hours=2), until=now, now=now)
    rows = {part.name: part.rows for part in found.parts}
    assert {row.kind.value for row in rows["decided"]} == {"approval_granted"}
    # A user who claims an event has decided nothing yet.
    assert "event_claimed" in {row.kind.value for row in rows["desk"]}
    assert {row.actor for row in rows["decided"]} == {"otto"}
    assert [row.kind.value for row in rows["started"]] == ["event_started"]
    assert [row.kind.value for row in rows["ended"]] == ["event_ended"]
    assert len(rows["announced"]) == 2
    assert rows["failed"] == ()
    assert [row.event_id for row in found.still_open] == [OTHER]
    shown = view(viewer, since=now - timedelta(hours=2), until=now)
    assert "claimed by otto" in shown
    assert "No approval lapsed, was refused or became void." in shown
    assert "1 open now" in shown and "1 decided" in shown


def test_the_address_keeps_the_view(shift: factories.Fleet, viewer: Client) -> None:
    answer = viewer.get("/handover/")
    assert answer.status_code == 302
    kept = parse_qs(urlsplit(answer["Location"]).query)
    assert set(kept) == {"since", "until"}
    colleague = logged_in(factories.operator())
    assert "1 started" in text_of(viewer.get(answer["Location"]))
    assert "1 started" in text_of(colleague.get(answer["Location"]))
    began = datetime.fromisoformat(kept["until"][0]) - datetime.fromisoformat(kept["since"][0])
    assert began == timedelta(hours=12)


def test_handover_starts_where_the_user_stopped_reading(shift: factories.Fleet, viewer: Client) -> None:
    until = (datetime.now(UTC) - timedelta(minutes=5)).replace(microsecond=0)
    assert viewer.post("/handover/read/", {"until": until.isoformat()})["Location"] == "/handover/"
    kept = parse_qs(urlsplit(viewer.get("/handover/")["Location"]).query)
    assert datetime.fromisoformat(kept["since"][0]) == until
    line = Entry.objects.get(kind="handover_read")
    assert (factories.who(line), line.via) == ("vera", "page")
    # An older link does not move the mark back, and a future time moves it only to now.
    viewer.post("/handover/read/", {"until": (until - timedelta(hours=3)).isoformat()})
    viewer.post("/handover/read/", {"until": "2090-01-01T00:00:00Z"})
    row = Profile.objects.get(user__username="vera")
    assert row.handover_read_until is not None
    assert until < row.handover_read_until <= datetime.now(UTC)
    assert Entry.objects.filter(kind="handover_read").count() == 2
    # Only the audit lists a user's own handover note.
    assert "has read what changed until" in text_of(viewer.get("/audit/"))


def test_times_that_cannot_be_read_are_named_and_left_out(fleet: factories.Fleet, viewer: Client) -> None:
    shown = text_of(viewer.get("/handover/?since=soon&until=9999-99-99"))
    assert "could not be read and were ignored: since, until" in shown
    answer = viewer.post("/handover/read/", {"until": "soon"})
    assert answer.status_code == 422
    assert "Say until when you have read." in text_of(answer)


def test_a_look_never_covers_more_than_a_month_nor_what_is_to_come() -> None:
    now = datetime(2026, 3, 1, 6, tzinfo=UTC)
    ago = now - timedelta(days=400)
    begin, end = span(since=None, until=None, handover_read_until=ago, now=now)
    assert (begin, end) == (now - timedelta(days=31), now)
    begin, end = span(since=now + timedelta(days=1), until=now + timedelta(days=2), handover_read_until=None, now=now)
    assert (begin, end) == (now, now)


def test_milestones_go_by_their_index(shift: factories.Fleet) -> None:
    now = datetime.now(UTC)
    found = Entry.objects.filter(kind__in=["event_started", "drill_began"], at__gte=now - timedelta(days=1), at__lt=now)
    assert is_answered_by(found.order_by("-at", "-pk")[:100], "entry_of_milestones")


def test_empty_shift_is_stated(fleet: factories.Fleet, viewer: Client) -> None:
    shown = text_of(viewer.get("/handover/", follow=True))
    for words in ("No event is open.", "No event was decided.", "No event started.", "No event ended."):
        assert words in shown
