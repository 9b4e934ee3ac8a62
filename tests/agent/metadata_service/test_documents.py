"""Document reader: it accepts any answer of the metadata service without failing."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from typing import Any

import pytest
from drydock_agent import wire
from drydock_agent.metadata_service.document import read, to_data
from hypothesis import example, given
from hypothesis import strategies as st

FIRST = "4CAEA225-A741-474D-A72E-428C86FCD853"
EVENT = {"EventId": FIRST, "EventStatus": "Scheduled", "Resources": ["vm1"]}
OTHER = {"EventId": "D3D9DFEC-1DCA-4B49-97AA-780E02F45DFE", "EventStatus": "Started", "Resources": ["vm2"]}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def document(**fields: Any) -> bytes:
    return json.dumps({"DocumentIncarnation": 2, "Events": [EVENT], **fields}).encode()


@given(st.binary())
@example(b"[" * 100_000)
@example(b'{"Events":' * 50_000)
@example(b"\xef\xbb\xbf{}")
@example(b'{"DocumentIncarnation":' + b"9" * 5000 + b',"Events":[]}')
def test_no_bytes_make_the_reader_raise(body: bytes) -> None:
    found = read(body)
    assert (found.body, found.hash) == (body, sha256(body).hexdigest())
    assert found.readable or (found.incarnation is None and found.listed == {})
    json.dumps(to_data(found, api_version="2020-07-01"))


@given(json_values, st.lists(st.fixed_dictionaries({}, optional={"EventId": json_values}) | json_values))
def test_no_document_makes_the_reader_raise(incarnation: object, events: list[object]) -> None:
    body = json.dumps({"DocumentIncarnation": incarnation, "Events": events}).encode()
    found = read(body)
    assert found.readable
    assert found.incarnation is None or isinstance(found.incarnation, int)
    assert all(key == spelled.lower() for key, spelled in found.listed.items())


@given(st.binary(max_size=2000) | st.text(max_size=500).map(str.encode))
def test_the_body_is_forwarded_as_it_was_received(body: bytes) -> None:
    data = to_data(read(body), api_version="2020-07-01")
    text = data["body"]
    assert (base64.b64decode(text) if data["encoding"] == "base64" else text.encode()) == body
    assert data["hash"] == sha256(body).hexdigest()


def test_text_that_json_blows_up_still_fits_into_a_request() -> None:
    body = b"\x01" * wire.MAX_DOCUMENT_BYTES
    data = to_data(read(body), api_version="")
    assert data["encoding"] == "base64"
    assert len(json.dumps(data)) < wire.MAX_REQUEST_BYTES


def test_ids_are_found_without_case_and_kept_as_spelled() -> None:
    assert read(document()).listed == {FIRST.lower(): FIRST}


@pytest.mark.parametrize(
    ("stated", "understood"),
    [
        (208, 208),
        ("208", 208),
        (-1, -1),
        (True, None),
        (None, None),
        (1.5, None),
        ("x", None),
        (2**63, None),
        ("²", None),
    ],
)
def test_the_incarnation_is_a_number_or_unknown(stated: object, understood: int | None) -> None:
    assert read(document(DocumentIncarnation=stated)).incarnation == understood


def test_a_raw_newline_in_a_string_is_accepted() -> None:
    body = b'{"DocumentIncarnation":1,"Events":[{"EventId":"A","Description":"two\nlines"}]}'
    assert read(body).listed == {"a": "A"}


def test_the_order_of_keys_and_events_makes_no_difference() -> None:
    one = json.dumps({"DocumentIncarnation": 2, "Events": [EVENT, OTHER]}).encode()
    turned = dict(reversed(EVENT.items()))
    two = json.dumps({"Events": [OTHER, turned], "DocumentIncarnation": 2}, indent=1).encode()
    assert read(one).content_key == read(two).content_key
    assert read(one).hash != read(two).hash


def test_content_and_incarnation_make_a_difference() -> None:
    bodies = [
        document(),
        document(DocumentIncarnation=3),
        document(Events=[{**EVENT, "EventStatus": "Started"}]),
        document(Events=[]),
        document(Events=[EVENT, EVENT]),
        document(Unknown=1),
    ]
    assert len({read(body).content_key for body in bodies}) == len(bodies)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"Events":{}}', b"null", b"\xff\xfe", b'{"error":"x"}'])
def test_what_is_no_document_is_marked_so(body: bytes) -> None:
    assert not read(body).readable
