"""Cache lines: the reader never raises or guesses, and flags odd values."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.caches.notifications import ParsedNotification, read_notification
from tests.words import sentences

WHOLE = (
    "NotificationType|NodeMaintenanceScheduled|IsReplica|False|IPAddress|52.158.249.185|SSLPort|15000"
    "|NonSSLPort|13000|StartTimeInUTC|2021-10-20T16:35:57"
)
READ = ParsedNotification(
    type="NodeMaintenanceScheduled",
    start_time=datetime(2021, 10, 20, 16, 35, 57, tzinfo=UTC),
    is_replica=False,
    ip_address="52.158.249.185",
    ssl_port=15000,
    non_ssl_port=13000,
)


def test_a_whole_line_is_read() -> None:
    assert read_notification(WHOLE) == READ
    assert read_notification(WHOLE.encode()) == READ
    assert read_notification(f'\ufeff"{WHOLE}"\r\n\x00') == READ


def test_leading_bars_white_space_and_case_make_no_difference() -> None:
    assert read_notification("|||" + WHOLE.replace("|", " | ")) == READ
    shouted = WHOLE.replace("NotificationType", "NOTIFICATIONTYPE").replace("False", "FALSE")
    assert read_notification(shouted.replace("NodeMaintenanceScheduled", "nodemaintenancescheduled")) == READ


pairs = st.permutations([WHOLE.split("|")[at : at + 2] for at in range(0, 12, 2)])


@given(pairs)
def test_the_order_of_the_pairs_makes_no_difference(found: list[list[str]]) -> None:
    assert read_notification("|".join(token for pair in found for token in pair)) == READ


@given(pairs, st.sets(st.integers(0, 5)))
def test_a_missing_pair_is_not_stated_and_the_others_are(found: list[list[str]], gone: set[int]) -> None:
    kept = [pair for number, pair in enumerate(found) if number not in gone]
    read = read_notification("|".join(token for pair in kept for token in pair))
    keys = {pair[0] for pair in kept}
    assert (read.is_replica is False) == ("IsReplica" in keys)
    assert (read.ssl_port == 15000) == ("SSLPort" in keys)
    assert (read.start_time is not None) == ("StartTimeInUTC" in keys)
    assert (read.ip_address is not None) == ("IPAddress" in keys)


AT = datetime(2021, 3, 2, 23, 26, 57, tzinfo=UTC)


@pytest.mark.parametrize(
    ("key", "name", "text", "expected"),
    [
        *(("StartTimeInUTC", "start_time", *pair) for pair in (
            ("2021-03-02T23:26:57", AT), ("2021-03-02T23:26:57Z", AT), ("2021-03-03T00:26:57+01:00", AT),
            ("2021-03-02T18:26:57-05:00", AT), ("2021-03-02T23:26:57.1234567", AT.replace(microsecond=123456)),
            ("2021-03-02T23:26:57.5Z", AT.replace(microsecond=500000)), ("0001-01-01T00:00:00+23:59", None),
            ("2021-13-02T23:26:57", None), ("2021-03-02T24:26:57", None), ("02/03/2021 23:26:57", None),
            ("20211020", None), ("٢٠٢١-03-02T23:26:57", None), ("soon", None),
        )),
        *((key, "start_time", "2021-03-02T23:26:57", AT) for key in (
            "StartTimeInUtc", "StartTimeUtc", "starttimeutc", "STARTTIMEINUTC",
        )),
        *(("SSLPort", "ssl_port", text, None) for text in (
            "0", "65536", "-1", "15000.0", "0x10", "\uff11\uff15", "9" * 5000, "many",
        )),
        *(("IsReplica", "is_replica", text, None) for text in ("", " ", "yes", "1", "0", "no", "null")),
        *(("IPAddress", "ip_address", *pair) for pair in (
            ("::1", "::1"), ("[2603:1030::AB]", "2603:1030::ab"), ("", None), ("1.2.3", None),
        )),
    ],
)  # fmt: skip
def test_a_value_is_read_as_meant_or_flagged_and_never_guessed(
    key: str, name: str, text: str, expected: object
) -> None:
    read = read_notification(f"NotificationType|NodeMaintenanceStart|{key}|{text}|NonSSLPort|13000")
    assert (getattr(read, name), read.non_ssl_port) == (expected, 13000)
    is_flagged = expected is None and bool(text.strip())
    assert [f"{key} cannot be read" in flag for flag in sentences(read.flags)] == [True] * is_flagged


def test_the_last_valid_duplicate_wins() -> None:
    read = read_notification("NotificationType|NodeMaintenanceStart|SSLPort|15000|SSLPort|15001|SSLPort|none")
    assert read.ssl_port == 15001
    assert "SSLPort is stated more than once" in sentences(read.flags)


def test_a_key_without_a_value_ends_the_message_or_gives_way_to_the_next_key() -> None:
    ended = read_notification("NotificationType|NodeMaintenanceStart|SSLPort")
    assert (ended.type, ended.ssl_port, sentences(ended.flags)) == (
        "NodeMaintenanceStart",
        None,
        ["“SSLPort” has no value"],
    )
    skipped = read_notification("NotificationType|NodeMaintenanceStart|IsReplica|SSLPort|15001")
    assert (skipped.is_replica, skipped.ssl_port) == (None, 15001)
    assert sentences(skipped.flags) == ["“IsReplica” has no value"]


def test_the_spelling_that_is_sent_and_unknown_types_and_keys_are_kept() -> None:
    assert read_notification("NotificationType|NodeMaintenanceFailover").type == "NodeMaintenanceFailoverComplete"
    strange = read_notification("NotificationType|NodeMaintenancePaused|Zone|2|SSLPort|15001")
    assert (strange.type, strange.kind, strange.ssl_port) == ("NodeMaintenancePaused", None, 15001)
    assert sentences(strange.flags) == ["unknown key “Zone”", "unknown type"]


@pytest.mark.parametrize("raw", ["", "|", "||||", b"\xff\xfe", b"", "x" * 100_000, "|" * 100_000, "hello", "\x00"])
def test_junk_states_nothing_and_is_flagged(raw: str | bytes) -> None:
    read = read_notification(raw)
    assert read == ParsedNotification(flags=read.flags)
    assert read.flags


PIECES = [
    *("NotificationType", "StartTimeInUTC", "StartTimeUtc", "IsReplica", "IPAddress", "SSLPort", "NonSSLPort", "Zone"),
    *("NodeMaintenanceStart", "NodeMaintenanceEnded", "True", "False", "15000", "65536", "-1", "::1", "1.2.3.4"),
    *("2021-10-20T16:35:57", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+14:00", "T", "Z", "٣", "\x00", "\ud800"),
    *("|", "||", " ", "\n", "\t", "", "é", "\U0001f600", "9" * 400, "%s", "\\", "'", "\ufeff", "[", "]"),
]


def holds(read: ParsedNotification) -> None:
    """What is true of whatever was read."""
    assert read.is_replica in (None, True, False)
    for port in (read.ssl_port, read.non_ssl_port):
        assert port is None or 1 <= port <= 65535
    assert read.start_time is None or read.start_time.utcoffset() is not None
    assert read.type is None or read.type.strip() == read.type != ""
    assert len(read.flags) <= 21


@given(st.one_of(st.text(), st.binary(), st.lists(st.sampled_from(PIECES)).map("|".join)))
def test_whatever_comes_is_read_without_an_exception(raw: str | bytes) -> None:
    holds(read_notification(raw))
    assert read_notification(raw) == read_notification(raw)


@given(st.text(alphabet=st.characters(exclude_characters="|")), st.text(alphabet=st.characters(exclude_characters="|")))
def test_an_unknown_pair_in_front_changes_nothing_but_the_flags(key: str, value: str) -> None:
    known = {"notificationtype", "starttimeinutc", "starttimeutc", "isreplica", "ipaddress", "sslport", "nonsslport"}
    if not key.strip() or key.strip().lower() in known or value.strip().lower() in known:
        return
    read = read_notification(f"{key}|{value}|{WHOLE}")
    assert (read.type, read.start_time, read.is_replica, read.ssl_port) == (
        READ.type,
        READ.start_time,
        READ.is_replica,
        READ.ssl_port,
    )
