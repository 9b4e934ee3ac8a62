"""Secrets of channels rest encrypted with SECRET_KEY, are opened for their own row alone, and survive its rotation."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from fleet.gateway.probes import Probes
from fleet.notifications.channel_services import in_use, unreadable
from fleet.notifications.models import Channel, UnreadableSecretsError
from tests.messages.messages import channel

SECRET = {"routing_key": "R0UT1NG"}
OTHER_KEY = "another-key-of-at-least-fifty-characters-for-this-test"


def sealed(pk: int = 1, **secrets: str) -> Channel:
    row = Channel(pk=pk, kind="pagerduty")
    row.seal(secrets)
    return row


def test_sealed_secrets_are_read_again_and_not_visible() -> None:
    row = sealed(**SECRET)
    assert "R0UT1NG" not in row.secrets != sealed(**SECRET).secrets
    assert row.unseal() == SECRET
    assert (sealed().secrets, sealed().unseal()) == ("", {})


@pytest.mark.parametrize("text", ["", "no base64!", "AAAA", "x" * 40])
def test_secrets_of_another_row_are_not_read(text: str) -> None:
    row = Channel(pk=2, kind="pagerduty", secrets=text or sealed(**SECRET).secrets)
    with capture_logs() as logs, pytest.raises(UnreadableSecretsError, match="channel:2"):
        row.unseal()
    assert "R0UT1NG" not in str(logs)
    assert logs[0]["of"] == "channel:2"


def test_an_earlier_key_reads_what_it_sealed(settings: Any) -> None:
    row, old = sealed(**SECRET), settings.SECRET_KEY
    settings.SECRET_KEY = OTHER_KEY
    with pytest.raises(UnreadableSecretsError):
        row.unseal()
    settings.SECRET_KEY_FALLBACKS = [old]
    assert row.unseal() == SECRET


@pytest.mark.django_db
def test_unreadable_channels_are_named_while_they_are_on(settings: Any) -> None:
    row = channel("pager", kind="pagerduty", settings={"time_zone": "UTC"})
    row.seal(SECRET)
    row.save()
    assert in_use(row, now=row.created_at) == {"time_zone": "UTC", **SECRET}
    assert unreadable() == []
    settings.SECRET_KEY = OTHER_KEY
    assert unreadable() == ["pager"]
    probes = Probes.__new__(Probes)
    probes.migrated = True
    assert probes._ask().unusable == {"channels_unreadable": 1}
    Channel.objects.update(enabled=False)
    assert unreadable() == []
