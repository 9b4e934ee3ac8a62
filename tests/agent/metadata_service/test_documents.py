"""Documents of every api-version: the reader accepts any answer, and the agent steps down in an older cloud."""

import base64
import json
from hashlib import sha256
from typing import Any

import pytest
from azure_simulator.documents import VERSIONS as OF_AZURE
from azure_simulator.faults import DOCUMENT, STAGES
from drydock_agent import wire
from drydock_agent.metadata_service.client import LIST_VERSIONS_SECONDS, MetadataUnavailable
from drydock_agent.metadata_service.document import read, to_data
from drydock_agent.metadata_service.versions import (
    EVENTS_VERSIONS,
    RETRY_NEWEST_SECONDS,
    Versions,
    is_about_version,
    newest_of,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.agents import Parts, SteppedClock

FIRST = "4CAEA225-A741-474D-A72E-428C86FCD853"

EVENT = {"EventId": FIRST, "EventStatus": "Scheduled", "Resources": ["vm1"]}

OTHER = {"EventId": "D3D9DFEC-1DCA-4B49-97AA-780E02F45DFE", "EventStatus": "Started", "Resources": ["vm2"]}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
documents = st.fixed_dictionaries(
    {
        "DocumentIncarnation": json_values,
        "Events": st.lists(st.fixed_dictionaries({}, optional={"EventId": json_values}) | json_values),
    }
).map(lambda content: json.dumps(content).encode())


def document(**fields: Any) -> bytes:
    return json.dumps({"DocumentIncarnation": 2, "Events": [EVENT], **fields}).encode()


@given(st.binary() | st.text(max_size=500).map(str.encode) | documents)
def test_any_body_is_read_and_forwarded_as_it_was_received(body: bytes) -> None:
    found = read(body)
    assert found.readable or (found.incarnation is None and found.listed == {})
    assert found.readable or not body.startswith(b'{"DocumentIncarnation": ')
    assert found.incarnation is None or isinstance(found.incarnation, int)
    assert all(key == spelled.lower() for key, spelled in found.listed.items())
    data = json.loads(json.dumps(to_data(found, api_version="2020-07-01")))
    text = data["body"]
    assert (base64.b64decode(text) if data["encoding"] == "base64" else text.encode()) == body
    assert found.hash == data["hash"] == sha256(body).hexdigest()


def test_text_that_json_blows_up_still_fits_into_a_request() -> None:
    body = b"\x01" * wire.MAX_DOCUMENT_BYTES
    data = to_data(read(body), api_version="")
    assert data["encoding"] == "base64"
    assert len(json.dumps(data)) < wire.MAX_REQUEST_BYTES


@pytest.mark.parametrize(
    ("stated", "understood"),
    [(208, 208), ("208", 208), (-1, -1), *((odd, None) for odd in (True, None, 1.5, "x", 2**63, "²"))],
)
def test_the_incarnation_is_a_number_or_unknown(stated: object, understood: int | None) -> None:
    assert read(document(DocumentIncarnation=stated)).incarnation == understood


def test_ids_are_found_without_case_and_content_is_compared_without_order() -> None:
    assert read(document()).listed == {FIRST.lower(): FIRST}
    # A raw newline in a string is accepted.
    assert read(document(Events=[{**EVENT, "Description": "two lines"}]).replace(b"two ", b"two\n")).listed
    one = json.dumps({"DocumentIncarnation": 2, "Events": [EVENT, OTHER]}).encode()
    turned = dict(reversed(EVENT.items()))
    two = json.dumps({"Events": [OTHER, turned], "DocumentIncarnation": 2}, indent=1).encode()
    assert read(one).content_key == read(two).content_key
    assert read(one).hash != read(two).hash
    others = [[], [EVENT, EVENT], [{**EVENT, "EventStatus": "Started"}]]
    bodies = [document(), document(DocumentIncarnation=3), document(Unknown=1)]
    bodies += [document(Events=events) for events in others]
    assert len({read(body).content_key for body in bodies}) == len(bodies)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"Events":{}}', b"null", b"\xff\xfe", b'{"error":"x"}'])
def test_what_is_no_document_is_marked_so(body: bytes) -> None:
    assert not read(body).readable


ODD = b'{"error":"Bad request. api-version is invalid"}'


def versions_of(paths: list[str]) -> list[str]:
    return [path.partition("api-version=")[2] for path in paths]


def naming(*versions: object) -> bytes:
    return json.dumps({"error": "Bad request. api-version is invalid", "newest-versions": versions}).encode()


def test_every_documented_version_is_known_newest_first() -> None:
    assert list(EVENTS_VERSIONS) == sorted(OF_AZURE, reverse=True)


@pytest.mark.parametrize("version", EVENTS_VERSIONS)
def test_a_document_of_every_version_is_read_and_says_its_version(parts: Parts, version: str) -> None:
    event_id = parts.announce()
    parts.fault("lagging-cloud", seconds=60, newest=version)
    parts.poller.step()
    [document] = parts.waiting(wire.DOCUMENT)
    assert document["api_version"] == version
    assert parts.poller.listed(event_id) == event_id
    name = json.loads(document["body"])["Events"][0]["Resources"][0]
    assert name == ("_web-vm1" if version == "2017-03-01" else "web-vm1"), "forwarded as received"


@pytest.mark.parametrize("fault", [fault for fault, stage in STAGES.items() if stage == DOCUMENT])
def test_an_odd_document_is_forwarded_as_received_and_its_event_is_listed(parts: Parts, fault: str) -> None:
    event_id = parts.announce()
    parts.fault(fault)
    parts.poller.step()
    [document] = parts.waiting(wire.DOCUMENT)
    assert json.loads(document["body"], strict=False)["Events"][0]["EventId"] == event_id
    assert parts.poller.listed(event_id) == event_id
    assert parts.poller.last_poll_at is not None


def test_an_order_is_posted_with_the_version_that_the_poll_found(parts: Parts) -> None:
    event_id = parts.announce()
    parts.fault("lagging-cloud", seconds=60, newest="2017-08-01")
    parts.poller.step()
    with parts.requests() as paths:
        assert parts.orders_imds.start(event_id).status == 200
        # One that is malformed is not repeated.
        assert parts.orders_imds.start("no GUID").status == 400
    assert versions_of(paths) == ["2017-08-01"] * 2


@pytest.mark.parametrize(
    ("body", "next_version"),
    [
        (naming("2021-01-01", "2018-01-01", "2019-01-01", "2017-08-01"), "2019-01-01"),
        # As Azure has been seen to answer: versions of another service.
        (naming("2020-10-01", "2020-09-01", "2020-07-15"), "2020-07-01"),
        *((body, "2020-07-01") for body in (b"", b"[]", b"\xff", b'{"newest-versions":7}', naming(7), b"[" * 9999)),
    ],
)
def test_a_named_version_comes_before_the_next_known_one(clock: SteppedClock, body: bytes, next_version: str) -> None:
    versions = Versions(EVENTS_VERSIONS, clock)
    assert versions.refused("2024-07-09", body)
    assert versions.current == next_version


def test_without_a_usable_name_the_next_known_one_is_tried_and_at_last_a_strange_one(clock: SteppedClock) -> None:
    versions = Versions(("2020-07-01", "2019-08-01"), clock)
    assert versions.refused("2020-07-01", naming("2018-10-01", "no version", "1999-01-01"))
    assert versions.current == "2019-08-01"
    assert versions.refused("2019-08-01", naming("2018-10-01"))
    assert versions.current == "2018-10-01"
    assert not versions.refused("2018-10-01", naming("2018-10-01"))
    assert versions.current == "2020-07-01", "and from the beginning"


NO_HEADER = b'{ "error": "Bad request: . Required metadata header not specified" }'
NOT_FOUND = b'<?xml version="1.0"?><html><body>Not Found</body></html>'
UNKNOWN_VERSION = b'{ "error": "Not found. Invalid version requested" }'
ABOUT = [("GET", 400, ODD), ("GET", 400, b""), ("POST", 400, ODD), ("GET", 404, ODD), ("GET", 404, UNKNOWN_VERSION)]
ABOUT.append(("POST", 404, naming("2019-08-01")))
NOT_ABOUT = [("GET", 400, NO_HEADER), ("POST", 400, b""), ("GET", 404, b""), ("GET", 404, NOT_FOUND)]
NOT_ABOUT += [("GET", 403, ODD), ("GET", 503, ODD)]


def test_only_an_answer_about_the_version_is_a_reason_to_step_down() -> None:
    assert [answer for answer in ABOUT if not is_about_version(*answer)] == []
    assert [answer for answer in NOT_ABOUT if is_about_version(*answer)] == []


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b'{"apiVersions":7}', b'{"apiVersions":[7, "x"]}', b"[" * 9999])
def test_a_list_of_versions_that_cannot_be_read_names_none(body: bytes) -> None:
    assert newest_of(body) == ""


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize("names", [True, False])
def test_a_cloud_that_lags_is_understood_by_polls_and_approvals(parts: Parts, status: int, names: bool) -> None:
    # With 404 and no names, only the list of versions states the reason.
    # The first post comes before the first poll.
    event_id = parts.announce()
    parts.fault("lagging-cloud", seconds=60, newest="2019-08-01", names=names, status=status)
    assert parts.orders_imds.start(event_id).status == 200
    parts.poller.step()
    assert parts.versions.current == "2019-08-01"
    assert parts.poller.listed(event_id) == event_id


def test_a_plain_404_is_asked_again_with_the_same_version(parts: Parts) -> None:
    parts.fault("status-404", count=3)
    with parts.requests() as paths:
        parts.polls(4)
    assert len([path for path in paths if path.endswith("api-version=2024-07-09")]) == 4
    assert len([path for path in paths if path.endswith("/metadata/versions")]) == 1, "not with every poll"
    assert parts.versions.current == "2024-07-09" and LIST_VERSIONS_SECONDS >= 60


def test_after_a_day_the_newest_is_tried_and_then_the_one_that_worked(clock: SteppedClock) -> None:
    versions = Versions(EVENTS_VERSIONS, clock)
    for version in EVENTS_VERSIONS[:4]:
        # A refusal of a version that was left already changes nothing.
        assert versions.refused(version, ODD) and versions.refused(version, ODD)
    clock.advance(RETRY_NEWEST_SECONDS - 1)
    assert versions.current == "2019-01-01"
    clock.advance(1)
    assert versions.current == "2024-07-09"
    versions.refused("2024-07-09", ODD)
    assert versions.current == "2019-01-01"


def test_a_restart_tries_the_newest_and_remembers_where_it_was(parts: Parts) -> None:
    parts.fault("lagging-cloud", seconds=60, newest="2017-11-01")
    parts.poller.step()
    assert parts.spool.get("events_version") == "2017-11-01"
    parts.simulator.clear_faults()
    # This one names nothing, so only the memory leads there at once.
    parts.fault("lagging-cloud", seconds=60, newest="2017-11-01", names=False)
    parts.restart()
    with parts.requests() as paths:
        parts.poller.step()
    assert versions_of(paths) == ["2024-07-09", "2017-11-01"]


def test_after_every_version_is_refused_the_newest_is_tried_again(parts: Parts) -> None:
    parts.fault("lagging-cloud", seconds=60, newest="2016-01-01")
    with parts.requests() as paths, pytest.raises(MetadataUnavailable) as caught:
        parts.imds.scheduled_events()
    assert caught.value.status == 400
    assert versions_of(paths) == list(EVENTS_VERSIONS)
    assert parts.versions.current == "2024-07-09"
