"""Reading what the metadata service answers: documented forms, odd ones, and anything at all."""

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from drydock_agent import wire
from drydock_agent.backend.client import BackendClient, RefusedByBackend
from drydock_agent.clock import Clock, ServerClock, to_text
from drydock_agent.connections import Answer, NoAnswer
from drydock_agent.metadata_service import document, versions
from drydock_agent.metadata_service.client import Imds, MetadataUnavailable
from drydock_agent.redis import login, notification
from drydock_agent.redis.login import CacheConnectionLost
from fido2.webauthn import AuthenticationResponse, RegistrationResponse
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ParseError

from fleet.accounts import provider, verification
from fleet.api.calls import SmallJson
from fleet.api.problems import Problem as ApiProblem
from fleet.domain.addresses import address_of
from fleet.domain.caches.notifications import read_notification
from fleet.domain.intake import MOST_BYTES, UNUSABLE, read_document, read_integer, read_time
from fleet.domain.machines import attestation, pkcs7
from fleet.domain.machines.inventory import read_inventory, read_json
from fleet.domain.reasons import Refused, read_reason
from fleet.domain.sign_on import ClaimFault, identity_of
from fleet.domain.texts import parse_json
from fleet.domain.trace import trace_of
from fleet.gateway import agents
from fleet.gateway.decoder import read_batch
from fleet.gateway.enrolment import read_enrolment
from fleet.gateway.http import Problem, Request
from fleet.gateway.readers import metadata_state
from fleet.gateway.signed_calls import SignedCalls
from fleet.gateway.waiters import WakeUps
from fleet.notifications.hooks import inside, pressed, text_inside, time_of

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


# Decoders of bytes from outside: whatever arrives, each returns a value or raises its one error type.

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def attested(raw: bytes) -> Any:
    return attestation.verify(
        base64.b64encode(raw).decode(),
        [],
        trust=attestation.trust_of([]),
        now=NOW,
        judge_nonce=lambda nonce: None,
        subscriptions=None,
    )


def text(raw: bytes) -> str:
    return raw.decode("latin-1")


def mapping(raw: bytes) -> dict[str, Any]:
    """The JSON object in these bytes, or an empty one."""
    with suppress(ValueError):
        if isinstance(content := parse_json(raw), dict):
            return content
    return {}


def request(*headers: tuple[bytes, bytes], query: bytes = b"") -> Request:
    scope = {"method": "POST", "path": "/agent/v1/reports", "query_string": query, "headers": headers}
    return Request(scope, None)  # type: ignore[arg-type]


def long_poll(raw: bytes) -> None:
    query = request(query=raw).query
    for value in query.values():
        metadata_state(value)
        for read in (lambda it: agents._seconds(it, 60), lambda it: agents._moment("sent_at", it)):
            with suppress(Problem):
                read(value)
    agents._standing(1, {"spool": "s", **dict.fromkeys(("acknowledged", "document"), next(iter(query.values()), ""))})


def id_token(raw: bytes) -> None:
    provider.verified(f"{base64.urlsafe_b64encode(raw).decode()}.e30.AAAA", now=NOW, nonce=None)


def webhook(raw: bytes) -> None:
    said = parse_json(raw)
    for name in ("event", "event_type", "incident_key", "id"):
        text_inside(said, "event", name)
        time_of(inside(said, "event", name))


def backend(raw: bytes) -> None:
    """Let each call of an agent get this answer; an object has a time, by which the agent knows its backend."""
    if content := mapping(raw):
        raw = json.dumps({"server_time": to_text(NOW), **content}).encode()
    client, clock = BackendClient.__new__(BackendClient), Clock()
    client._url, client._clock, client._server_clock = "http://127.0.0.1", clock, ServerClock(clock)
    asked = wire.EnrolRequest(join_token="", machine_id="m")
    reports = wire.ReportsRequest(spool="s", agent_version="1", sent_at=NOW, reports=[])
    for status in (200, 401, 429):
        answer = Answer(status, {"Retry-After": text(raw[:60])}, raw)
        client._connections = SimpleNamespace(send=lambda *_, answer=answer, **__: answer)  # type: ignore[assignment]
        for call in (
            client.nonce,
            lambda: client.enrol(asked),
            lambda: client.check_enrolment(asked),
            lambda: client.report("", reports, []),
            lambda: client.orders("", wait=0, held=[]),
        ):
            try:
                found = call()
                assert abs(getattr(found, "acknowledged", 0)) < 2**63
            except RefusedByBackend as error:
                assert error.retry_after is None or 0 <= error.retry_after <= 3600
            except NoAnswer:
                pass
            client._server_clock.now()


def metadata(raw: bytes) -> None:
    client = Imds("http://127.0.0.1")
    answer = Answer(200, {}, raw)
    client._instance = lambda: (answer, "2021-02-01", True)  # type: ignore[method-assign]
    client._get = lambda *_: (answer, "2021-02-01")  # type: ignore[method-assign, assignment]
    for call in (client.instance, lambda: client.attested("1"), client.scheduled_events):
        with suppress(MetadataUnavailable):
            call()


# Each decoder with the names that its documents use, and its one error type.
DECODERS: dict[str, tuple[Callable[[bytes], Any], str, tuple[type[Exception], ...]]] = {
    "wake-up": (WakeUps(lambda message: None).receive, "orders revoked entries", ()),
    "reports": (
        lambda raw: read_batch(raw, received_at=NOW),
        "spool agent_version sent_at protocol reports seq kind at data",
        (Problem,),
    ),
    "enrolment": (read_enrolment, "machine_id join_token attested intermediates compute keys", (Problem,)),
    "long poll": (long_poll, "wait", ()),
    "signature of a call": (
        lambda raw: SignedCalls().read(request((b"authorization", b"Drydock " + raw)), NOW),
        "",
        (Problem,),
    ),
    "forwarded address": (lambda raw: address_of("127.0.0.1", text(raw), [ip_network("127.0.0.0/8")]), "", ()),
    "trace": (lambda raw: trace_of(text(raw), text(raw)), "", ()),
    "id token": (id_token, "alg kid typ crit", (provider.ProviderError,)),
    "claims": (
        lambda raw: identity_of(mapping(raw), issuer="https://x", claim="groups.a"),
        "sub groups preferred_username _claim_names hasgroups",
        (ClaimFault,),
    ),
    "passkey": (
        lambda raw: [form.from_dict(parse_json(raw)) for form in (AuthenticationResponse, RegistrationResponse)],
        "id rawId response type clientDataJSON authenticatorData signature userHandle attestationObject",
        verification.WRONG,
    ),
    "pagerduty": (webhook, "event event_type occurred_at id", (ValueError,)),
    "api": (lambda raw: SmallJson().parse(BytesIO(raw), ""), "comment", (ParseError, ApiProblem)),
    "slack": (pressed, "payload actions", ()),
    "document": (read_document, "DocumentIncarnation Events EventId EventStatus Resources NotBefore", ()),
    "inventory": (lambda raw: read_inventory(read_json(raw)), "id name type properties vmId zones", (Refused,)),
    "attested": (attested, "nonce", (Refused,)),
    "intermediate": (pkcs7.certificate, "", (Refused,)),
    "cache line": (read_notification, "NotificationType", ()),
    "reason": (lambda raw: read_reason(raw.decode("latin-1")), "code", ()),
    "agent: document": (document.read, "DocumentIncarnation Events EventId EventStatus", ()),
    "agent: backend": (
        backend,
        "acknowledged refused orders key_words wanted renew_in prepare retry_after admission server_time key generation"
        " credential signing_keys seq id expires_at issued_at detail errors type acknowledged_before",
        (),
    ),
    "agent: metadata": (metadata, "compute network error interface ipv4 ipAddress signature vmId", ()),
    "agent: versions": (versions.newest_of, "newest-versions apiVersions error", ()),
    "agent: cache line": (notification.read, "NotificationType", ()),
    "agent: token": (login._token, "access_token expires_on", (CacheConnectionLost,)),
}
# Words and times that lead further into a decoder.
KNOWN = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-03-01T12:00:00Z", "pending", "RS256")
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    plain | st.just(10**400) | st.sampled_from(KNOWN),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
EXTREMES = (b"", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"\xef\xbb\xbf{}", b"\x00", b"\xff\xfe[")
EXTREMES += (
    json.dumps({"admission": "pending", "retry_after": 10**400, "acknowledged": 2**70, "renew_in": 10**400}).encode(),
    b'{"admission": "pending", "retry_after": NaN, "renew_in": NaN, "acknowledged": 1}',
    b'{"server_time": "0001-01-01T00:00:00+14:00"}',
    b'{"server_time": "9999-12-31T23:59:59Z", "acknowledged": 1}',
)


@st.composite
def bodies(draw: st.DrawFn, names: str) -> bytes:
    """Bytes at random, or JSON with the names that a decoder looks for and values of every kind."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=200))
    named = st.sampled_from(names.split() or [""])
    inner = st.dictionaries(named, values, max_size=6)
    whole = inner | st.dictionaries(named, values | inner | st.lists(inner, max_size=3))
    return json.dumps(draw(whole)).encode()


@pytest.mark.parametrize("name", DECODERS)
@given(st.data())
def test_a_decoder_returns_or_raises_its_one_error_type(name: str, data: st.DataObject) -> None:
    decode, names, errors = DECODERS[name]
    with suppress(*errors):
        decode(data.draw(bodies(names)))


@pytest.mark.parametrize("raw", EXTREMES, ids=range(len(EXTREMES)))
@pytest.mark.parametrize("name", DECODERS)
def test_extreme_bytes_do_no_harm(name: str, raw: bytes) -> None:
    decode, _, errors = DECODERS[name]
    with suppress(*errors):
        decode(raw)
