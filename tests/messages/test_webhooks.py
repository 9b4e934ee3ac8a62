"""Webhooks: signed for the documented receiver, with the event as the API shows it."""

import base64
import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from standardwebhooks import Webhook

from fleet.domain.egress import AddressRefusal
from fleet.domain.secrets import new_secret as new_token
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.notifications import labels
from fleet.notifications.channels import apprise, mail, webhook
from fleet.notifications.delivery import OWN_FAILURE
from fleet.notifications.labels import ABOUT, ERRORS, error_words
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.sender.jobs import SendError
from fleet.projections.events.detail import event_detail
from tests.api.conftest import Caller
from tests.approvals.asking import hook
from tests.caches.walking import EXAMPLE, Listeners
from tests.factories import EVENT, Fleet, announced
from tests.messages.posts import ChannelDriver, driver_of
from tests.messages.telling import a_message, news
from tests.processes import PYTHON, ROOT, Process, free_port, running, wait_for
from tests.receivers import receiver
from tests.rows import PersonFactory, TokenFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("reach_loopback")]


def new_secret() -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"


SECRET = new_secret()


class Documented:
    """The receiver of the documentation, running."""

    def __init__(self, process: Process, port: int) -> None:
        self.process, self.url = process, f"http://127.0.0.1:{port}/hook"

    def said(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.process.said().splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Documented]:
    text = (ROOT / "docs" / "admin" / "channels" / "webhook.md").read_text(encoding="utf-8")
    [program] = [part for part in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "Webhook(" in part]
    folder = tmp_path_factory.mktemp("receiver")
    path, port = folder / "receiver.py", free_port()
    path.write_text(program)
    environment = {"SECRET": SECRET, "PORT": str(port), "PYTHONUNBUFFERED": "1"}
    with running([PYTHON, "-I", str(path)], environment=environment, log=folder / "log") as process:
        there = Documented(process, port)
        wait_for(lambda: listens(there.url), seconds=20, what="the receiver listens")
        yield there


def listens(url: str) -> bool:
    try:
        return requests.post(url, data=b"{}", timeout=5).status_code == 400
    except requests.ConnectionError:
        return False


@pytest.fixture
def fleet(announced_fleet: Fleet) -> Fleet:
    return announced_fleet


def driver_to(fleet: Fleet, url: str, **more: str) -> ChannelDriver:
    return driver_of(webhook, fleet, url=url, **{"secret": SECRET, **more})


def test_the_receiver_of_the_documentation_takes_each_message_once(fleet: Fleet, documented: Documented) -> None:
    driver = driver_to(fleet, documented.url)
    before = len(documented.said())
    post = driver.post(NotificationType.FIRST_SEEN)
    for _ in range(2):
        outcome = driver.send(post)
        assert (outcome.ok, outcome.status) == (True, 204)
    [message] = documented.said()[before:]
    assert message == {
        "type": "event.first_seen",
        "timestamp": iso(fleet.now),
        "data": webhook.event_data(post.items[0].news),
    }


def test_webhook_is_refused_unless_one_of_its_secrets_signed_it(fleet: Fleet, documented: Documented) -> None:
    outcome = driver_to(fleet, documented.url, secret=new_secret()).first_seen(EVENT)
    assert (outcome.ok, outcome.status) == (False, 400)
    for headers in ({}, {"webhook-id": "1", "webhook-timestamp": "x", "webhook-signature": "y"}):
        assert requests.post(documented.url, data=b"{}", headers=headers, timeout=5).status_code == 400
    until = iso(fleet.now + timedelta(days=1))
    both = {"secret": new_secret(), "earlier_secret": SECRET, "earlier_secret_until": until}
    assert driver_to(fleet, documented.url, **both).first_seen(EVENT).ok


def test_times_of_any_zone_are_signed_as_they_are(fleet: Fleet) -> None:
    at = datetime(2026, 11, 22, 13, tzinfo=UTC)
    elsewhere = at.astimezone(datetime.strptime("+0530", "%z").tzinfo)
    values = {"secret": SECRET}
    assert webhook.signed("id", "{}", values, now=at) == webhook.signed("id", "{}", values, now=elsewhere)


def test_digest_and_test_message_are_marked(fleet: Fleet) -> None:
    with receiver() as there:
        driver = driver_to(fleet, there.url)
        assert driver.tell(NotificationType.FIRST_SEEN, NotificationType.CLAIMED).ok
        assert driver.tell().ok
    group, tried = [json.loads(each.body) for each in there.got]
    assert (group["type"], group["data"]["count"], group["data"]["others"]) == ("group", 2, [])
    assert [item["type"] for item in group["data"]["items"]] == ["event.first_seen", "event.claimed"]
    assert tried["type"] == "test" and set(tried["data"]) == {"title", "url"}
    headers = there.got[0].headers
    assert headers["content-type"] == "application/json"
    Webhook(SECRET).verify(there.got[0].body, headers)


def test_a_storm_is_bounded_and_names_what_has_no_room(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as there:
        driver = driver_to(fleet, there.url)
        post = driver.post(NotificationType.FIRST_SEEN)
        post = replace(post, moment="group", items=post.items * 1000)
        assert driver.send(post).ok
        monkeypatch.setattr(webhook, "event_data", lambda news: {"text": "x" * 10_000})
        assert driver.send(post).ok
    small, big = [json.loads(each.body)["data"] for each in there.got]
    assert (small["count"], len(small["items"]), len(small["others"])) == (1000, 200, 800)
    assert 0 < len(big["items"]) < 50 and len(big["items"]) + len(big["others"]) == big["count"] == 1000
    assert {each["type"] for each in big["others"]} == {"event.first_seen"}
    assert big["others"][0]["url"].endswith(f"/events/{EVENT}/")
    assert all(len(each.body) <= webhook.MOST_BYTES for each in there.got)


def test_what_a_receiver_answers_decides_what_becomes_of_it(fleet: Fleet) -> None:
    refused, gone, retried = (400, 422), (410,), (401, 404, 429, 500, 503, 302)
    with receiver() as there:
        driver = driver_to(fleet, there.url)
        there.headers, there.body = {"Retry-After": "30", "Location": "/"}, b"no"
        for there.status in (*refused, *gone, *retried):
            outcome = driver.first_seen(EVENT)
            assert (outcome.ok, outcome.status, outcome.answer) == (False, there.status, "no")
            assert (outcome.again, outcome.gone) == (there.status in retried, there.status in gone)
            assert outcome.wait_seconds == (30.0 if there.status in (429, 503) else None)
    assert len(there.got) == len((*refused, *gone, *retried))


def test_whatever_goes_wrong_has_words() -> None:
    codes = {error.value for error in SendError} - {""}
    for module in Path(labels.__file__).parent.rglob("*.py"):
        codes.update(re.findall(r'error="([a-z-]+)"', module.read_text()))
    assert {"too-many-calls", "secrets-unreadable"} <= codes
    assert codes | {mail.NO_SERVER, mail.SOME_REFUSED, OWN_FAILURE} <= set(ERRORS)
    assert {reason.value for reason in AddressRefusal} | {"beside_proxy"} <= set(ABOUT)
    assert error_words("refused_address:loopback") == "Drydock does not send to this address (this machine)"


ADDITIONAL = {"url", "decide_by", "stay_up", "blast", "severity", "drill"}
# Counted from the moment of the answer.
CLOCKS = {"server_time", "seconds_left", "started_seconds"}


def asked(address: str) -> Any:
    secret = new_token("dd")
    TokenFactory(user=PersonFactory(username="vera", groups=["viewer"]), secret=secret)
    return Caller(secret).get(address).json()


def told(kind: EntryKind, now: datetime, shown: dict[str, Any]) -> dict[str, Any]:
    """The data of a webhook, which the API shows alike; a list of the API may have more fields."""
    data = dict(webhook.event_data(news(a_message(kind, now=now), now=now)))
    names = data.keys() - ADDITIONAL
    assert names <= shown.keys()
    assert {name: data[name] for name in names - CLOCKS} == {name: shown[name] for name in names - CLOCKS}
    return data


def test_an_event_is_as_the_api_shows_it() -> None:
    fleet = Fleet(datetime.now(UTC))
    announced(fleet)
    (shown,) = asked("events/")["results"]
    data = told(EntryKind.EVENT_SEEN, fleet.now, shown)
    assert data.keys() == shown.keys() | ADDITIONAL
    detail = event_detail(event_id=EVENT, now=fleet.now)
    assert detail is not None and detail.decide_by is not None
    assert data["stay_up"] == data["blast"]["stay_up"] == detail.blast.stay_up == 4
    assert (data["decide_by"], data["url"][-38:]) == (iso(detail.decide_by), f"/{EVENT}/")
    assert (data["severity"], data["drill"]) == ("info", False)


def test_hooks_of_one_machine_are_about_the_event_and_name_the_machine() -> None:
    fleet = Fleet(datetime.now(UTC))
    announced(fleet)
    hook(fleet, "vm2", EVENT, "end", "failed")
    data = webhook.event_data(news(a_message(EntryKind.HOOKS_ENDED, now=fleet.now), now=fleet.now))
    assert (data["event_id"], data["machine"], data["url"][-38:]) == (EVENT, "vm2", f"/{EVENT}/")


def test_a_maintenance_is_as_the_api_shows_it() -> None:
    listeners = Listeners(now=datetime.now(UTC))
    listeners.enrol("vm1")
    listeners.cover("vm1", "subscribed", tier="basic")
    listeners.hear("vm1", EXAMPLE[0][1])
    (shown,) = asked("maintenances/")["results"]
    data = told(EntryKind.MAINTENANCE_SCHEDULED, listeners.now, shown)
    assert (data["severity"], data["cache"]["host"][:6]) == ("warning", "orders")
    assert data["url"].endswith(f"/maintenances/{shown['id']}/")


# Apprise, with its real library, to a real receiver.


def test_service_gets_the_event_and_a_link_to_decide(fleet: Fleet) -> None:
    with receiver() as there:
        driver = driver_of(apprise, fleet, url=f"json://127.0.0.1:{there.port}/hook")
        assert driver.tell(NotificationType.FIRST_SEEN, lines=["4 of 6 stay up.", "<b>x</b>"]).ok
    [got] = there.got
    said = json.loads(got.body)
    assert got.path == "/hook"
    assert (said["title"], said["type"]) == ("Freeze of vm1, vm2", "warning")
    assert said["message"] == f"4 of 6 stay up.\n<b>x</b>\nhttps://drydock.example/events/{EVENT}/"


def test_worst_event_sets_the_colour(fleet: Fleet) -> None:
    driver = driver_of(apprise, fleet, url="json://127.0.0.1/")
    first, ended = NotificationType.FIRST_SEEN, NotificationType.ENDED
    tones = [apprise.tone_of(driver.post(*moments)) for moments in ((ended,), (ended, first), ())]
    driver.severity[EVENT] = "critical"
    assert [*tones, apprise.tone_of(driver.post(ended, first))] == ["success", "warning", "info", "failure"]


def test_a_service_that_wants_time_gets_it_and_its_secrets_are_not_shown(fleet: Fleet) -> None:
    with receiver() as there:
        there.status, there.headers, there.body = 429, {"Retry-After": "30"}, b"slow down, /tokentokentoken"
        outcome = driver_of(apprise, fleet, url=f"json://127.0.0.1:{there.port}/tokentokentoken").first_seen(EVENT)
    assert (outcome.ok, outcome.again, outcome.status, outcome.wait_seconds) == (False, True, 429, 30.0)
    assert outcome.answer == "slow down, /***"


def test_what_is_on_no_list_is_refused_with_the_reason(fleet: Fleet) -> None:
    for url, why in (("syslog://", "schema"), ("json://h/?verify=no", "parameter"), ("x", "unknown_service")):
        outcome = driver_of(apprise, fleet, url=url).first_seen(EVENT)
        assert (outcome.ok, outcome.error) == (False, f"bad_url:{why}")
