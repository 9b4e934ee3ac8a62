"""Browser notifications on the account page: a user adds this browser, sees it without its keys, and removes it."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.test import Client

from fleet.notifications.models import Channel, PushKey, Route
from tests import factories

POINT = ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
SUBSCRIPTION = {
    "name": "my phone",
    "endpoint": "https://push.example.com/send/secret-part",
    "p256dh": base64.urlsafe_b64encode(POINT).decode().rstrip("="),
    "auth": "c2l4dGVlbiBieXRlcyEhIQ",
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


def test_the_key_is_the_same_for_all(vera: Client) -> None:
    first = vera.post("/you/browser/key/").json()["key"]
    assert vera.post("/you/browser/key/").json()["key"] == first == PushKey.objects.get().public_key
    assert len(base64.urlsafe_b64decode(first + "=")) == 65
