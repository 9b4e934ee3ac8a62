"""Coverage of a cache through real processes: what the API says follows the truth within a minute."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import redis

from fleet.embedded import Urls, valkey
from fleet.management.demo_recipes import Cache
from tests.flow.ring import Ring, ring
from tests.processes import wait_for

pytestmark = pytest.mark.flow

HOST = "shop.redis.cache.windows.net"
SECONDS = 60


def states(it: Ring) -> set[str]:
    """What each machine says of the cache now."""
    return {one["state"] for cache in it.get("caches/")["results"] for one in cache["coverage"]}


def test_a_cache_that_stops_and_comes_back_is_lost_and_heard_again(own_urls: Urls, tmp_path: Path) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="cache-")))
        cache = Cache(host=HOST, tier="standard", socket=folder / "valkey" / "valkey.sock")
        it = stack.enter_context(ring(own_urls, tmp_path, caches=[cache]))
        with valkey(folder) as url:
            it.start("web", "agent-WestNO_0", "agent-WestNO_1")
            wait_for(lambda: states(it) == {"subscribed"}, seconds=SECONDS, what="both machines listen")
            with redis.Redis.from_url(url) as server:
                raw = "NotificationType|NodeMaintenanceStart|IsReplica|False|IPAddress||SSLPort|15000|NonSSLPort|13000"
                assert server.publish("AzureRedisEvents", raw) == 2
                [heard] = wait_for(
                    lambda: it.get("notifications/")["results"] or None, seconds=10, what="a row in the API"
                )
                assert heard["raw"] == raw
                wait_for(
                    lambda: len(it.get("notifications/")["results"][0]["reported_by"]) == 2,
                    seconds=10,
                    what="one notification with two reporters",
                )
                # Cut, and there again.
                server.client_kill_filter(_type="pubsub")
                wait_for(lambda: states(it) == {"subscribed"}, seconds=SECONDS, what="both machines listen again")
        wait_for(lambda: states(it) == {"lost"}, seconds=SECONDS, what="nobody listens to a cache that is gone")
        with valkey(folder):
            wait_for(lambda: states(it) == {"subscribed"}, seconds=SECONDS, what="the cache is back and heard")
