"""PagerDuty, played by a stand-in that refuses what the real one refuses: what an operator sees there.

"Send an alert event" and "Overview" in PagerDuty's developer documentation: fields and their limits, 202, 400 and 429,
512 kB, about 120 events a minute and key; a key that is open takes further triggers in silence, and one after its
resolution opens a new alert.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from fleet.models import ScheduledEvent
from fleet.notifications.channels import pagerduty
from fleet.notifications.incidents import FEW, Alarm, Badness, Incidents, PagerKey, PagerState
from fleet.notifications.models import Reference
from fleet.notifications.notification_types import NotificationType
from tests import factories
from tests.factories import EVENT, Fleet
from tests.messages.posts import ChannelDriver, claim, driver_of, wave
from tests.messages.pretend import Said, listening

pytestmark = pytest.mark.django_db
ROUTING_KEY, SECOND = "R" + "0123456789abcde" * 2 + "f", "S" * 32
MOST_BODY = 512 * 1024


def text(least: int, most: int | None = None) -> dict[str, Any]:
    return {"type": "string", "minLength": least} | ({} if most is None else {"maxLength": most})


PAYLOAD = {
    "type": "object",
    "required": ["summary", "source", "severity"],
    "properties": {
        "summary": text(1, 1024),
        "source": text(1),
        "severity": {"enum": ["critical", "error", "warning", "info"]},
        "timestamp": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"},
        "custom_details": {"type": ["object", "string"]},
        **dict.fromkeys(("component", "group", "class"), text(0)),
    },
}
LINK = {"properties": {"href": {"pattern": "^https?://"}, "text": {}}, "additionalProperties": False}
# PagerDuty generates a missing key for a trigger; a sender that wants to resolve the incident must name one.
SCHEMA = {
    "type": "object",
    "required": ["routing_key", "event_action", "dedup_key"],
    "properties": {
        "routing_key": text(32, 32),
        "event_action": {"enum": ["trigger", "acknowledge", "resolve"]},
        "dedup_key": text(1, 255),
        "payload": PAYLOAD,
        "links": {"items": LINK},
    },
    "if": {"properties": {"event_action": {"const": "trigger"}}},
    "then": {"required": ["payload"]},
}


@dataclass
class Incident:
    """One alert with its incident. `rang`: how often PagerDuty called a responder for it."""

    key: str
    routing_key: str
    summary: str
    severity: str
    state: str = "triggered"
    rang: int = 1


@dataclass
class PretendPagerDuty:
    """`routing_keys` are those of its services; `allowed`: so many events it takes before it answers 429."""

    routing_keys: set[str] = field(default_factory=lambda: {ROUTING_KEY})
    incidents: list[Incident] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    refused: list[list[str]] = field(default_factory=list)
    allowed: int = 1_000_000
    # Answers that come before anything is looked at, such as 500.
    instead: list[Said] = field(default_factory=list)
    url: str = ""

    def asked(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Said:
        if self.instead:
            return self.instead.pop(0)
        if (method, path) != ("POST", "/v2/enqueue"):
            return said(404, {"message": "Not Found"})
        if len(body) > MOST_BODY:
            return said(413, {"message": "Payload Too Large"})
        try:
            event = json.loads(body)
        except ValueError:
            return self.refuse(["JSON is invalid"])
        if headers.get("content-type") != "application/json":
            return self.refuse(["Content-Type is not application/json"])
        wrong = list(faults(event, self.routing_keys))
        if wrong:
            return self.refuse(wrong)
        if self.allowed <= 0:
            return said(429, {"message": "Too Many Requests"})
        self.allowed -= 1
        self.events.append(event)
        self.take(event)
        return said(202, {"status": "success", "message": "Event processed", "dedup_key": event["dedup_key"]})

    def refuse(self, wrong: list[str]) -> Said:
        self.refused.append(wrong)
        return said(400, {"status": "invalid event", "message": "Event object is invalid", "errors": wrong})

    def take(self, event: dict[str, Any]) -> None:
        key, routing_key = event["dedup_key"], event["routing_key"]
        found = next((i for i in self.open if (i.key, i.routing_key) == (key, routing_key)), None)
        if event["event_action"] != "trigger":
            if found is not None:
                found.state = f"{event['event_action']}d"
        elif found is None:
            payload = event["payload"]
            self.incidents.append(Incident(key, routing_key, payload["summary"], payload["severity"]))
        # Otherwise the trigger is logged; PagerDuty calls no responder.

    @property
    def open(self) -> list[Incident]:
        return [incident for incident in self.incidents if incident.state != "resolved"]

    def states(self) -> list[tuple[str, str]]:
        """Every alert that there ever was, oldest first: the end of its key, and its state."""
        return [(incident.key.split("-", 2)[2], incident.state) for incident in self.incidents]


def said(status: int, body: Mapping[str, Any]) -> Said:
    return Said(status, json.dumps(body).encode())


def faults(event: Any, routing_keys: set[str]) -> Iterator[str]:
    """What is wrong with an event."""
    yield from (error.message for error in Draft202012Validator(SCHEMA).iter_errors(event))
    if isinstance(event, dict) and event.get("routing_key") not in routing_keys:
        yield "Invalid routing key"


@pytest.fixture
def there() -> Iterator[PretendPagerDuty]:
    service = PretendPagerDuty()
    with listening(service):
        yield service


@pytest.fixture
def driver(
    fleet: Fleet, there: PretendPagerDuty, reach_loopback: None, monkeypatch: pytest.MonkeyPatch
) -> ChannelDriver:
    monkeypatch.setattr(pagerduty, "URLS", {False: f"{there.url}/v2/enqueue", True: f"{there.url}/eu/v2/enqueue"})
    factories.announced(fleet)
    return driver_of(pagerduty, fleet, routing_key=ROUTING_KEY, signing_secret="x" * 32)


def test_event_is_triggered_acknowledged_and_resolved(driver: ChannelDriver, there: PretendPagerDuty) -> None:
    outcome = driver.tell(NotificationType.FIRST_SEEN, lines=["4 of 6 stay up."])
    assert (outcome.ok, outcome.status) == (True, 202)
    assert ROUTING_KEY not in json.dumps([outcome.answer, list(Reference.objects.values_list("value", flat=True))])
    assert there.states() == [(EVENT, "triggered")]
    (event,) = there.events
    assert event["client_url"] == event["links"][0]["href"] == f"https://drydock.example/events/{EVENT}/"
    assert (event["payload"]["summary"], event["payload"]["source"]) == ("Freeze of vm1, vm2", "web")
    assert "4 of 6 stay up." in event["payload"]["custom_details"]["text"]
    driver.fleet.later(5)
    claim(driver.fleet)
    assert driver.tell(NotificationType.CLAIMED).ok
    assert there.states() == [(EVENT, "acknowledged")]
    driver.fleet.all_say()
    assert driver.tell(NotificationType.ENDED).ok
    assert there.states() == [(EVENT, "resolved")]
    # A failed recovery is an incident of its own, after the event.
    driver.tell(NotificationType.RECOVER_FAILED)
    assert [state for _, state in there.states()] == ["resolved", "triggered"]
    driver.tell(NotificationType.SERVES_AGAIN)
    assert [state for _, state in there.states()] == ["resolved", "resolved"]
    assert not Reference.objects.exists()


def test_delivery_repeated_after_a_kill_opens_no_second_incident(
    driver: ChannelDriver, there: PretendPagerDuty
) -> None:
    for moment, state in ((NotificationType.FIRST_SEEN, "triggered"), (NotificationType.ENDED, "resolved")):
        driver.send(driver.post(moment, post_id=state), keep=False)
        driver.send(driver.post(moment, post_id=state))
        assert (there.states(), there.incidents[0].rang) == ([(EVENT, state)], 1)
        driver.fleet.all_say()


def test_overdue_order_rings_again_after_acknowledgement_at_pagerduty(
    driver: ChannelDriver, there: PretendPagerDuty
) -> None:
    driver.first_seen(EVENT)
    key, now = there.incidents[0].key, driver.fleet.now
    for state, ago in ((PagerState.ACKNOWLEDGED, 0), (PagerState.TRIGGERED, 9)):
        # The older report arrives last.
        pagerduty.note_state(driver.row.pk, key, state=state, at=now - timedelta(seconds=ago), now=now)
    found = pagerduty.find_key(driver.row.pk, key)
    assert found is not None and (found[0], len(found[1].subjects)) == (f"event:{factories.the_event().pk}", 1)
    driver.tell(NotificationType.OVERDUE)
    assert len(there.open) == 2
    driver.fleet.all_say()
    driver.tell(NotificationType.ENDED)
    # After the end, no reference of the event or its notifications remains.
    assert (there.open, Reference.objects.count()) == ([], 0)


def test_storm_is_one_incident(driver: ChannelDriver, there: PretendPagerDuty) -> None:
    events = wave(driver.fleet, 12)
    assert driver.first_seen(*events).ok
    assert [(incident.summary, incident.state) for incident in there.incidents] == [("12 messages", "triggered")]
    for number, left in ((range(11), 1), (range(11, 12), 0)):
        for each in number:
            driver.fleet.say(f"w{each}")
        driver.tell(*[(NotificationType.ENDED, events[each]) for each in number])
        assert len(there.open) == left
    assert len(there.events) == 2


def test_drill_is_labelled_with_severity_info(driver: ChannelDriver, there: PretendPagerDuty) -> None:
    ScheduledEvent.objects.update(drill=True)
    driver.severity[EVENT] = "critical"
    driver.first_seen(EVENT)
    assert (there.incidents[0].summary, there.incidents[0].severity) == ("DRILL: Freeze of vm1, vm2", "info")


def test_long_texts_stay_within_pagerduty_limits(driver: ChannelDriver, there: PretendPagerDuty) -> None:
    lines = ["\N{PILE OF POO}<b>" * 400] * 900
    assert driver.tell(NotificationType.FIRST_SEEN, title="x" * 5000 + "\x00", lines=lines).ok
    assert (there.refused, len(there.incidents[0].summary)) == ([], 1024)


def test_channel_test_triggers_an_info_incident_in_the_region(driver: ChannelDriver, there: PretendPagerDuty) -> None:
    assert driver.tell().status == 202
    assert [(incident.severity, incident.state) for incident in there.incidents] == [("info", "triggered")]
    driver.values["eu"] = True
    assert driver.tell().status == 404


def test_unknown_routing_key_is_retried(driver: ChannelDriver, there: PretendPagerDuty) -> None:
    there.routing_keys.clear()
    outcome = driver.first_seen(EVENT)
    assert (outcome.ok, outcome.again, outcome.status) == (False, True, 400)
    assert "routing key" in outcome.answer and ROUTING_KEY not in outcome.answer
    assert not Reference.objects.exists()


def test_refusal_is_retried_unless_it_is_about_one_event(driver: ChannelDriver, there: PretendPagerDuty) -> None:
    events = wave(driver.fleet, 3)
    for status, again, wait, opened in (
        *[(403, True, 60.0, 0), (429, True, 60.0, 0), (500, True, None, 0)],
        # A refused event does not block others.
        (400, False, None, 2),
    ):
        there.instead = [said(status, {"status": "invalid event", "errors": ["'payload.summary' is odd"]})]
        outcome = driver.first_seen(*events)
        assert (outcome.ok, outcome.again, outcome.status) == (False, again, status)
        assert (outcome.wait_seconds, len(there.open)) == (wait, opened)


def test_calls_before_the_rate_limit_are_not_repeated(driver: ChannelDriver, there: PretendPagerDuty) -> None:
    events = wave(driver.fleet, 3)
    there.allowed = 2
    assert driver.first_seen(*events).again
    assert Reference.objects.count() == 2
    there.allowed = 9
    assert driver.first_seen(*events).ok
    assert (len(there.open), len(there.events)) == (3, 3)


def test_incident_is_acknowledged_and_resolved_with_its_key(driver: ChannelDriver, there: PretendPagerDuty) -> None:
    there.routing_keys.add(SECOND)
    driver.first_seen(EVENT)
    driver.values |= {"routing_key": SECOND, "earlier_routing_key": ROUTING_KEY}
    driver.fleet.later(5)
    driver.fleet.approve()
    driver.tell(NotificationType.DECIDED)
    assert there.states() == [(EVENT, "acknowledged")]
    driver.fleet.all_say()
    driver.tell(NotificationType.ENDED)
    assert (there.open, [event["routing_key"] for event in there.events]) == ([], [ROUTING_KEY] * 3)


# Pager incidents: one for each event, another for a worse state, one for a storm, and each is resolved in the end.


T0 = datetime(2026, 3, 2, 14, 0, tzinfo=UTC)
FREEZE = Badness("info", "Freeze", T0 + timedelta(minutes=15))
REDEPLOY = Badness("warning", "Redeploy", T0 + timedelta(minutes=15))


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


@dataclass
class Desk:
    """Tells the pager, and keeps what it keeps as JSON, as a channel does."""

    has_webhooks: bool = True
    pager: PretendPagerDuty = field(default_factory=PretendPagerDuty)
    kept: dict[str, Any] = field(default_factory=dict)
    there: dict[str, PagerState] = field(default_factory=dict)
    posts: int = 0
    calls: int = 0

    @property
    def open(self) -> dict[str, str]:
        return {incident.key: incident.state for incident in self.pager.open}

    def tell(self, *alarms: Alarm, now: datetime = T0, fail_after: int = 1_000_000) -> list[str]:
        """The posts' names of keys that rang; the post is cut off after so many calls."""
        self.posts += 1
        rang = len(self.pager.incidents)
        keys = {owner: msgspec.convert(found, list[PagerKey]) for owner, found in self.kept.items()}
        incidents = Incidents(keys, "group", "a", self.has_webhooks, self.there)
        for number, call in enumerate(incidents.calls(alarms, prefix="drydock-x", delivery=str(self.posts), now=now)):
            if number == fail_after:
                break
            self.calls += 1
            known = {"routing_key": ROUTING_KEY, "payload": {"summary": "", "severity": ""}}
            self.pager.take({"event_action": call.action, "dedup_key": call.key.name, **known})
            incidents.take(call)
        self.kept = {owner: msgspec.to_builtins(found) for owner, found in incidents.keys.items() if found}
        return [incident.key for incident in self.pager.incidents[rang:]]


def alarm(number: int = 1, bad: Badness = FREEZE, when: float = 0, **known: Any) -> Alarm:
    return Alarm(f"event:{number}", f"E{number}", at(when), bad, **{"opens": True, **known})


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_ended_or_informing_notification_opens_no_incident(desk: Desk) -> None:
    desk.tell(alarm(opens=False, handled_at=at(3)))
    assert desk.calls == 0
    desk.tell(alarm())
    # An hour late, by hand, or in any order.
    for _ in range(4):
        desk.tell(alarm(over=True))
    assert (len(desk.pager.incidents), desk.open) == (1, {})
    # It is open again.
    assert desk.tell(alarm(when=90)) == ["drydock-x-E1"]


@pytest.mark.parametrize(
    "worse", [REDEPLOY, replace(FREEZE, not_before=at(60)), replace(FREEZE, severity="critical")], ids=str
)
def test_worse_event_opens_a_second_key_resolved_with_the_first(desk: Desk, worse: Badness) -> None:
    desk.tell(alarm(handled_at=at(5)))
    assert desk.tell(alarm(bad=worse, when=30, handled_at=at(5))) == ["drydock-x-E1-2"]
    assert desk.open == {"drydock-x-E1": PagerState.ACKNOWLEDGED, "drydock-x-E1-2": PagerState.TRIGGERED}
    # The claim is older than the news: it says nothing about it. A newer one does.
    desk.tell(alarm(bad=worse, when=30, opens=False, handled_at=at(5)))
    assert desk.open["drydock-x-E1-2"] == PagerState.TRIGGERED
    desk.tell(alarm(bad=worse, when=30, opens=False, handled_at=at(40)))
    assert set(desk.open.values()) == {PagerState.ACKNOWLEDGED}
    desk.tell(alarm(bad=worse, opens=False, over=True))
    assert desk.open == {}


CLAIMED = {"handled_at": at(5)}


@pytest.mark.parametrize(
    ("first", "then", "reported", "rings"),
    [
        # Milder or later does not ring, worse or overdue does.
        ({"bad": REDEPLOY, **CLAIMED}, {"bad": FREEZE, **CLAIMED}, None, False),
        ({"bad": REDEPLOY, **CLAIMED}, {"bad": replace(REDEPLOY, not_before=at(3600)), **CLAIMED}, None, False),
        ({"bad": REDEPLOY, **CLAIMED}, {"bad": replace(REDEPLOY, not_before=None), **CLAIMED}, None, False),
        (CLAIMED, {"wakes": True, **CLAIMED}, None, True),
        # The state that the pager reports counts.
        *(({}, {}, state, False) for state in (PagerState.ACKNOWLEDGED, PagerState.RESOLVED)),
        *(({}, {"bad": REDEPLOY}, state, True) for state in (PagerState.ACKNOWLEDGED, PagerState.RESOLVED)),
    ],
)
def test_known_event_rings_again_only_for_news(
    desk: Desk, first: dict[str, Any], then: dict[str, Any], reported: PagerState | None, rings: bool
) -> None:
    desk.tell(alarm(**first))
    if reported:
        desk.there["drydock-x-E1"] = reported
    assert desk.tell(alarm(when=30, **then)) == (["drydock-x-E1-2"] if rings else [])


def test_worse_event_updates_a_ringing_key(desk: Desk) -> None:
    desk.tell(alarm())
    calls = desk.calls
    # It is known from then on.
    for when in (30, 31):
        assert desk.tell(alarm(bad=REDEPLOY, when=when)) == []
        assert (desk.calls, list(desk.open)) == (calls + 1, ["drydock-x-E1"])
    unreported = Desk(has_webhooks=False)
    unreported.tell(alarm())
    assert unreported.tell(alarm(bad=REDEPLOY, when=30)) == ["drydock-x-E1-2"]


def test_few_events_have_an_incident_each_and_that_of_a_storm_ends_with_its_last_event(desk: Desk) -> None:
    assert len(Desk().tell(*[alarm(n) for n in range(FEW)])) == FEW
    assert desk.tell(*[alarm(n) for n in range(1000)]) == ["drydock-x-storm-1"]
    assert desk.tell(*[alarm(n) for n in range(1000, 1500)]) == []
    desk.tell(*[alarm(n, opens=False, over=True) for n in range(1400)])
    assert desk.open == {"drydock-x-storm-1": PagerState.TRIGGERED}
    desk.tell(*[alarm(n, opens=False, handled_at=at(9)) for n in range(1400, 1499)])
    assert desk.open == {"drydock-x-storm-1": PagerState.TRIGGERED}
    desk.tell(alarm(1499, opens=False, handled_at=at(9)))
    assert desk.open == {"drydock-x-storm-1": PagerState.ACKNOWLEDGED}
    # One of them becomes worse: the user who acknowledged the storm must learn of it.
    assert desk.tell(alarm(1450, bad=REDEPLOY, when=20, handled_at=at(9))) == ["drydock-x-E1450"]
    desk.tell(*[alarm(n, opens=False, over=True) for n in range(1400, 1500)])
    assert (desk.open, desk.kept) == ({}, {})
    assert desk.calls < 12


def test_second_wave_rings_after_acknowledgement(desk: Desk) -> None:
    desk.tell(*[alarm(n) for n in range(100)])
    desk.there["drydock-x-storm-1"] = PagerState.ACKNOWLEDGED
    assert desk.tell(*[alarm(n) for n in range(100, 200)]) == ["drydock-x-storm-2"]


def test_old_storm_takes_no_events_without_webhooks() -> None:
    desk = Desk(has_webhooks=False)
    desk.tell(*[alarm(n) for n in range(100)])
    assert desk.tell(*[alarm(n, when=60) for n in range(100, 200)], now=at(60)) == []
    assert desk.tell(*[alarm(n, when=3600) for n in range(200, 300)], now=at(3600)) == ["drydock-x-storm-3"]


def test_endless_subject_has_one_key_that_is_not_kept(desk: Desk) -> None:
    for when in (0, 600):
        desk.tell(Alarm("set:3", "set:3", at(when), opens=True, wakes=True, endless=True))
    assert (list(desk.open), desk.kept) == (["drydock-x-set:3"], {})


@pytest.mark.parametrize("seed", range(60))
def test_no_incident_stays_open_after_interrupted_deliveries(seed: int) -> None:
    """Posts that fail after any number of calls come again; in the end all is over, and all is resolved."""
    chance = random.Random(seed)
    desk = Desk(has_webhooks=chance.random() < 0.5)
    count = chance.choice([1, 3, 8, 30])
    bad, handled = dict.fromkeys(range(count), FREEZE), dict.fromkeys(range(count), None)
    now = 0

    def stand(number: int, **known: Any) -> Alarm:
        return alarm(number, bad[number], now, handled_at=handled[number], **known)

    def post(alarms: Sequence[Alarm]) -> None:
        while chance.random() < 0.4:
            desk.tell(*alarms, now=at(now), fail_after=chance.randrange(4))
        desk.tell(*alarms, now=at(now))

    post([stand(number) for number in range(count)])
    for _ in range(20):
        now += 10
        some = chance.sample(range(count), chance.randrange(1, count + 1))
        for number in some:
            what = chance.choice(["claimed", "worse", "nothing", "there"])
            if what == "claimed":
                handled[number] = at(now)
            elif what == "worse":
                bad[number] = REDEPLOY
            elif what == "there" and desk.open:
                desk.there[chance.choice(list(desk.open))] = chance.choice(list(PagerState))
        post([stand(number, opens=chance.random() < 0.7) for number in some])
        # For any state this bad, the pager called a responder.
        assert desk.pager.incidents
    for number in chance.sample(range(count), count):
        post([stand(number, over=True)])
    assert (desk.open, desk.kept) == ({}, {})
