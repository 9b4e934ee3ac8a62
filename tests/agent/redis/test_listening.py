"""Cache listener: it reports each line of a real server and when it listened, and survives every fault."""

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from drydock_agent import wire
from drydock_agent.redis import subscription
from drydock_agent.redis.errors import CacheConnectionLost, RefusedByCache
from drydock_agent.redis.listener import Timing, overlap
from drydock_agent.redis.login import TokenClient
from drydock_agent.settings.caches import Cache, read_caches

from tests.agent.redis.conftest import CHANNEL, HOST, QUICK, CacheServer, CacheStage, FaultyPath, Listening, cache_at
from tests.certificates import Authority
from tests.processes import wait_for
from tests.receivers import Handler, serving

pytestmark = [pytest.mark.fault, pytest.mark.real_time]

LINE = "NotificationType|NodeMaintenanceStart|IsReplica|False|IPAddress|52.158.249.185|SSLPort|15000|NonSSLPort|13000"


def test_coverage_is_reported_with_tier_and_divisor_again_on_request_and_its_end_at_once(stage: CacheStage) -> None:
    listener = stage.listen(cache_at(stage.server.port, "&divisor=3"), until="subscribed")
    (data,) = listener.reports(wire.COVERAGE)
    del data["at"]
    assert data == {"cache": HOST, "state": "subscribed", "reason": "", "tier": "premium", "divisor": 3}
    listener.part.resend()
    wait_for(lambda: listener.states() == ["subscribed", "subscribed"], seconds=20, what="said again")
    begun = time.monotonic()
    listener.stop()
    assert time.monotonic() - begun < 3
    assert listener.states()[2:] == ["lost"]
    assert listener.reports(wire.COVERAGE)[-1]["reason"] == "the agent stopped"


def test_lines_of_the_literal_channel_are_kept_as_they_came(server: CacheServer, listener: Listening) -> None:
    with server.client() as client, client.pubsub() as other:
        other.subscribe(CHANNEL)
        wait_for(lambda: server.listeners() == 2, seconds=20, what="two listeners")
        assert client.publish("azureredisevents", "another") == client.publish(CHANNEL + "2", "another") == 0
        assert server.say(LINE) == 2
    no_text = b"NotificationType|\xff\xfe|" + b"\x80" * 20_000
    odd: list[str | bytes] = ["", "|||", no_text, "x" * 16_001, "ä" * 16_000, "NotificationType", "line\r\nbreaks\n"]
    odd += [LINE.replace("15000", str(port)) for port in (15001, 15000, 15000, 15003, 15001, 15001)]
    server.say(*odd)
    listener.heard(1 + len(odd))
    first, *lines = listener.reports(wire.REDIS)
    del first["at"]
    assert first == {"cache": HOST, "raw": LINE, "encoding": "utf-8", "cut": False}
    assert [data["raw"] for data in lines[:2]] == ["", "|||"]
    assert (lines[2]["encoding"], lines[2]["cut"]) == ("base64", True)
    assert no_text.startswith(base64.b64decode(lines[2]["raw"])) and len(lines[2]["raw"]) == 16_000
    assert (lines[3]["raw"], lines[3]["cut"]) == ("x" * 16_000, True)
    assert (lines[4]["raw"], lines[4]["cut"]) == ("ä" * 16_000, False)
    assert [data["raw"] for data in lines[5:]] == odd[5:]


def test_a_server_that_is_unavailable_is_reported_once_and_heard_again(stage: CacheStage) -> None:
    stage.server.stop()
    listener = stage.listen(until="lost")
    time.sleep(0.5)
    stage.server.start()
    listener.until("subscribed", seconds=30)
    assert "refused" in listener.reports(wire.COVERAGE)[0]["reason"]
    stage.server.stop()
    listener.until("lost")
    stage.server.start()
    listener.until("subscribed", seconds=30)
    stage.server.say(LINE)
    assert listener.heard(1) == [LINE]
    assert listener.states() == ["lost", "subscribed"] * 2


def test_an_agent_that_was_killed_says_afterwards_how_long_it_had_listened(stage: CacheStage) -> None:
    first = stage.listen(until="subscribed")
    key = f"redis {HOST}"
    remembered = stage.spool.get(key)
    alive = wait_for(lambda: (now := stage.spool.get(key)) != remembered and now, seconds=20, what="a sign of life")
    first.stop()
    # A killed agent leaves its last sign of life and no record of its end.
    stage.spool.set(key, alive)
    second = stage.listen(until="subscribed")
    assert second.states() == ["subscribed", "lost", "lost", "subscribed"]
    gap = second.reports(wire.COVERAGE)[2]
    assert gap["reason"] == "the agent ended unexpectedly"
    assert gap["at"].isoformat()[:23] in alive


def test_a_host_that_publishes_nothing_is_reported_and_left_alone(stage: CacheStage) -> None:
    for suffix in ("westeurope.redis.azure.net", "westeurope.redisenterprise.cache.azure.net"):
        cache = cache_at(stage.server.port)
        object.__setattr__(cache, "host", f"shop.{suffix}")
        stage.listen(cache, until="unsupported")
    with stage.server.client() as client:
        assert len(client.client_list()) == 1


# As Azure Managed Redis states itself: Redis 7.
MANAGED = "extended-redis-compatibility"


def test_a_cache_that_was_migrated_under_its_name_is_recognised_until_it_is_rolled_back(stage: CacheStage) -> None:
    listener = stage.listen(until="subscribed")
    for value, state in (("yes", "unsupported"), ("no", "subscribed")):
        stage.server.stop()
        stage.server.options[MANAGED] = value
        stage.server.start()
        listener.until(state)
    reasons = [data["reason"] for data in listener.reports(wire.COVERAGE) if data["state"] == "unsupported"]
    assert len(reasons) == 1 and "Azure Managed Redis" in reasons[0]


def test_a_migration_without_a_cut_is_recognised_at_the_next_renewal_and_refuted_by_a_line(stage: CacheStage) -> None:
    listener = stage.listen(timing=replace(QUICK, renew=(0.3, 0.3)), until="subscribed")
    for value, state in (("yes", "unsupported"), ("no", "subscribed")):
        stage.server.configure(MANAGED, value)
        listener.until(state)
    listener.stop()
    stage.server.configure(MANAGED, "yes")
    again = stage.listen(until="unsupported")
    stage.server.say(LINE)
    assert again.heard(1) == [LINE]
    again.until("subscribed")


@pytest.mark.parametrize(
    ("name", "server", "is_replaced"),
    [
        ("shop.westeurope.redis.azure.net", {}, True),
        ("shop.redisenterprise.cache.azure.net", {}, True),
        (HOST, {}, False),
        ("", {"server": b"redis", "version": b"6.0.14", "modules": []}, False),
        ("", {"server": b"redis", "version": b"7.4.1", "modules": []}, True),
        ("", {"server": b"redis", "version": b"6.2.6", "modules": [[b"name", b"search"]]}, True),
        ("", {"server": b"valkey", "version": b"9.0.0", "modules": []}, False),
        ("", {"server": b"redis", "version": 7, "modules": b""}, False),
        ("", {"server": 7, "version": b"x"}, False),
    ],
)
def test_a_name_or_a_server_shows_the_replacement(
    monkeypatch: pytest.MonkeyPatch, name: str, server: dict[str, object], is_replaced: bool
) -> None:
    (cache,) = read_caches(f"rediss://{HOST}")
    monkeypatch.setattr(subscription, "canonical_name", lambda host: name)
    assert bool(subscription._replacement(cache, server)) is is_replaced


def test_renewing_neither_loses_nor_doubles_a_line(stage: CacheStage) -> None:
    listener = stage.listen(timing=replace(QUICK, renew=(0.25, 0.25)), until="subscribed")
    ids: set[str] = set()
    sent: list[str] = []
    with stage.server.client() as client:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            sent.append(f"line {len(sent)}")
            client.publish(CHANNEL, sent[-1])
            ids |= {each["id"] for each in client.client_list(_type="pubsub")}
            time.sleep(0.002)
    assert listener.heard(len(sent)) == sent
    assert len(ids) > 5, "it was renewed all the time"
    assert listener.states() == ["subscribed"]


@pytest.mark.parametrize(("slices", "delay"), [(True, 0.02), (False, 0.3)])
def test_lines_in_slices_or_with_delays_are_heard_whole(stage: CacheStage, slices: bool, delay: float) -> None:
    listener = stage.listen(stage.path.port, timing=replace(QUICK, pong=2.0), until="subscribed")
    stage.path.slices, stage.path.delay = slices, delay
    sent = [f"{LINE}|{number}" for number in range(5)]
    stage.server.say(*sent)
    assert listener.heard(5) == sent
    time.sleep(1.5)
    assert listener.states() == ["subscribed"]


@pytest.mark.parametrize(
    ("before", "after", "common"),
    [("", "", 0), ("", "a", 0), ("a", "", 0), ("ab", "bc", 1), ("ab", "ab", 2), ("b", "ab", 0), ("aa", "ac", 1)],
)
def test_lines_heard_on_both_connections_are_matched_by_order(before: str, after: str, common: int) -> None:
    assert overlap([line.encode() for line in before], [line.encode() for line in after]) == common


def test_a_client_that_the_server_kills_is_a_gap_with_its_times(server: CacheServer, listener: Listening) -> None:
    before = datetime.now(timezone.utc)
    assert server.kill_subscribers() == 1
    wait_for(lambda: listener.states() == ["subscribed", "lost", "subscribed"], seconds=10, what="heard again")
    lost, again = listener.reports(wire.COVERAGE)[1:]
    assert before <= lost["at"] <= again["at"] <= datetime.now(timezone.utc)
    assert (lost["at"] - before).total_seconds() < 4


def test_a_server_that_cuts_each_connection_at_once_is_asked_less_and_less(stage: CacheStage) -> None:
    listener = stage.listen(timing=replace(QUICK, steady=30.0), until="subscribed")
    end = time.monotonic() + 6
    while time.monotonic() < end:
        stage.server.kill_subscribers()
        time.sleep(0.02)
    # Waits of up to one second each time would make about twelve.
    assert 2 <= listener.states().count("subscribed") <= 7


def test_during_a_maintenance_it_comes_back_within_two_seconds(stage: CacheStage) -> None:
    listener = stage.listen(timing=replace(QUICK, hurry=(1.0, 2.0)), until="subscribed")
    stage.server.say(LINE)
    listener.heard(1)
    # Four failures in a row would otherwise be followed by waits of up to sixteen seconds.
    stage.server.stop()
    listener.until("lost")
    time.sleep(4.0)
    stage.server.start()
    up = datetime.now(timezone.utc)
    assert (listener.until("subscribed") - up).total_seconds() < 5


def test_a_wrong_password_is_a_refusal_tried_again_slowly(stage: CacheStage, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("old\n")
    for query, login in (("", ""), ("", ":wrong@"), (f"&password_file={key}", "")):
        stage.server.configure("requirepass", "right")
        listener = stage.listen(cache_at(stage.server.port, query, user=login), until="refused")
        if query:
            # A new key in the file needs no restart.
            key.write_text("right\n")
        else:
            stage.server.configure("requirepass", login.strip(":@"))
        listener.until("subscribed")
        assert listener.states()[-2:] == ["refused", "subscribed"]
        listener.stop()


# What a listener with these rights is.
RIGHTS = {
    "resetchannels &AzureRedisEvents -@all +subscribe +unsubscribe +ping": "subscribed",
    "resetchannels &AzureRedisEvents -@all +subscribe +ping": "subscribed",
    "resetchannels &another -@all +subscribe +unsubscribe +ping": "refused",
    "resetchannels &AzureRedisEvents -@all +ping": "refused",
    "resetchannels &AzureRedisEvents -@all +subscribe": "refused",
}


@pytest.mark.parametrize(("rights", "state"), RIGHTS.items())
def test_the_least_rights_are_enough_and_a_missing_one_is_a_refusal(stage: CacheStage, rights: str, state: str) -> None:
    stage.server.allow("agent", "on", ">secret", "resetkeys", *rights.split())
    timing = replace(QUICK, renew=(0.3, 0.3))
    listener = stage.listen(cache_at(stage.server.port, user="agent:secret@"), timing=timing, until=state)
    time.sleep(1.0)
    assert listener.states() == [state], "also over pings and renewals"
    if state == "refused":
        stage.server.allow("agent", "allchannels", "+@all")
        listener.until("subscribed")
        return
    stage.server.say(LINE)
    assert listener.heard(1) == [LINE]
    if "+unsubscribe" in rights:
        with stage.server.client() as client:
            assert client.acl_log() == [], "the agent sends nothing that needs another right"
    stage.server.allow("agent", "resetchannels")
    listener.until("refused")


def test_a_path_that_swallows_bytes_is_found_and_left(stage: CacheStage) -> None:
    listener = stage.listen(stage.path.port, until="subscribed")
    stage.path.swallows = True
    begun = datetime.now(timezone.utc)
    found = listener.until("stale")
    assert (found - begun).total_seconds() < 6 * (QUICK.ping + QUICK.pong)
    # Connecting leads nowhere either, and is no news.
    time.sleep(1.0)
    assert listener.states() == ["subscribed", "stale"]
    stage.path.swallows = False
    listener.until("subscribed", seconds=40)
    stage.server.say(LINE)
    assert listener.heard(1) == [LINE]


def test_a_line_of_which_only_a_part_comes_is_found_as_well(stage: CacheStage) -> None:
    listener = stage.listen(stage.path.port, until="subscribed")
    stage.path.stops_after = 40
    stage.server.say("x" * 200)
    listener.until("stale", seconds=15)
    assert listener.lines() == []


def test_what_the_disk_did_not_take_is_written_when_it_does(server: CacheServer, listener: Listening) -> None:
    spool = listener.spool
    # The file is held exclusively: the way to fill the disk is to allow no further page.
    spool._call(lambda db: db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}"))
    sent = [f"{LINE}|{number}|{'x' * 3000}" for number in range(10)]
    server.say(*sent)
    wait_for(lambda: listener.part._record.waits, seconds=5, what="lines that wait")
    spool._call(lambda db: db.execute("PRAGMA max_page_count = 1000000"))
    assert listener.heard(10) == sent


@pytest.mark.long
def test_a_swallowed_connection_is_noticed_within_45_seconds_at_the_real_rhythm(stage: CacheStage) -> None:
    listener = stage.listen(stage.path.port, timing=Timing(), until="subscribed")
    stage.path.swallows = True
    begun = datetime.now(timezone.utc)
    seconds = (listener.until("stale", seconds=60) - begun).total_seconds()
    assert 30 < seconds <= 45


# TLS with the cache's certificate, and tokens of the machine's identity in place of a key.

IDENTITY = "7f4c1f0e-3a55-4d0f-9d53-4f6d7e0b8a11"


def token_of(number: int) -> str:
    """A token as it looks: three parts, of which the middle one names the identity."""
    claims = base64.urlsafe_b64encode(json.dumps({"oid": IDENTITY, "n": number}).encode()).decode().rstrip("=")
    return f"head.{claims}.sign"


class MetadataService:
    """Gives tokens: each time another one, good for `seconds`; or answers with `status`."""

    def __init__(self) -> None:
        self.asked: list[dict[str, list[str]]] = []
        self.seconds = 3600.0
        self.status = 200
        self.body: bytes | None = None
        self.url = ""

    def answer(self, path: str, metadata: str | None) -> bytes:
        assert metadata == "true" and urlsplit(path).path == "/metadata/identity/oauth2/token"
        self.asked.append(parse_qs(urlsplit(path).query))
        content = {"access_token": token_of(len(self.asked)), "expires_on": str(int(time.time() + self.seconds))}
        return self.body if self.body is not None else json.dumps(content).encode()


@pytest.fixture
def metadata() -> Iterator[MetadataService]:
    service = MetadataService()

    class Here(Handler):
        def take(self) -> None:
            body = service.answer(self.path, self.headers.get("Metadata"))
            self.answer(service.status, body)

    with serving(Here) as service.url:
        yield service


def with_identity(port: int, entra: str = "managed-identity") -> Cache:
    return replace(cache_at(port), entra=entra)


def test_a_token_is_the_password_and_its_identity_the_user(stage: CacheStage, metadata: MetadataService) -> None:
    stage.server.allow(IDENTITY, "on", f">{token_of(1)}", f"&{CHANNEL}", "+subscribe", "+ping")
    stage.listen(with_identity(stage.server.port), tokens=TokenClient(metadata.url), until="subscribed")
    assert metadata.asked == [{"api-version": ["2018-02-01"], "resource": ["https://redis.azure.com"]}]


def test_the_connection_is_renewed_before_its_token_ends(stage: CacheStage, metadata: MetadataService) -> None:
    metadata.seconds = 2.5
    passwords = [f">{token_of(number)}" for number in range(1, 30)]
    stage.server.allow(IDENTITY, "on", *passwords, "allchannels", "+@all")
    listener = stage.listen(with_identity(stage.server.port), tokens=TokenClient(metadata.url), until="subscribed")
    wait_for(lambda: len(metadata.asked) >= 3, seconds=10, what="a third token")
    lines = [f"line {number}" for number in range(20)]
    stage.server.say(*lines)
    assert listener.heard(20) == lines
    assert listener.states() == ["subscribed"]


def test_an_identity_is_asked_for_by_its_client_id_and_an_opaque_token_will_do(metadata: MetadataService) -> None:
    token = TokenClient(metadata.url).fetch(with_identity(1, "a-client-id"))
    assert metadata.asked[0]["client_id"] == ["a-client-id"]
    assert (token.username, 3500 < token.seconds <= 3600) == (IDENTITY, True)
    assert token.secret not in repr(token)
    metadata.body = b'{"access_token": "opaque"}'
    token = TokenClient(metadata.url).fetch(with_identity(1))
    assert (token.username, token.secret, token.seconds) == ("", "opaque", 3600.0)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b'{"error":"invalid_request","error_description":"Identity not found"}', RefusedByCache),
        (429, b"", CacheConnectionLost),
        (500, b"", CacheConnectionLost),
        (200, b"", CacheConnectionLost),
        (200, b"[]", CacheConnectionLost),
        (200, b'{"access_token": 3}', CacheConnectionLost),
    ],
)
def test_why_no_token(metadata: MetadataService, status: int, body: bytes, kind: type[CacheConnectionLost]) -> None:
    metadata.status, metadata.body = status, body
    with pytest.raises(kind) as error:
        TokenClient(metadata.url).fetch(with_identity(1))
    assert type(error.value) is kind


@pytest.fixture
def tls(server: CacheServer, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """The port of a path to the cache that speaks TLS, and the file of the authority that vouches for it."""
    authority = Authority(tmp_path)
    path = FaultyPath(server.port, tls=authority.server(HOST))
    yield path.port, authority.path
    path.close()


def test_over_tls_the_cache_is_heard_and_never_in_the_clear(stage: CacheStage, tls: tuple[int, Path]) -> None:
    (plain,) = read_caches(f"rediss://:key@{HOST}?connect=127.0.0.1:{stage.server.port}")
    stage.listen(plain, until="lost").stop()
    assert stage.server.listeners() == 0
    (cache,) = read_caches(f"rediss://{HOST}?connect=127.0.0.1:{tls[0]}&ca_file={tls[1]}")
    listener = stage.listen(cache, until="subscribed")
    stage.server.say("NotificationType|NodeMaintenanceStart")
    assert listener.heard(1) == ["NotificationType|NodeMaintenanceStart"]


@pytest.mark.parametrize("trusted", [True, False])
def test_a_wrong_name_or_untrusted_issuer_is_refused(stage: CacheStage, tls: tuple[int, Path], trusted: bool) -> None:
    # A trusted certificate with another name, or the right name from an untrusted issuer.
    text = f"rediss://another.example?ca_file={tls[1]}&" if trusted else f"rediss://{HOST}?"
    (cache,) = read_caches(f"{text}connect=127.0.0.1:{tls[0]}")
    listener = stage.listen(cache, until="lost")
    assert "certificate verify failed" in listener.reports(wire.COVERAGE)[0]["reason"].lower()
