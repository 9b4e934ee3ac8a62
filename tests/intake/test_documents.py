"""Reading what the metadata service answers: documented forms, odd ones, and anything at all."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.intake import MOST_BYTES, UNUSABLE, read_document, read_integer, read_time

SAMPLE = Path(__file__).parent.parent / "samples" / "live_migration.json"


def test_the_documented_live_migration_is_read() -> None:
    samples = json.loads(SAMPLE.read_text())["documents"]
    read = [read_document(json.dumps(sample).encode()) for sample in samples]
    assert [document.incarnation for document in read] == [1, 2, 3, 4]
    assert [[listing.status for listing in document.listings] for document in read] == [
        [],
        ["Scheduled"],
        ["Started"],
        [],
    ]
    scheduled = read[1].listings[0]
    assert scheduled.event_id == "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
    assert scheduled.resources == ("WestNO_0", "WestNO_1")
    assert scheduled.not_before == datetime(2022, 4, 11, 22, 26, 58, tzinfo=UTC)
    assert (scheduled.event_type, scheduled.source, scheduled.duration_seconds) == ("Freeze", "Platform", 5)
    assert read[2].listings[0].not_before is None
    assert not any(document.flags for document in read)


@pytest.mark.parametrize("body", [b"", b"  \n", b"<html>", b"[]", b'{"Events": null}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_document_says_nothing_and_is_flagged(body: bytes) -> None:
    document = read_document(body)
    assert not document.readable
    assert document.flags
    assert document.listings == ()


def test_raw_newlines_and_digits_as_text_are_read() -> None:
    body = b'{"DocumentIncarnation": "7", "Events": [{"EventId": "a-b", "Description": "two\nlines"}]}'
    document = read_document(body)
    assert (document.readable, document.incarnation) == (True, 7)
    assert document.listings[0].description == "two lines"


@pytest.mark.parametrize(
    ("text", "is_stated"),
    [
        *((text, True) for text in (
            "Mon, 11 Apr 2022 22:26:58 GMT", "Sun, 11 Apr 2022 22:26:58 GMT", "2022-04-11T22:26:58Z",
            "2022-04-11T22:26:58", "2022-04-12T00:26:58+02:00",
        )),
        *((text, False) for text in ("", "  ", "soon", None, 5, "99 Foo 2022", "Mon, 01 Jan 0001 00:00:00 GMT")),
    ],
)  # fmt: skip
def test_times_are_read_in_every_form_that_occurs(text: object, is_stated: bool) -> None:
    assert read_time(text) == (datetime(2022, 4, 11, 22, 26, 58, tzinfo=UTC) if is_stated else None)


@pytest.mark.parametrize(("value", "expected"), [("5", 5), (-1, -1), (9.0, 9), (True, None), ("", None), ("5s", None)])
def test_integers_are_read_as_such_or_not_at_all(value: object, expected: int | None) -> None:
    assert read_integer(value) == expected


def test_unknown_words_are_kept_and_flagged() -> None:
    event = {
        "EventId": "x", "EventStatus": "Paused", "EventType": "Melt", "ResourceType": "Disk",
        "Resources": ["_vm1", "VM1"],
    }  # fmt: skip
    listing = read_document(json.dumps({"DocumentIncarnation": 1, "Events": [event]}).encode()).listings[0]
    assert (listing.status, listing.event_type, listing.resource_type) == ("Paused", "Melt", "Disk")
    assert listing.resources == ("vm1",)
    assert len(listing.flags) == 3


@pytest.mark.parametrize(
    ("changed", "name", "expected"),
    [
        ({"Resources": "vm1"}, "resources", ("vm1",)),
        ({"Resources": {"name": "vm1"}}, "resources", ()),
        ({"EventSource": "user"}, "source", "User"),
        ({"EventSource": "PLATFORM"}, "source", "Platform"),
        ({"EventType": "preempt"}, "event_type", "Preempt"),
        ({"NotBefore": "0001-01-01T00:00:00"}, "not_before", None),
        ({"NotBefore": "Thu, 01 Jan 1970 00:00:00 GMT"}, "not_before", None),
        ({"DurationInSeconds": "-1"}, "duration_seconds", -1),
        *(({"EventStatus": status}, "started", True) for status in ("started", "STARTED", " Started ")),
        # Another status is shown as it is.
        ({"EventStatus": "Postponed"}, "status", "Postponed"),
        ({"EventStatus": "Postponed"}, "started", False),
    ],
)
def test_values_in_other_forms_are_read_as_meant(changed: dict[str, object], name: str, expected: object) -> None:
    stated = {"EventId": "A", "EventStatus": "Scheduled", "EventType": "Reboot", "Resources": ["vm1"], **changed}
    [listing] = read_document(json.dumps({"DocumentIncarnation": 1, "Events": [stated]}).encode()).listings
    assert getattr(listing, name) == expected


@pytest.mark.parametrize("statuses", [("Scheduled", "Started"), ("Started", "Scheduled")])
def test_an_event_listed_twice_is_started_if_one_listing_is(statuses: tuple[str, str]) -> None:
    events = [{"EventId": "A", "EventStatus": status} for status in statuses]
    document = read_document(json.dumps({"DocumentIncarnation": 1, "Events": events}).encode())
    assert [listing.status for listing in document.listings] == ["Started"]
    assert "event-listed-twice" in {flag.code for flag in document.flags}


@pytest.mark.parametrize(
    "event_id", ["a/b", "..", "x\ny", 'a"b', "<b>", "a b", "\ud800", "", "a" * 201, "\u00df", None]
)
def test_an_event_that_no_address_can_name_is_flagged_and_the_others_are_read(event_id: object) -> None:
    given_events = [{"EventId": event_id, "EventStatus": "Scheduled"}, {"EventId": "good", "EventStatus": "Scheduled"}]
    document = read_document(json.dumps({"DocumentIncarnation": 1, "Events": given_events}).encode())
    assert [listing.event_id for listing in document.listings] == ["GOOD"]
    assert document.flags == (UNUSABLE,)


def test_texts_that_a_database_cannot_keep_are_mended() -> None:
    event = {"EventId": "x", "EventStatus": "Started", "Description": "a\ud800b\x00", "Resources": ["vm\udfff"]}
    listing = read_document(json.dumps({"DocumentIncarnation": 1, "Events": [event]}).encode()).listings[0]
    assert listing.description == "a\N{REPLACEMENT CHARACTER}b"
    assert listing.resources == ("vm\N{REPLACEMENT CHARACTER}",)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
fields = ("EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore", "DurationInSeconds")
events = st.dictionaries(st.sampled_from(fields), json_values | st.sampled_from(["Started", "a-b", "1e9"]), max_size=7)


@given(
    st.fixed_dictionaries({"DocumentIncarnation": json_values, "Events": st.lists(events | json_values, max_size=5)})
)
def test_no_shape_of_json_raises_and_nothing_is_guessed(raw: dict[str, object]) -> None:
    document = read_document(json.dumps(raw).encode())
    assert document.readable
    for listing in document.listings:
        assert listing.event_id == listing.spelled.upper() != ""
        assert "\x00" not in listing.description
        assert listing.not_before is None or listing.not_before.tzinfo is not None


def test_cut_body_is_no_document_and_is_marked_as_cut() -> None:
    found = read_document(b'{"Events": [' + b" " * MOST_BYTES)
    assert (found.readable, [flag.code for flag in found.flags]) == (False, ["body-cut"])
