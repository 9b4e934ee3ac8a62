"""Coverage of caches through real processes: what pages and API say follows the truth within a minute.

One ring and three caches serve the whole file; each test does its harm to caches of its own. What an agent notices of a
connection is tested in `tests/agent/redis`, what becomes of its reports in `tests/caches`.
"""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
import requests

from tests.agent.redis.servers import CacheServer
from tests.databases import own_servers
from tests.processes import wait_for
from tests.ring.ring import Ring, ring

pytestmark = [pytest.mark.flow, pytest.mark.fault, pytest.mark.real_time]

MACHINES = ("WestNO_0", "WestNO_1")
SECONDS = 60
CUT, KEY, RIGHT = (f"{name}.redis.cache.windows.net" for name in ("cut", "key", "right"))
# The words of the page.
LABELS = {"subscribed": "listening", "lost": "connection lost", "refused": "refused"}
LINE = "NotificationType|NodeMaintenanceStart|IsReplica|False|IPAddress||SSLPort|15000|NonSSLPort|13000"
ROW = re.compile(
    r'<th scope="row"><a href="/machines/\d+/">([^<]+)</a></th>\s*<td><span class="chip.*?<span>([^<]+)</span>',
    re.DOTALL,
)


@dataclass(slots=True)
class Fleet:
    """Two agents that listen to three caches."""

    it: Ring
    servers: dict[str, CacheServer]
    operator: requests.Session

    def cache(self, host: str) -> Any:
        """What the API says of it now; None while it is not known."""
        return next((cache for cache in self.it.get("caches/")["results"] if cache["host"] == host), None)

    def coverage(self, host: str) -> dict[str, Any]:
        """What the API says of each machine."""
        cache = self.cache(host)
        return {one["machine"]["resource_name"]: one for one in cache["coverage"]} if cache else {}

    def since(self, host: str) -> list[datetime]:
        return [datetime.fromisoformat(one["since"]) for one in self.coverage(host).values()]

    def page(self, host: str) -> str:
        """The cache's page, as an operator gets it."""
        answer = self.operator.get(f"{self.it.url}/caches/{self.cache(host)['id']}/", timeout=10)
        assert answer.status_code == 200
        return answer.text

    def until(self, host: str, state: str, *, since: datetime | None = None) -> None:
        """Returns once API and page say this of both machines, and that it began after `since`. At most a minute."""

        def told() -> bool:
            time.sleep(0.2)
            said = self.coverage(host)
            if len(said) != len(MACHINES) or {one["state"] for one in said.values()} != {state}:
                return False
            if since is not None and min(self.since(host)) <= since:
                return False
            page = self.page(host)
            return dict(ROW.findall(page)) == dict.fromkeys(MACHINES, LABELS[state]) and (
                ("No agent listens to this cache" in page) == (state != "subscribed")
            )

        wait_for(told, seconds=SECONDS, what=f"both machines are {state} at {host}")


@pytest.fixture(scope="module")
def fleet(migrated_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with ExitStack() as stack:
        urls = stack.enter_context(own_servers(migrated_template, tmp_path_factory.mktemp("valkey")))
        servers = {host: CacheServer(tmp_path_factory.mktemp("cache")) for host in (CUT, KEY, RIGHT)}
        for server in servers.values():
            stack.callback(server.stop)
        servers[KEY].configure("requirepass", "key")
        rights = "resetkeys resetchannels &AzureRedisEvents -@all +subscribe +unsubscribe +ping"
        servers[RIGHT].allow("agent", "on", ">secret", *rights.split())
        users = {KEY: ":key@", RIGHT: "agent:secret@"}
        caches = [
            f"redis://{users.get(host, '')}{host}?tier=standard&tls=false&connect=127.0.0.1:{server.port}"
            for host, server in servers.items()
        ]
        it = stack.enter_context(ring(urls, tmp_path_factory.mktemp("ring"), caches=caches))
        it.start("web", *(f"agent-{machine}" for machine in MACHINES))
        fleet = Fleet(it, servers, it.logged_in())
        for host in servers:
            fleet.until(host, "subscribed")
        yield fleet


@pytest.mark.long
def test_a_wrong_key_and_a_missing_right_are_refusals_until_they_are_mended(fleet: Fleet) -> None:
    with fleet.servers[KEY].client() as key, fleet.servers[RIGHT].client() as right:
        key.config_set("requirepass", "another key")
        key.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        # This disconnects the agents that lost the right.
        right.execute_command("ACL", "SETUSER", "agent", "resetchannels")
        fleet.until(KEY, "refused")
        fleet.until(RIGHT, "refused")
        for host, word in ((KEY, "password"), (RIGHT, "permission")):
            assert all(word in one["reason"] for one in fleet.coverage(host).values())
            assert word in fleet.page(host)
        key.config_set("requirepass", "key")
        right.execute_command("ACL", "SETUSER", "agent", "&AzureRedisEvents")
        mended = datetime.now(UTC)
        fleet.until(KEY, "subscribed", since=mended)
        fleet.until(RIGHT, "subscribed", since=mended)


def test_a_cut_and_a_server_that_stops_and_comes_back_are_lost_and_heard_again(fleet: Fleet) -> None:
    server = fleet.servers[CUT]
    assert server.say(LINE) == 2

    def heard() -> Any:
        time.sleep(0.1)
        rows = fleet.it.get(f"notifications/?cache={fleet.cache(CUT)['id']}")["results"]
        return [row["raw"] for row in rows if len(row["reported_by"]) == len(MACHINES)]

    assert wait_for(heard, seconds=SECONDS, what="a notification that both machines reported") == [LINE]
    cut = datetime.now(UTC)
    assert server.kill_subscribers() == 2
    fleet.until(CUT, "subscribed", since=cut)
    server.stop()
    fleet.until(CUT, "lost")
    server.start()
    fleet.until(CUT, "subscribed")
