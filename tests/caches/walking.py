"""A cache's story, told by machines: lines heard, coverage changed. Times are those of the documented example."""

import base64
from datetime import UTC, datetime

from drydock_agent import wire

from fleet.models import Cache, Maintenance
from tests.factories import Fleet

HOST = "orders.redis.cache.windows.net"


def clock(text: str) -> datetime:
    return datetime.fromisoformat(f"2021-10-20T{text}").replace(tzinfo=UTC)


def line(kind: str, *, replica: str = "False", port: int = 15000, start: str = "") -> str:
    """One line as the channel words it; `start` is a time of the day."""
    whole = (
        f"NotificationType|{kind}|IsReplica|{replica}|IPAddress|52.158.249.185|SSLPort|{port}|NonSSLPort|{port - 2000}"
    )
    return f"{whole}|StartTimeInUTC|2021-10-20T{start}" if start else whole


# When each line of the documented sequence is received, and what it says. 15001 is the promoted partner.
EXAMPLE: list[tuple[str, str]] = [
    ("16:21:39", line("NodeMaintenanceScheduled", start="16:35:57")),
    ("16:34:26", line("NodeMaintenanceStarting", start="16:34:46")),
    ("16:34:46", line("NodeMaintenanceStart")),
    ("16:34:56", line("NodeMaintenanceFailoverComplete", port=15001)),
    ("16:37:48", line("NodeMaintenanceEnded", replica="True", start="16:37:48")),
]


class Listeners(Fleet):
    """A fleet whose machines listen to a cache."""

    def hear(self, name: str, raw: str | bytes, *, at: datetime | None = None, host: str = HOST) -> None:
        """One machine reports a line heard at `at` (now, unless said otherwise)."""
        if isinstance(raw, bytes):
            data = wire.RedisData(cache=host, raw=base64.b64encode(raw).decode(), encoding="base64")
        else:
            data = wire.RedisData(cache=host, raw=raw)
        self.report(name, data, at=at)

    def cover(
        self, name: str, state: str, *, at: datetime | None = None, host: str = HOST, tier: str = "", reason: str = ""
    ) -> None:
        """One machine reports a change of its coverage."""
        self.report(name, wire.CoverageData(cache=host, state=state, tier=tier, reason=reason), at=at)

    def play(self, *names: str, upto: int = len(EXAMPLE), host: str = HOST) -> None:
        """The documented sequence, heard by these machines as it happens."""
        for at, raw in EXAMPLE[:upto]:
            self.now = clock(at)
            for name in names:
                self.hear(name, raw, host=host)


def the_cache(host: str = HOST) -> Cache:
    return Cache.objects.get(host=host)


def the_maintenance() -> Maintenance:
    return Maintenance.objects.get()
