"""Entries of an unknown kind, from another release: pages, calls, files, streams and searches show them unchanged.

Stored reasons, whatever is in them, break no page either: what has no words shows its code.
"""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import transaction

from fleet.domain.reasons import Reason, read_reason
from fleet.domain.timeline import EntryKind
from fleet.gateway.feed import feed_frame
from fleet.models import Entry
from fleet.operations.timeline.entries import write
from fleet.projections.timeline.entries import FeedEntry, rows_of
from fleet.wording.say import is_as_recorded, say
from fleet.wording.times import API
from tests.api.conftest import caller
from tests.dashboard.conftest import logged_in, text_of
from tests.factories import EVENT, Fleet, admin, announced
from tests.words import text

KIND = "event_was_moved_by_moonlight"
SAID = KIND + ' {"after": {"place": "pier"}, "data": {"tide": "low"}}'


@pytest.fixture
def line(db: None) -> Entry:
    """What a later release wrote about an event, before it was rolled back."""
    fleet = Fleet(now=datetime.now(UTC))
    event = announced(fleet)
    with transaction.atomic():
        write(
            [
                Entry(
                    kind=KIND, at=fleet.now, event=event, availability_set_id=event.availability_set_id, actor="ada",
                    via="page", after={"place": "pier"}, data={"tide": "low"},
                )
            ]
        )  # fmt: skip
    return Entry.objects.get(kind=KIND)


def test_unknown_kind_and_its_data_are_its_text(line: Entry) -> None:
    (row,) = rows_of([line])
    assert text(line) == SAID
    assert is_as_recorded(row)
    assert (row.kind, row.kind.known, row.kind in list(EntryKind)) == (KIND, False, False)
    assert EntryKind.EVENT_SEEN.known


def test_pages_show_it(line: Entry) -> None:
    browser = logged_in(admin())
    for address in (f"/events/{EVENT}/", f"/sets/{line.availability_set_id}/", "/timeline/", "/audit/", "/"):
        answer = browser.get(address)
        assert answer.status_code == 200, address
        assert (address == "/") or (KIND in text_of(answer)), address
    assert f"From another release {SAID} (as recorded)" in text_of(browser.get(f"/events/{EVENT}/"))
    assert KIND in b"".join(browser.get("/audit/export.csv").streaming_content).decode()


def test_calls_files_searches_and_streams_tell_it(line: Entry) -> None:
    reader = caller(admin())
    event_timeline: list[dict[str, Any]] = reader.get(f"events/{EVENT}/timeline/").json()["results"]
    (found,) = [row for row in event_timeline if row["kind"] == KIND]
    assert (found["text"], found["actor_kind"], found["data"]) == (SAID, "person", {"tide": "low"})
    for query in ("q=moonlight", "q=low", "person=ada"):
        assert KIND in [row["kind"] for row in reader.get(f"audit/?{query}").json()["results"]], query
    lines = b"".join(reader.get("audit/export.jsonl").streaming_content).decode().splitlines()
    assert json.loads(lines[0])["kind"] == KIND
    frame = feed_frame(FeedEntry((line.xid, line.pk), rows_of([line])[0])).frame
    assert json.loads(frame.split(b"data: ")[1])["kind"] == KIND


@pytest.mark.parametrize(
    "reason",
    [
        Reason("of-the-next-release", by="otto"),
        Reason("held", by="otto"),
        Reason("waits-for-time", due_at="soon"),
        Reason("waits-for-machines", machines=7),
        Reason("rule", action="dance"),
        Reason("hook-failed", machines=["vm1"]),
    ],
)
def test_a_reason_that_cannot_be_worded_shows_its_code(reason: Reason) -> None:
    assert say(reason, API) == reason.code
    assert say(read_reason(reason.stored), API) == reason.code


def test_one_inside_another_leaves_the_rest_readable() -> None:
    kept = Reason("kept-by-guard", reason=Reason("waits-for-turn"), guard=Reason("no-such-guard"))
    assert say(kept, API) == f"{say(Reason('waits-for-turn'), API)} But: no-such-guard"


@pytest.mark.parametrize("written", ['{"code": ', '{"code": 7}', '{"code": "held"}', '{"code": "x", "values": []}'])
def test_what_people_wrote_is_no_reason_though_it_looks_like_one(written: str) -> None:
    assert say(read_reason(written), API) == written


def test_values_are_never_read_as_templates() -> None:
    odd = "{by.__class__} {0} {at:time}"
    assert say(Reason("held-already", by=odd), API) == f"{odd} already left the event to Azure."
