"""Secrets of channels rest encrypted with SECRET_KEY, are opened for their own row alone, and survive its rotation."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from fleet.gateway.probes import Probes
from fleet.notifications.channel_services import UnreadableSecretsError, in_use, name_of, seal, unreadable, unseal
from fleet.notifications.models import Channel
from tests.factories import NOW

SECRET = {"routing_key": "R0UT1NG"}


def test_what_is_sealed_is_read_again_and_stands_nowhere() -> None:
    text = seal(SECRET, of="channel:1")
    assert "R0UT1NG" not in text
    assert unseal(text, of="channel:1") == SECRET
    assert text != seal(SECRET, of="channel:1")
    assert seal({}, of="channel:1") == "" and unseal("", of="channel:1") == {}


@pytest.mark.parametrize("text", ["", "no base64!", "AAAA", "x" * 40])
def test_what_belongs_to_another_row_or_to_nobody_is_not_read(text: str) -> None:
    with capture_logs() as logs, pytest.raises(UnreadableSecretsError, match="channel:2"):
        unseal(text or seal(SECRET, of="channel:1"), of="channel:2")
    assert "R0UT1NG" not in str(logs)
    assert logs[0]["of"] == "channel:2"


def test_an_earlier_key_reads_what_it_sealed(settings: Any) -> None:
    text, old = seal(SECRET, of="channel:1"), settings.SECRET_KEY
    settings.SECRET_KEY = "another-key-of-at-least-fifty-characters-for-this-test"
    with pytest.raises(UnreadableSecretsError):
        unseal(text, of="channel:1")
    settings.SECRET_KEY_FALLBACKS = [old]
    assert unseal(text, of="channel:1") == SECRET


@pytest.mark.django_db
def test_a_channel_in_use_has_settings_and_secrets_and_what_cannot_be_read_is_named(settings: Any) -> None:
    row = Channel.objects.create(
        kind="pagerduty", name="pager", settings={"time_zone": "UTC"}, created_at=NOW, changed_at=NOW
    )
    row.secrets = seal(SECRET, of=name_of(row))
    row.save()
    assert in_use(row, now=NOW) == {"time_zone": "UTC", **SECRET}
    assert unreadable() == []
    settings.SECRET_KEY = "another-key-of-at-least-fifty-characters-for-this-test"
    assert unreadable() == ["pager"]
    probes = Probes.__new__(Probes)
    probes.migrated = True
    assert probes._ask().unusable == {"channels_unreadable": 1}
    Channel.objects.update(enabled=False)
    assert unreadable() == []
