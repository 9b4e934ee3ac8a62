"""TLS with the cache's certificate, and tokens of the machine's identity in place of a key."""

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from drydock_agent import wire
from drydock_agent.redis.errors import CacheConnectionLost, RefusedByCache
from drydock_agent.redis.login import TokenClient
from drydock_agent.settings.caches import Cache, read_caches

from tests.agent.redis.conftest import CHANNEL, HOST, CacheServer, CacheStage, FaultyPath, cache_at
from tests.certificates import Authority
from tests.processes import wait_for
from tests.receivers import Handler, serving

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


@pytest.mark.real_time
def test_a_token_is_the_password_and_its_identity_the_user(stage: CacheStage, metadata: MetadataService) -> None:
    stage.server.allow(IDENTITY, "on", f">{token_of(1)}", f"&{CHANNEL}", "+subscribe", "+ping")
    stage.listen(with_identity(stage.server.port), tokens=TokenClient(metadata.url), until="subscribed")
    assert metadata.asked == [{"api-version": ["2018-02-01"], "resource": ["https://redis.azure.com"]}]


@pytest.mark.real_time
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


@pytest.mark.real_time
def test_over_tls_the_cache_is_heard_and_never_in_the_clear(stage: CacheStage, tls: tuple[int, Path]) -> None:
    (plain,) = read_caches(f"rediss://:key@{HOST}?connect=127.0.0.1:{stage.server.port}")
    stage.listen(plain, until="lost").stop()
    assert stage.server.listeners() == 0
    (cache,) = read_caches(f"rediss://{HOST}?connect=127.0.0.1:{tls[0]}&ca_file={tls[1]}")
    listener = stage.listen(cache, until="subscribed")
    stage.server.say("NotificationType|NodeMaintenanceStart")
    assert listener.heard(1) == ["NotificationType|NodeMaintenanceStart"]


@pytest.mark.real_time
@pytest.mark.parametrize("trusted", [True, False])
def test_a_wrong_name_or_untrusted_issuer_is_refused(stage: CacheStage, tls: tuple[int, Path], trusted: bool) -> None:
    # A trusted certificate with another name, or the right name from an untrusted issuer.
    text = f"rediss://another.example?ca_file={tls[1]}&" if trusted else f"rediss://{HOST}?"
    (cache,) = read_caches(f"{text}connect=127.0.0.1:{tls[0]}")
    listener = stage.listen(cache, until="lost")
    assert "certificate verify failed" in listener.reports(wire.COVERAGE)[0]["reason"].lower()
