"""Coverage of caches through real processes: what pages and API say follows the truth within a minute.

What an agent notices of a connection is tested in `tests/agent/redis`, what becomes of its reports in `tests/caches`.
"""

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from fleet.embedded import Urls
from tests.agent.redis.conftest import CacheServer
from tests.processes import wait_for
from tests.ring.ring import Ring, ring

pytestmark = [pytest.mark.flow, pytest.mark.fault, pytest.mark.real_time]

MACHINES = ("WestNO_0", "WestNO_1")
SECONDS = 60
HOST = "cut.redis.cache.windows.net"
# The words of the page.
LABELS = {"subscribed": "listening", "lost": "connection lost"}
LINE = "NotificationType|NodeMaintenanceStart|IsReplica|False|IPAddress||SSLPort|15000|NonSSLPort|13000"
ROW = re.compile(
    r'<th scope="row"><a href="/machines/\d+/">([^<]+)</a></th>\s*<td><span class="chip.*?<span>([^<]+)</span>',
    re.DOTALL,
)


def until(it: Ring, operator: requests.Session, state: str, *, since: datetime | None = None) -> Any:
    """Return the cache once API and page say this of both machines, and that it began after `since`."""

    def told() -> Any:
        time.sleep(0.2)
        found = next((cache for cache in it.get("caches/")["results"] if cache["host"] == HOST), None)
        said = found["coverage"] if found else []
        if sorted(one["machine"]["resource_name"] for one in said) != list(MACHINES):
            return None
        if {one["state"] for one in said} != {state}:
            return None
        if since is not None and min(datetime.fromisoformat(one["since"]) for one in said) <= since:
            return None
        page = operator.get(f"{it.url}/caches/{found['id']}/", timeout=10).text
        is_shown = dict(ROW.findall(page)) == dict.fromkeys(MACHINES, LABELS[state])
        return is_shown and ("No agent listens to this cache" in page) == (state != "subscribed") and found

    return wait_for(told, seconds=SECONDS, what=f"both machines are {state}")


def test_a_cut_and_a_server_that_stops_and_comes_back_are_lost_and_heard_again(own_urls: Urls, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    server = CacheServer(tmp_path / "cache")
    address = f"redis://{HOST}?tier=standard&tls=false&connect=127.0.0.1:{server.port}"
    with ring(own_urls, tmp_path, caches=[address]) as it:
        it.start("web", *(f"agent-{machine}" for machine in MACHINES))
        operator = it.logged_in()
        cache = until(it, operator, "subscribed")
        assert server.say(LINE) == 2

        def heard() -> Any:
            time.sleep(0.1)
            rows = it.get(f"notifications/?cache={cache['id']}")["results"]
            return [row["raw"] for row in rows if len(row["reported_by"]) == len(MACHINES)]

        assert wait_for(heard, seconds=SECONDS, what="a notification that both machines reported") == [LINE]
        cut = datetime.now(UTC)
        assert server.kill_subscribers() == 2
        until(it, operator, "subscribed", since=cut)
        server.stop()
        until(it, operator, "lost")
        server.start()
        until(it, operator, "subscribed")
        server.stop()
