"""Web push: encrypted for one browser, signed with the installation's key; users add and remove their browsers."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import http_ece
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.test import Client
from py_vapid import Vapid02

from fleet.models import Entry
from fleet.notifications import route_services
from fleet.notifications.channels import webpush
from fleet.notifications.channels.base import ChannelInUse, Delivery
from fleet.notifications.models import Channel, PushKey, Route, UnreadableSecretsError
from fleet.notifications.text import MessageWords
from tests import factories
from tests.receivers import Receiver, receiver

NOW = datetime.now(UTC)
WORDS = MessageWords(
    "Reboot of vm1", "Reboot of vm1", ("Reboot of vm1 in web", "4 of 6 stay up"), "Reboot", "/events/X/"
)


def text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


@dataclass
class BrowserDouble:
    """A browser's side of a subscription: it alone can read what is sent to it."""

    endpoint: str
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    auth: bytes = b"sixteen bytes!!!"

    def in_use(self) -> ChannelInUse:
        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        values = {"endpoint": self.endpoint, "p256dh": text(point), "auth": text(self.auth)}
        return ChannelInUse(id=1, kind="webpush", name="phone", values=values)

    def reads(self, body: bytes) -> dict[str, str]:
        plain = http_ece.decrypt(body, private_key=self.key, auth_secret=self.auth, version="aes128gcm")
        found: dict[str, str] = json.loads(plain)
        return found


def post(words: MessageWords = WORDS) -> Delivery:
    return Delivery(id="1", moment="test", at=NOW, items=(), words=words, url="http://127.0.0.1:8000/")


@pytest.fixture
def maker(reach_loopback: None) -> Iterator[Receiver]:
    """Push service of the browser's vendor: it carries the notification."""
    with receiver() as found:
        found.status = 201
        yield found


def test_only_the_browser_reads_it_and_it_is_signed_for_its_maker(db: None, maker: Receiver) -> None:
    browser = BrowserDouble(f"{maker.url}/send/abc")
    assert all(webpush.send(post(), browser.in_use(), now=NOW).ok for _ in range(3))
    got = maker.got[0]
    assert len({each.body for each in maker.got}) == 3
    assert (got.method, got.path) == ("POST", "/send/abc")
    assert got.headers["content-encoding"] == "aes128gcm"
    assert got.headers["ttl"] == "900"
    assert b"Reboot" not in got.body
    assert browser.reads(got.body) == {
        "title": "Reboot of vm1", "body": "Reboot of vm1 in web\n4 of 6 stay up", "url": "/events/X/",
        "tag": "drydock-test",
    }  # fmt: skip
    assert Vapid02.verify(got.headers["authorization"])
    token = got.headers["authorization"].split("t=")[1].split(",")[0].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(token + "=="))
    assert claims["aud"] == maker.url
    assert 0 < claims["exp"] - NOW.timestamp() <= 24 * 3600
    assert f"k={PushKey.objects.get().public_key}" in got.headers["authorization"]


def test_what_is_long_is_cut_by_us_before_a_maker_refuses_it(db: None) -> None:
    cut = [
        words
        for letter in ("x", "ü", "\U0001f600", '"', "\n")
        for words in (
            replace(WORDS, lines=tuple(letter * 300 for _ in range(100))),
            replace(WORDS, lines=(letter * 100_000,), title=letter * 5000),
        )
    ]
    for words in cut:
        written = webpush.payload(post(words))
        assert len(written) <= 3993
        assert len(webpush.encrypted(written, BrowserDouble("https://x").in_use().values)) <= 4096
        assert json.loads(written)["url"] == "/events/X/"


def test_a_subscription_that_is_gone_ends_and_a_busy_maker_is_asked_again(db: None, maker: Receiver) -> None:
    maker.headers["Retry-After"] = "7"
    gone, refused, retried = (404, 410), (413,), (429, 503)
    for maker.status in (*gone, *refused, *retried):
        outcome = webpush.send(post(), BrowserDouble(f"{maker.url}/a").in_use(), now=NOW)
        assert (outcome.ok, outcome.again) == (False, maker.status in retried)
        assert (outcome.gone, outcome.wait_seconds) == (maker.status in gone, 7.0 if outcome.again else None)


def test_what_was_never_a_subscription_is_switched_off(db: None, maker: Receiver) -> None:
    channel = BrowserDouble(f"{maker.url}/a").in_use()
    for key in ("", "AAAA", "%%%", text(b"\x04" + b"\x01" * 64)):
        outcome = webpush.send(post(), replace(channel, values={**channel.values, "p256dh": key}), now=NOW)
        assert (outcome.ok, outcome.gone, maker.got) == (False, True, [])
    inside = webpush.send(post(), BrowserDouble("http://169.254.169.254/metadata").in_use(), now=NOW)
    assert (inside.ok, inside.error) == (False, "refused_address:azure")


def test_the_key_is_made_once_and_rests_encrypted(db: None, settings: Any) -> None:
    first = route_services.push_keys(now=NOW)
    assert route_services.push_keys(now=NOW) == first
    row = PushKey.objects.get()
    assert base64.b64encode(first.private).decode()[20:60] not in row.private_key
    assert Entry.objects.filter(kind="push_key_made").count() == 1
    old, settings.SECRET_KEY = settings.SECRET_KEY, "another"
    with pytest.raises(UnreadableSecretsError):
        route_services.push_keys(now=NOW)
    settings.SECRET_KEY_FALLBACKS = [old]
    assert route_services.push_keys(now=NOW) == first


SUBSCRIPTION = {
    **BrowserDouble("https://push.example.com/send/secret-part").in_use().values,
    "name": "my phone",
}


@pytest.fixture
def vera(client: Client, db: None) -> Client:
    client.force_login(factories.viewer())
    return client


def test_browser_is_notified_until_its_user_removes_it(vera: Client) -> None:
    assert vera.post("/you/browser/", SUBSCRIPTION).status_code == 302
    channel, route = Channel.objects.get(), Route.objects.exclude(owner=None).get()
    assert (channel.kind, channel.owner.username, route.channel) == ("webpush", "vera", channel)
    shown = vera.get("/you/").content.decode()
    assert "my phone" in shown
    assert "secret-part" not in shown
    assert vera.post(f"/you/browser/{channel.pk}/end/").status_code == 302
    channel.refresh_from_db()
    route.refresh_from_db()
    assert channel.deleted_at is not None
    assert route.deleted_at is not None
    assert "my phone" not in vera.get("/you/").content.decode().partition('id="browsers"')[2]


def test_browser_of_another_user_and_invalid_ones_are_refused(vera: Client) -> None:
    vera.post("/you/browser/", SUBSCRIPTION)
    channel = Channel.objects.get()
    vera.force_login(factories.operator())
    assert vera.post(f"/you/browser/{channel.pk}/end/").status_code == 404
    assert vera.post("/you/browser/", {**SUBSCRIPTION, "endpoint": ""}).status_code == 422
    assert vera.post("/you/browser/", {**SUBSCRIPTION, "endpoint": "http://169.254.169.254/x"}).status_code == 422
    assert Channel.objects.count() == 1
