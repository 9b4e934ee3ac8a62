"""Coverage of caches through real processes: what pages and API say follows the truth within a minute.

One ring and five caches serve the whole file; each test does its harm to caches of its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
import requests

from tests.agent.redis.servers import CacheServer, FaultyPath
from tests.databases import own_servers
from tests.processes import wait_for
from tests.ring.ring import Ring, ring

pytestmark = [pytest.mark.flow, pytest.mark.fault, pytest.mark.real_time]

MACHINES = ("WestNO_0", "WestNO_1")
SECONDS = 60
CUT, SLOW, KEY, RIGHT, SWALLOWED = (
    f"{name}.redis.cache.windows.net" for name in ("cut", "slow", "key", "right", "swallowed")
)
# The words of the page.
LABELS = {
    "subscribed": "listening",
    "lost": "connection lost",
    "stale": "no answer",
    "refused": "refused",
}
ROW = re.compile(
    r'<th scope="row"><a href="/machines/\d+/">([^<]+)</a></th>\s*<td><span class="chip.*?<span>([^<]+)</span>',
    re.DOTALL,
)


def line(kind: str, *, port: int = 15000, replica: str = "False", more: str = "") -> str:
    return (
        f"NotificationType|NodeMaintenance{kind}|IsReplica|{replica}|IPAddress|"
        f"|SSLPort|{port}|NonSSLPort|{port - 2000}{more}"
    )


@dataclass(slots=True)
class Fleet:
    """Two agents that listen to five caches, two of them over network paths with faults on request."""

    it: Ring
    servers: dict[str, CacheServer]
    paths: dict[str, FaultyPath]
    operator: requests.Session
    swallowed_at: datetime

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

    def heard(self, host: str, count: int) -> list[Any]:
        """The notifications of this cache, oldest first, once there are so many and both machines reported each."""

        def look() -> list[Any] | None:
            time.sleep(0.1)
            rows = self.it.get(f"notifications/?cache={self.cache(host)['id']}")["results"]
            whole = len(rows) >= count and all(len(row["reported_by"]) == len(MACHINES) for row in rows)
            return rows[::-1] if whole else None

        return wait_for(look, seconds=SECONDS, what=f"{count} notifications of {host}, from both machines")


@pytest.fixture(scope="module")
def fleet(migrated_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with ExitStack() as stack:
        urls = stack.enter_context(own_servers(migrated_template, tmp_path_factory.mktemp("valkey")))
        servers, paths = {}, {}
        for host in (CUT, SLOW, KEY, RIGHT, SWALLOWED):
            options = {"requirepass": "key"} if host == KEY else {}
            servers[host] = CacheServer(tmp_path_factory.mktemp("cache"), **options)
            stack.callback(servers[host].stop)
        for seed, host in enumerate((SLOW, SWALLOWED)):
            paths[host] = FaultyPath(servers[host].port, seed=seed)
            stack.callback(paths[host].close)
        with servers[RIGHT].client() as client:
            rights = "resetkeys resetchannels &AzureRedisEvents -@all +subscribe +unsubscribe +ping"
            client.execute_command("ACL", "SETUSER", "agent", "on", ">secret", *rights.split())
        users = {KEY: ":key@", RIGHT: "agent:secret@"}
        caches = [
            f"redis://{users.get(host, '')}{host}?tier=standard&tls=false"
            f"&connect=127.0.0.1:{paths[host].port if host in paths else servers[host].port}"
            for host in servers
        ]
        it = stack.enter_context(ring(urls, tmp_path_factory.mktemp("ring"), caches=caches))
        it.start("web", *(f"agent-{machine}" for machine in MACHINES))
        made = Fleet(it, servers, paths, it.logged_in(), datetime.now(UTC))
        for host in servers:
            made.until(host, "subscribed")
        # It takes its time to be found; meanwhile the first test does its harm elsewhere.
        paths[SWALLOWED].swallows = True
        made.swallowed_at = datetime.now(UTC)
        yield made


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


# Half a minute of silence has to pass.
@pytest.mark.long
def test_a_path_that_swallows_everything_is_found_in_45_seconds_and_left(fleet: Fleet) -> None:
    fleet.until(SWALLOWED, "stale")
    found = [(since - fleet.swallowed_at).total_seconds() for since in fleet.since(SWALLOWED)]
    # The agents' own times: from now on they do not listen.
    assert all(0 < seconds <= 45 for seconds in found), found
    fleet.paths[SWALLOWED].swallows = False
    fleet.until(SWALLOWED, "subscribed")
    assert fleet.servers[SWALLOWED].say(line("Start")) == 2
    [row] = fleet.heard(SWALLOWED, 1)
    assert row["raw"] == line("Start")


def test_a_cut_and_a_server_that_stops_and_comes_back_are_lost_and_heard_again(fleet: Fleet) -> None:
    server = fleet.servers[CUT]
    assert server.say(line("Start")) == 2
    [row] = fleet.heard(CUT, 1)
    assert row["raw"] == line("Start")
    cut = datetime.now(UTC)
    assert server.kill_subscribers() == 2
    fleet.until(CUT, "subscribed", since=cut)
    server.stop()
    fleet.until(CUT, "lost")
    server.start()
    fleet.until(CUT, "subscribed")


def test_sliced_or_late_lines_arrive_whole_without_a_reported_loss(fleet: Fleet) -> None:
    server, path, since = fleet.servers[SLOW], fleet.paths[SLOW], fleet.since(SLOW)
    path.slices = True
    sent = [line("Start", port=15000 + 2 * shard, more=f"|Note|{'x' * 500}") for shard in range(10, 13)]
    for raw in sent:
        assert server.say(raw) == 2
    assert [row["raw"] for row in fleet.heard(SLOW, 3)][-3:] == sent
    path.slices, path.delay = False, 1.0
    late = [line("Start", port=15000 + 2 * shard) for shard in range(20, 23)]
    for raw in late:
        assert server.say(raw) == 2
    assert [row["raw"] for row in fleet.heard(SLOW, 6)][-3:] == late
    path.delay = 0.0
    fleet.until(SLOW, "subscribed")
    assert fleet.since(SLOW) == since


def test_lines_that_come_twice_and_in_another_order_are_one_maintenance(fleet: Fleet) -> None:
    server = fleet.servers[SLOW]
    ended, failed_over = line("Ended", replica="True"), line("FailoverComplete", port=15001)
    for raw in (ended, failed_over, failed_over, line("Start"), ended):
        assert server.say(raw) == 2
        time.sleep(0.05)

    def heard() -> Any:
        time.sleep(0.1)
        rows = fleet.it.get(f"maintenances/?cache={fleet.cache(SLOW)['id']}")["results"]
        found = [one for one in rows if one["shard"] == 0]
        copies = [mine["copies"] for one in found for row in one["notifications"] for mine in row["reported_by"]]
        return found if sum(copies) == 5 * len(MACHINES) else None

    [one] = wait_for(heard, seconds=SECONDS, what="five lines, heard by two machines")
    assert sorted(row["raw"] for row in one["notifications"]) == sorted([ended, failed_over, line("Start")])
    assert (one["status"], one["node_port"], one["partner_port"], one["swapped"]) == ("ENDED", 15000, 15001, True)
    assert one["failover_at"] is not None
