"""Claims from Slack and PagerDuty: Drydock claims the event for the user who acted, within their rights."""

import hashlib
import hmac
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import msgspec
import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.accounts import external_accounts
from fleet.models import Approval, Claim, Entry, OutsideAccount
from fleet.notifications.channels import pagerduty
from fleet.notifications.channels.slack import CLAIM_ACTION, OPEN_ACTION
from fleet.notifications.incidents import Badness, PagerKey
from fleet.notifications.models import Channel, Reference
from tests import factories
from tests.dashboard.conftest import logged_in
from tests.factories import EVENT, Fleet, acting, admin
from tests.messages.posts import channel_of
from tests.messages.pretend_slack import TOKEN, PretendSlack
from tests.processes import wait_for

pytestmark = pytest.mark.django_db
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"


def link(user: User, kind: str, account: str, team: str = "") -> None:
    """An admin states that an account of Slack or PagerDuty is this user's."""
    external_accounts.link(
        actor=acting(admin()), username=user.username, kind=kind, team=team, account=account, now=datetime.now(UTC)
    )


def digest(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def press(event_id: str, *, user: str = "U1", response_url: str = "", **changed: Any) -> bytes:
    """Return the form that Slack sends when a user presses *Claim*."""
    payload = {
        "type": "block_actions",
        "user": {"id": user, "username": "otto.o", "name": "otto.o", "team_id": "T1"},
        "team": {"id": "T1", "domain": "example"},
        "channel": {"id": "C0SHOP", "name": "shop-ops"},
        "response_url": response_url,
        "actions": [{"action_id": CLAIM_ACTION, "type": "button", "value": event_id}],
        **changed,
    }
    return urlencode({"payload": json.dumps(payload)}).encode()


@dataclass
class SlackCaller:
    """Slack, calling back. `skew`: how many seconds its clock is ahead."""

    client: Client
    channel: int
    secret: str = SECRET
    skew: int = 0

    def headers(self, body: bytes) -> dict[str, str]:
        stated = str(int(time.time()) + self.skew)
        signed = digest(self.secret, f"v0:{stated}:".encode() + body)
        return {"X-Slack-Request-Timestamp": stated, "X-Slack-Signature": f"v0={signed}"}

    def send(self, body: bytes, **headers: str) -> int:
        return called(self, "slack", body, self.headers(body) | headers, "application/x-www-form-urlencoded")


def acknowledged(key: str, *, agent: Any = "", **changed: Any) -> bytes:
    """Return the body that PagerDuty sends when a user acknowledges an incident."""
    who = {"html_url": "https://x.pagerduty.com/users/PLH1HKV", "id": "PLH1HKV", "summary": "Otto O"}
    event = {
        "id": uuid4().hex,
        "event_type": "incident.acknowledged",
        "occurred_at": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "agent": {**who, "type": "user_reference"} if agent == "" else agent,
        "data": {"id": "PGR0VU2", "type": "incident", "status": "acknowledged", "incident_key": key},
        **changed,
    }
    return json.dumps({"event": event}).encode()


@dataclass
class PagerDutyCaller:
    """PagerDuty, calling back."""

    client: Client
    channel: int
    secret: str = SECRET

    def send(self, body: bytes, **headers: str) -> int:
        # While a secret is renewed, both sign.
        signed = f"v1={digest('another', body)},v1={digest(self.secret, body)}"
        return called(self, "pagerduty", body, {"X-PagerDuty-Signature": signed} | headers, "application/json")


def called(caller: SlackCaller | PagerDutyCaller, kind: str, body: bytes, headers: dict[str, str], form: str) -> int:
    """Make the call of a receiver. Return the status of the answer."""
    answer = caller.client.post(f"/hooks/{kind}/{caller.channel}/", body, content_type=form, headers=headers)
    return int(answer.status_code)


@pytest.fixture
def caller(announced_fleet: Fleet) -> SlackCaller:
    row = channel_of("slack", announced_fleet.now, token=TOKEN, channel="#shop-ops", signing_secret=SECRET)
    link(factories.operator(), "slack", "U1", "T1")
    return SlackCaller(Client(), row.pk)


def said(there: PretendSlack) -> str:
    """Return the last private answer in Slack, which only the user who pressed sees."""
    found = wait_for(lambda: there.whispers.pop() if there.whispers else None, seconds=10, what="an answer in Slack")
    assert (found["response_type"], found["replace_original"]) == ("ephemeral", False)
    return str(found["text"])


def pressed(caller: SlackCaller, there: PretendSlack, event_id: str = EVENT, **changed: Any) -> str:
    """Press *Claim* once more. Return the answer."""
    caller.skew += 1
    assert caller.send(press(event_id, response_url=f"{there.url}/actions/1", **changed)) == 200
    return said(there)


def test_press_claims_the_event_as_the_linked_user(caller: SlackCaller, there: PretendSlack) -> None:
    assert caller.send(press(EVENT, response_url=f"{there.url}/actions/1"), **{"X-Request-ID": "press-1"}) == 200
    row = Claim.objects.get()
    assert (row.by.get_username(), row.via, row.token_name) == ("otto", "slack", "slack #1")
    line = Entry.objects.get(kind="event_claimed")
    assert (factories.who(line), line.via, line.request_id, line.address) == ("otto", "slack", "press-1", "127.0.0.1")
    assert said(there).startswith("You claimed the event as otto.")
    assert not Approval.objects.exists()
    page = logged_in(factories.admin()).get("/audit/?via=slack").content.decode()
    assert "otto" in page and "Slack" in page


def test_unknown_account_gets_a_link_and_claims_nothing(caller: SlackCaller, there: PretendSlack) -> None:
    told = pressed(caller, there, user="U9")
    assert "Nothing was claimed" in told and "U9" in told
    assert not Claim.objects.exists()
    # An admin finds them.
    row = OutsideAccount.objects.get(user=None)
    assert (row.team, row.account, row.name, row.user) == ("T1", "U9", "otto.o", None)
    # The link alone does nothing; who is signed in says that it is theirs.
    address = "/" + told.partition("://")[2].partition("/")[2].split(" ")[0]
    otto = logged_in(factories.operator())
    shown = otto.get(address).content.decode()
    assert "otto.o" in shown and "Is this account yours?" in shown
    assert OutsideAccount.objects.filter(user=None).exists()
    assert otto.post(f"{address}link/").status_code == 302
    assert pressed(caller, there, user="U9").startswith("You claimed the event as otto.")
    assert factories.who(Entry.objects.filter(kind="person_changed", data__did="linked").latest("pk")) == "otto"


def test_claim_needs_the_right_in_the_set(caller: SlackCaller, there: PretendSlack, settings: Any) -> None:
    otto = factories.operator()
    link(factories.viewer(), "slack", "U3", "T1")
    answers = [pressed(caller, there, user="U3")]
    otto.scopes.create(kind="name", pattern="dock*")
    answers.append(pressed(caller, there))
    # Where people read by scope, it does not even exist.
    settings.SCOPED_READ_ACCESS = True
    answers.append(pressed(caller, there))
    assert "needs the right of an operator" in answers[0] and "cannot act in the set web" in answers[1]
    assert "web" not in answers[2]
    User.objects.filter(pk=otto.pk).update(is_active=False)
    assert caller.send(press(EVENT)) == 200
    assert not Claim.objects.exists()


def test_claim_of_another_user_stays(caller: SlackCaller, there: PretendSlack) -> None:
    link(factories.approver(), "slack", "U2", "T1")
    caller.send(press(EVENT, user="U2"))
    assert "anna" in pressed(caller, there)
    assert Claim.objects.get().by.get_username() == "anna"


def test_ended_or_unknown_event_is_not_claimed(
    announced_fleet: Fleet, caller: SlackCaller, there: PretendSlack
) -> None:
    announced_fleet.later(60)
    announced_fleet.all_say()
    for event_id in (EVENT, "no such event", "x" * 5000, "\x00", "\ud800", "'; --"):
        assert "Nothing was claimed." in pressed(caller, there, event_id)
    assert not Claim.objects.exists()


def test_repeated_press_is_taken_once(caller: SlackCaller) -> None:
    body = press(EVENT)
    headers = caller.headers(body)
    # The claim was returned; an attacker who recorded the press sends it once more.
    for count in (1, 0):
        assert caller.send(body, **headers) == 200
        assert Claim.objects.filter(ended_at=None).count() == count
        Claim.objects.update(ended_at=datetime.now(UTC))
    # A new press is a new one.
    caller.skew = 1
    assert caller.send(body) == 200
    assert Claim.objects.filter(ended_at=None).count() == 1


def test_other_actions_do_nothing(caller: SlackCaller) -> None:
    """Slack tells of pressed links, too."""
    for actions in ([{"action_id": OPEN_ACTION, "value": EVENT}], [], None, "x", [7, {"action_id": "other"}]):
        assert caller.send(press(EVENT, actions=actions)) == 200
    assert caller.send(press(EVENT, type="view_submission")) == 200
    assert not Claim.objects.exists()


def test_unsigned_call_gets_401(caller: SlackCaller) -> None:
    wrong = [("X-Slack-Signature", text) for text in ("v0=" + "0" * 64, "v1=" + "0" * 64, "", "v0=" + "é" * 64)]
    wrong += [("X-Slack-Request-Timestamp", text) for text in ("", "-1", "9" * 400, "²")]
    assert {caller.send(press(EVENT), **{name: value}) for name, value in wrong} == {401}
    assert not Claim.objects.exists()


def test_clocks_may_differ_by_five_minutes(caller: SlackCaller) -> None:
    for caller.skew, status in ((-290, 200), (-310, 401), (295, 200), (310, 401)):
        assert caller.send(press(EVENT)) == status


def test_other_disabled_or_deleted_channel_gets_401(announced_fleet: Fleet, caller: SlackCaller) -> None:
    another = channel_of("slack", announced_fleet.now, token=TOKEN, channel="#db", signing_secret="another secret")
    silent = channel_of("slack", announced_fleet.now, token=TOKEN, channel="#db")
    pager = channel_of("pagerduty", announced_fleet.now, routing_key="x" * 32, signing_secret=SECRET)
    ours = caller.channel
    for channel in (another.pk, silent.pk, pager.pk, 999_999, 2**70):
        caller.channel = channel
        assert caller.send(press(EVENT)) == 401
    caller.channel = ours
    for changed in ({"enabled": False}, {"enabled": True, "deleted_at": announced_fleet.now}):
        Channel.objects.filter(pk=ours).update(**changed)
        assert caller.send(press(EVENT)) == 401
    assert not Claim.objects.exists()


def test_unreadable_body_gets_400_and_a_large_one_413(caller: SlackCaller) -> None:
    deep = urlencode({"payload": "[" * 9000}).encode()
    for body in (b"", b"payload=", b"payload=[]", b"payload={", b"\xff\xfe", b"a=1&" * 50, deep):
        assert caller.send(body) == 400
    assert caller.send(b"payload=" + b"x" * (256 * 1024)) == 413
    assert caller.client.get(f"/hooks/slack/{caller.channel}/").status_code == 405


def test_press_without_account_claims_nothing(caller: SlackCaller) -> None:
    users: tuple[Any, ...] = ([], {"id": 7}, {"id": ""}, {"id": "U" * 9000}, {"id": "U 1"})
    for body in (*(press(EVENT, user=user) for user in users), press(EVENT, user="U5", team=None)):
        assert caller.send(body) == 200
    assert not Claim.objects.exists()
    assert OutsideAccount.objects.filter(account__in=["", "U 1"]).count() == 0


def test_answers_are_sent_only_to_slack(caller: SlackCaller, there: PretendSlack) -> None:
    for address in ("http://169.254.169.254/", f"{there.url}/api/chat.postMessage", "file:///etc/passwd", "x"):
        caller.send(press(EVENT, response_url=address))
    assert (there.whispers, there.calls) == ([], [])


def test_names_in_answers_are_escaped(caller: SlackCaller, there: PretendSlack) -> None:
    changes: tuple[dict[str, Any], ...] = ({"user": "<!channel>&"}, {"team": {"id": "<T>"}})
    for changed in changes:
        assert "<" not in pressed(caller, there, **changed)


def test_number_of_unlinked_accounts_is_bounded(caller: SlackCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_accounts, "MOST_STRANGERS", 5)
    for number in range(12):
        caller.send(press(EVENT, user=f"W{number}"))
    assert OutsideAccount.objects.filter(user=None).count() == 5
    assert OutsideAccount.objects.filter(user__isnull=False).count() == 1


KEY = f"drydock-0a1b2c3d-{EVENT}"


@pytest.fixture
def row(announced_fleet: Fleet) -> Channel:
    """A channel that has triggered an incident for the event."""
    found = channel_of("pagerduty", announced_fleet.now, routing_key="x" * 32, signing_secret=SECRET)
    hold(found, f"event:{factories.the_event().pk}")
    return found


@pytest.fixture
def pager(row: Channel) -> PagerDutyCaller:
    link(factories.operator(), "pagerduty", "PLH1HKV")
    return PagerDutyCaller(Client(), row.pk)


def hold(row: Channel, *subjects: str, name: str = KEY, owner: str = "") -> None:
    key = PagerKey(name, row.created_at, Badness(), subjects, subjects)
    Reference.objects.create(
        channel=row, subject=owner or subjects[0], value={"keys": msgspec.to_builtins([key])}, changed_at=row.created_at
    )


def state(row: Channel, name: str = KEY) -> str:
    return pagerduty.reported_states(row.pk, [name]).get(name, "")


def test_acknowledgement_claims_the_event_as_the_linked_user(pager: PagerDutyCaller, row: Channel) -> None:
    assert pager.send(acknowledged(KEY)) == 200
    claim, line = Claim.objects.get(), Entry.objects.get(kind="event_claimed")
    assert (claim.by.get_username(), claim.via) == (factories.who(line), line.via) == ("otto", "pagerduty")
    assert state(row) == "acknowledged"


def test_unknown_account_is_listed_and_claims_nothing(pager: PagerDutyCaller, row: Channel) -> None:
    assert pager.send(acknowledged(KEY, agent={"id": "PX", "summary": "Anna A", "type": "user_reference"})) == 200
    found = OutsideAccount.objects.get(user=None)
    assert (found.kind, found.account, found.name) == ("pagerduty", "PX", "Anna A")
    assert not Claim.objects.exists()
    # Drydock still records that the incident wakes no responder any more.
    assert state(row) == "acknowledged"


def test_newest_reported_state_wins(pager: PagerDutyCaller, row: Channel) -> None:
    now = datetime.now(UTC)
    # The last one is late, and a repeat.
    reports = (("acknowledged", -50), ("unacknowledged", -40), ("resolved", -20), ("acknowledged", -30))
    states = []
    for kind, seconds in reports:
        at = (now + timedelta(seconds=seconds)).isoformat()
        assert pager.send(acknowledged(KEY, event_type=f"incident.{kind}", occurred_at=at)) == 200
        states.append(state(row))
    assert states == ["acknowledged", "triggered", "resolved", "resolved"]


def test_act_of_a_program_claims_nothing(pager: PagerDutyCaller) -> None:
    """Our own acknowledgement comes back as well."""
    agents: tuple[Any, ...] = (None, [], "x", {"id": "PLH1HKV", "type": "inbound_integration_reference"}, {"id": 7}, {})
    for agent in agents:
        assert pager.send(acknowledged(KEY, agent=agent)) == 200
    assert not Claim.objects.exists()


def test_foreign_events_get_200_and_do_nothing(pager: PagerDutyCaller, row: Channel) -> None:
    """Whatever else it answered would end the subscription in time."""
    ping = {"event_type": "pagey.ping", "data": {"message": "Hello from your friend Pagey!"}}
    for body in (
        *(b"", b"{", b"[]", b"[" * 9000, b'{"event": 7}', json.dumps({"event": ping}).encode()),
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
        assert pager.send(body) == 200
        assert (Claim.objects.count(), state(row)) == (0, "")


def test_acknowledged_storm_claims_nothing(pager: PagerDutyCaller, row: Channel) -> None:
    hold(row, f"event:{factories.the_event().pk}", name="storm", owner="group")
    assert pager.send(acknowledged("storm")) == 200
    assert (Claim.objects.count(), state(row, "storm")) == (0, "acknowledged")


def test_repeated_webhook_is_taken_once(pager: PagerDutyCaller) -> None:
    body = acknowledged(KEY)
    for _ in range(3):
        assert pager.send(body) == 200
        Claim.objects.update(ended_at=datetime.now(UTC))
    assert Claim.objects.count() == 1
    # Nor does a repeat count whose header names the same signature among others, of an event without an id.
    body = acknowledged(KEY, id="")
    for times in range(1, 4):
        assert pager.send(body, **{"X-PagerDuty-Signature": ",".join([f"v1={digest(SECRET, body)}"] * times)}) == 200
        Claim.objects.update(ended_at=datetime.now(UTC))
    assert Claim.objects.count() == 2


def test_old_acknowledgement_claims_nothing(pager: PagerDutyCaller) -> None:
    old = (datetime.now(UTC) - timedelta(hours=3)).isoformat()
    # A clock that is ahead counts as now.
    for at, count in ((old, 0), ("0001-01-01T00:00:00Z", 0), ("9999-12-31T23:59:59Z", 1)):
        assert pager.send(acknowledged(KEY, occurred_at=at)) == 200
        assert Claim.objects.count() == count


def test_call_without_signature_of_pagerduty_gets_401(
    announced_fleet: Fleet, pager: PagerDutyCaller, row: Channel
) -> None:
    for signature in ("", "v1=", "v1=" + "0" * 64, "v0=" + "0" * 64, "x" * 5000, "v1=é"):
        assert pager.send(acknowledged(KEY), **{"X-PagerDuty-Signature": signature}) == 401
    # One with the same secret holds no such incident.
    for secret, status in (("a third", 401), (SECRET, 200)):
        another = channel_of("pagerduty", announced_fleet.now, routing_key="y" * 32, signing_secret=secret)
        pager.channel = another.pk
        assert pager.send(acknowledged(KEY)) == status
    pager.channel = 999_999
    assert pager.send(acknowledged(KEY)) == 401
    assert (Claim.objects.count(), state(row)) == (0, "")
