"""Acknowledging at PagerDuty: Drydock claims the event for that user, and answers 200 to every signed call."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.test import Client

from fleet.models import Claim, Entry, OutsideAccount
from fleet.notifications.channels import pagerduty
from fleet.notifications.incidents import Badness, PagerKey
from fleet.notifications.models import Channel, Reference
from tests import factories
from tests.factories import EVENT, Fleet
from tests.messages.calls import SECRET, PagerDutyCaller, acknowledged, link
from tests.messages.posts import channel_of

pytestmark = pytest.mark.django_db
KEY = f"drydock-0a1b2c3d-{EVENT}"


@pytest.fixture
def row(announced_fleet: Fleet) -> Channel:
    """A channel that has triggered an incident for the event."""
    found = channel_of("pagerduty", announced_fleet.now, routing_key="x" * 32, signing_secret=SECRET)
    hold(found, f"event:{factories.the_event().pk}")
    return found


@pytest.fixture
def caller(row: Channel) -> PagerDutyCaller:
    return PagerDutyCaller(Client(), row.pk)


def hold(row: Channel, *subjects: str, name: str = KEY, owner: str = "") -> None:
    key = PagerKey(name, row.created_at, Badness(), subjects, subjects)
    Reference.objects.create(
        channel=row, subject=owner or subjects[0], value={"keys": msgspec.to_builtins([key])}, changed_at=row.created_at
    )


def state(row: Channel, name: str = KEY) -> str:
    return pagerduty.reported_states(row.pk, [name]).get(name, "")


def test_acknowledgement_claims_the_event_as_the_linked_user(caller: PagerDutyCaller, row: Channel) -> None:
    link(factories.operator(), "pagerduty", "PLH1HKV")
    assert caller.send(acknowledged(KEY)) == 200
    claim, line = Claim.objects.get(), Entry.objects.get(kind="event_claimed")
    assert (claim.by.get_username(), claim.via, line.via, factories.who(line)) == (
        "otto",
        "pagerduty",
        "pagerduty",
        "otto",
    )
    assert state(row) == "acknowledged"


def test_unknown_account_is_listed_and_claims_nothing(caller: PagerDutyCaller, row: Channel) -> None:
    assert caller.send(acknowledged(KEY)) == 200
    found = OutsideAccount.objects.get()
    assert (found.kind, found.account, found.name, found.user) == ("pagerduty", "PLH1HKV", "Otto O", None)
    assert not Claim.objects.exists()
    # Drydock still records that the incident wakes no responder any more.
    assert state(row) == "acknowledged"


def test_newest_reported_state_wins(caller: PagerDutyCaller, row: Channel) -> None:
    now = datetime.now(UTC)

    def tell(kind: str, seconds: int) -> None:
        at = (now + timedelta(seconds=seconds)).isoformat()
        assert caller.send(acknowledged(KEY, event_type=f"incident.{kind}", occurred_at=at)) == 200

    tell("acknowledged", -50)
    tell("unacknowledged", -40)
    assert state(row) == "triggered"
    tell("resolved", -20)
    # Late, and a repeat.
    tell("acknowledged", -30)
    assert state(row) == "resolved"


@pytest.mark.parametrize(
    "agent", [None, [], "x", {"id": "PLH1HKV", "type": "inbound_integration_reference"}, {"id": 7}, {}], ids=repr
)
def test_act_of_a_program_claims_nothing(caller: PagerDutyCaller, agent: Any) -> None:
    """Our own acknowledgement comes back as well."""
    link(factories.operator(), "pagerduty", "PLH1HKV")
    assert caller.send(acknowledged(KEY, agent=agent)) == 200
    assert not Claim.objects.exists()


def test_foreign_events_get_200_and_do_nothing(caller: PagerDutyCaller, row: Channel) -> None:
    """Whatever else it answered would end the subscription in time."""
    link(factories.operator(), "pagerduty", "PLH1HKV")
    for body in (
        b"",
        b"{",
        b"[]",
        b"[" * 9000,
        b'{"event": 7}',
        json.dumps(
            {"event": {"event_type": "pagey.ping", "data": {"message": "Hello from your friend Pagey!"}}}
        ).encode(),
        acknowledged("another installation's"),
        acknowledged(KEY, data=None),
        acknowledged(KEY, data={"incident_key": ["x"]}),
        acknowledged("x" * 5000),
        acknowledged(KEY, event_type="incident.annotated"),
        acknowledged(KEY, event_type=["incident.acknowledged"]),
        acknowledged("a\x00b"),
        acknowledged("\ud800"),
        acknowledged(KEY, id="\ud800\x00", agent={"id": "\ud800\x00", "type": "user"}, event_type="incident.annotated"),
    ):
        assert caller.send(body) == 200
        assert (Claim.objects.count(), state(row)) == (0, "")


def test_acknowledged_storm_claims_nothing(announced_fleet: Fleet, caller: PagerDutyCaller, row: Channel) -> None:
    link(factories.operator(), "pagerduty", "PLH1HKV")
    hold(row, f"event:{factories.the_event().pk}", name="storm", owner="group")
    assert caller.send(acknowledged("storm")) == 200
    assert (Claim.objects.count(), state(row, "storm")) == (0, "acknowledged")


def test_repeated_webhook_is_taken_once(caller: PagerDutyCaller) -> None:
    link(factories.operator(), "pagerduty", "PLH1HKV")
    body = acknowledged(KEY)
    for _ in range(3):
        assert caller.send(body) == 200
    assert Claim.objects.count() == 1
    Claim.objects.update(ended_at=datetime.now(UTC))
    assert caller.send(body) == 200
    assert Claim.objects.filter(ended_at=None).count() == 0


def test_old_acknowledgement_claims_nothing(caller: PagerDutyCaller) -> None:
    link(factories.operator(), "pagerduty", "PLH1HKV")
    old = (datetime.now(UTC) - timedelta(hours=3)).isoformat()
    for at in (old, "0001-01-01T00:00:00Z"):
        assert caller.send(acknowledged(KEY, occurred_at=at)) == 200
    assert not Claim.objects.exists()
    # A clock that is ahead, or none at all, counts as now.
    assert caller.send(acknowledged(KEY, occurred_at="9999-12-31T23:59:59Z")) == 200
    assert Claim.objects.count() == 1


@pytest.mark.parametrize(
    "signature",
    ["", "v1=", "v1=" + "0" * 64, "v0=" + "0" * 64, "x" * 5000, "v1=\N{LATIN SMALL LETTER E WITH ACUTE}"],
    ids=lambda s: s[:8],
)
def test_unsigned_call_gets_401(caller: PagerDutyCaller, row: Channel, signature: str) -> None:
    link(factories.operator(), "pagerduty", "PLH1HKV")
    assert caller.send(acknowledged(KEY), **{"X-PagerDuty-Signature": signature}) == 401
    assert (Claim.objects.count(), state(row)) == (0, "")


def test_secret_of_another_channel_gets_401(announced_fleet: Fleet, caller: PagerDutyCaller) -> None:
    link(factories.operator(), "pagerduty", "PLH1HKV")
    another = channel_of("pagerduty", announced_fleet.now, routing_key="y" * 32, signing_secret="a third")
    for channel in (another.pk, 999_999):
        caller.channel = channel
        assert caller.send(acknowledged(KEY)) == 401
    # One with the same secret holds no such incident.
    second_channel = channel_of("pagerduty", announced_fleet.now, routing_key="y" * 32, signing_secret=SECRET)
    caller.channel = second_channel.pk
    assert caller.send(acknowledged(KEY)) == 200
    assert not Claim.objects.exists()
