"""The packets of endpoint discovery, and when it begins."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from drydock_agent.metadata_service.discovery import REQUEST_DELAYS_SECONDS, endpoint_in, request
from drydock_agent.metadata_service.endpoint import needs_discovery
from drydock_agent.settings.load import ConfigError, Settings, load
from drydock_agent.state_folder import StateFolder
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.agents import SteppedClock

XID, MAC = b"\x01\x02\x03\x04", b"\x00\x0d\x3a\x11\x22\x33"
WIRE_SERVER = b"\xf5\x04\xa8\x3f\x81\x10"


def answer(
    options: bytes, *, op: int = 2, xid: bytes = XID, mac: bytes = MAC, cookie: bytes = b"\x63\x82\x53\x63"
) -> bytes:
    return struct.pack("!BBBB4s", op, 1, 6, 0, xid) + b"\0" * 20 + mac.ljust(16, b"\0") + b"\0" * 192 + cookie + options


def configured(**more: str) -> Settings:
    return load({"DRYDOCK_FLEET_URL": "https://drydock.example", **more})


def test_it_waits_as_documented() -> None:
    assert REQUEST_DELAYS_SECONDS == (0, 10, 30, 60, 60)


def test_the_request_is_a_broadcast_that_asks_for_the_option_and_takes_no_lease() -> None:
    packet = request(XID, MAC)
    assert len(packet) == 300
    assert packet[:8] == b"\x01\x01\x06\x00" + XID
    assert packet[10:12] == b"\x80\x00", "the answer is to be a broadcast too"
    assert packet[28:34] == MAC
    assert packet[236:247] == b"\x63\x82\x53\x63" + b"\x35\x01\x01" + b"\x37\x01\xf5" + b"\xff"


@pytest.mark.parametrize("options", [WIRE_SERVER + b"\xff", WIRE_SERVER, b"\0\0\x35\x01\x02" + WIRE_SERVER + b"\xff\0"])
def test_the_address_is_the_four_bytes_of_option_245(options: bytes) -> None:
    assert endpoint_in(answer(options), XID, MAC) == "168.63.129.16"


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        answer(b""),
        answer(WIRE_SERVER)[:200],
        answer(WIRE_SERVER, op=1),
        answer(WIRE_SERVER, xid=b"\0\0\0\0"),
        answer(WIRE_SERVER, mac=b"\0" * 6),
        answer(WIRE_SERVER, cookie=b"\0\0\0\0"),
        answer(b"\xff" + WIRE_SERVER),
        answer(b"\xf5\x03\x01\x02\x03\xff"),
        answer(b"\xf5\x04\x01\x02"),
        answer(b"\xf5"),
        answer(b"\x35\x01\x06" + WIRE_SERVER),
        answer(b"\xf5\x04\x00\x00\x00\x00"),
        answer(b"\xf5\x04\x7f\x00\x00\x01"),
        answer(b"\xf5\x04\xff\xff\xff\xff"),
        answer(b"\xf5\x04\xe0\x00\x00\x01"),
    ],
)
def test_what_is_no_usable_answer_to_this_request_is_none(packet: bytes) -> None:
    assert endpoint_in(packet, XID, MAC) is None


@given(st.binary(max_size=400))
def test_no_options_make_the_reader_raise(options: bytes) -> None:
    endpoint_in(answer(options), XID, MAC)
    endpoint_in(options, XID, MAC)


def test_it_begins_only_when_asked_for_or_when_there_is_no_way_to_the_usual_address() -> None:
    elsewhere = {"DRYDOCK_IMDS_URL": "http://127.0.0.1:8169"}
    assert not needs_discovery(configured(**elsewhere)), "an address that was configured is the one"
    assert needs_discovery(configured(**elsewhere, DRYDOCK_DISCOVER_ENDPOINT="always"))
    assert not needs_discovery(configured(DRYDOCK_DISCOVER_ENDPOINT="never"))


def test_a_wrong_word_is_one_sentence() -> None:
    with pytest.raises(
        ConfigError, match=r"^DRYDOCK_DISCOVER_ENDPOINT must be one of auto, always, never, not 'yes'\.$"
    ):
        configured(DRYDOCK_DISCOVER_ENDPOINT="yes")


def test_the_address_is_kept_and_nonsense_in_its_file_is_none(tmp_path: Path, clock: SteppedClock) -> None:
    state = StateFolder(tmp_path, clock)
    assert state.endpoint() == ""
    state.keep_endpoint("168.63.129.16")
    assert StateFolder(tmp_path, clock).endpoint() == "168.63.129.16"
    (tmp_path / "endpoint").write_bytes(b"\xff nonsense")
    assert state.endpoint() == ""
