"""Maintenance lines of a cache: the parser reads any order and spelling and guesses nothing; hooks get the values."""

import pytest
from drydock_agent.redis.notification import Notification, read
from hypothesis import example, given
from hypothesis import strategies as st

FULL = (
    b"NotificationType|NodeMaintenanceEnded|StartTimeInUTC|2020-10-14T16:27:42|IsReplica|True|IPAddress|52.158.249.185"
    b"|SSLPort|15001|NonSSLPort|13001"
)
NAMES = ["NotificationType", "StartTimeInUTC", "StartTimeUtc", "IsReplica", "IPAddress", "IpAddress", "SSLPort", "New"]
VALUES = ["", " ", "NodeMaintenanceStart", "True", "no", "15000", "0", "70000", "²", "2021-03-02T23:26", "::1", "x"]
PAIRS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (FULL, Notification("NodeMaintenanceEnded", "2020-10-14T16:27:42", "1", "52.158.249.185", "15001", "13001")),
        *((raw, Notification()) for raw in (b"", b"|||", b"NotificationType", b"\xff\xfe|\x00")),
        (b"||NotificationType|NodeMaintenanceStart", Notification("NodeMaintenanceStart")),
        (b"NotificationType|NodeMaintenanceFailover", Notification("NodeMaintenanceFailoverComplete")),
        (
            b"NotificationType|NodeMaintenanceStart|IPAddress|SSLPort|15000|IsReplica",
            Notification("NodeMaintenanceStart", ssl_port="15000"),
        ),
        ('\ufeff"NotificationType|NodeMaintenanceStart"\r\n\x00'.encode(), Notification("NodeMaintenanceStart")),
        (b"notificationtype | nodemaintenancestart", Notification("NodeMaintenanceStart")),
        (b"NotificationType|SomethingNew|IsReplica|", Notification("SomethingNew")),
        (b"IsReplica|maybe|SSLPort|0|NonSSLPort|65536|StartTimeInUTC|soon", Notification()),
        (b"SSLPort|15000|SSLPort|x", Notification(ssl_port="15000")),
        (b"SSLPort|15000|SSLPort|15001", Notification(ssl_port="15001")),
        (b"IPAddress|2001:db8::1", Notification(ip_address="2001:db8::1")),
        (b"StartTimeUtc|2021-03-02T23:26:57.1234567Z", Notification(start_time="2021-03-02T23:26:57.1234567Z")),
        (b"IsReplica|false|SSLPort", Notification(is_replica="0")),
    ],
)
def test_what_is_not_stated_or_cannot_be_read_is_empty(raw: bytes, expected: Notification) -> None:
    assert read(raw) == expected


LINES = PAIRS.map(lambda pairs: "|".join(word for pair in pairs for word in pair)) | st.text()


@given(LINES.map(lambda text: text.encode("utf-8", "replace")) | st.binary())
@example(b"SSLPort|" + b"9" * 5000)
def test_no_line_raises_and_nothing_is_guessed(raw: bytes) -> None:
    said = read(raw)
    assert said.is_replica in ("", "0", "1")
    assert all(port == "" or 0 < int(port) < 65536 for port in (said.ssl_port, said.non_ssl_port))
