"""Decoders of bytes from outside: whatever arrives, each returns a value or raises its one error type."""

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import pytest
from drydock_agent.metadata_service import document, versions
from drydock_agent.redis import login, notification
from drydock_agent.redis.login import CacheConnectionLost
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ParseError

from fleet.api.calls import SmallJson
from fleet.api.problems import Problem as ApiProblem
from fleet.domain.caches.notifications import read_notification
from fleet.domain.intake import read_document
from fleet.domain.machines import attestation
from fleet.domain.machines.inventory import read_inventory, read_json
from fleet.domain.reasons import Refused, read_reason
from fleet.gateway.decoder import read_batch
from fleet.gateway.http import Problem
from fleet.gateway.limits import GatewayLimits
from fleet.gateway.waiters import WakeUps
from fleet.notifications.hooks import pressed

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


# Each decoder with the names that its documents use, and its one error type.
DECODERS: dict[str, tuple[Callable[[bytes], Any], str, tuple[type[Exception], ...]]] = {
    "wake-up": (WakeUps(lambda message: None).receive, "orders revoked entries", ()),
    "reports": (
        lambda raw: read_batch(raw, received_at=NOW, limits=GatewayLimits()),
        "spool agent_version sent_at protocol reports seq kind at data",
        (Problem,),
    ),
    "api": (lambda raw: SmallJson().parse(BytesIO(raw), ""), "comment", (ParseError, ApiProblem)),
    "slack": (pressed, "payload actions", ()),
    "document": (read_document, "DocumentIncarnation Events EventId EventStatus Resources NotBefore", ()),
    "inventory": (lambda raw: read_inventory(read_json(raw)), "id name type properties vmId zones", (Refused,)),
    "attested": (attested, "nonce", (Refused,)),
    "cache line": (read_notification, "NotificationType", ()),
    "reason": (lambda raw: read_reason(raw.decode("latin-1")), "code", ()),
    "agent: document": (document.read, "DocumentIncarnation Events EventId EventStatus", ()),
    "agent: versions": (versions.newest_of, "newest-versions apiVersions error", ()),
    "agent: cache line": (notification.read, "NotificationType", ()),
    "agent: token": (login._token, "access_token expires_on", (CacheConnectionLost,)),
}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
EXTREMES = (b"", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"\xef\xbb\xbf{}", b"\x00", b"\xff\xfe[")


@st.composite
def bodies(draw: st.DrawFn, names: str) -> bytes:
    """Bytes at random, or JSON with the names that a decoder looks for and values of every kind."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=200))
    inner = st.dictionaries(st.sampled_from(names.split()), values, max_size=6)
    whole = inner | st.dictionaries(st.sampled_from(names.split()), values | inner | st.lists(inner, max_size=3))
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
