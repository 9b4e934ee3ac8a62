"""A real Alertmanager: an alert with a lease for all that is open, and silences of exactly the machines under
maintenance, by lines that can match no other.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
from django.core.exceptions import ValidationError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from fleet.models import AvailabilitySet, Maintenance, ScheduledEvent
from fleet.notifications.channels import KINDS, alertmanager
from fleet.notifications.channels.alertmanager import Alertmanager
from fleet.notifications.channels.base import ChannelInUse, Outcome
from fleet.notifications.delivery import keep_references
from fleet.notifications.incidents import LEASE, LONGEST, read_line, read_lines, still_silenced
from fleet.notifications.models import Channel, Reference
from fleet.operations.approvals import claims
from tests.caches.walking import HOST, Listeners, line
from tests.factories import NOW, Fleet, acting, announced, listing, operator, seconds
from tests.processes import Process, answers, free_port, running, wait_for
from tests.words import refused

pytestmark = pytest.mark.flow
CONFIGURATION = "route: {receiver: discard}\nreceivers: [{name: discard}]\n"


@dataclass(slots=True)
class RealAlertmanager:
    """A running Alertmanager. `restart` starts it again from its disk, after a kill -9."""

    url: str
    folder: Path
    process: Process | None = None

    def get(self, path: str, **query: Any) -> Any:
        answer = requests.get(f"{self.url}/api/v2{path}", params=query, timeout=10)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, body: Any) -> Any:
        answer = requests.post(f"{self.url}/api/v2{path}", json=body, timeout=10)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def alerts(self) -> dict[str, Mapping[str, Any]]:
        """Those of ours that are not over, by EventId."""
        return {alert["labels"]["event_id"]: alert for alert in self.get("/alerts", filter='drydock=~".+"')}

    def silences(self, *states: str) -> list[Mapping[str, Any]]:
        return [each for each in self.get("/silences") if each["status"]["state"] in (states or ("active",))]

    def rings(self, **labels: str) -> bool:
        """Return whether Alertmanager would notify of another system's alert with these labels."""
        self.post("/alerts", [{"labels": {"alertname": "HostDown", **labels}}])
        want = [f'{name}="{value}"' for name, value in labels.items()]

        def state() -> str | None:
            found = self.get("/alerts", filter=want)
            return found[0]["status"]["state"] if found and found[0]["status"]["state"] != "unprocessed" else None

        # Alertmanager judges an alert when it receives it, and sees a later silence only at its next check.
        return wait_for(state, seconds=15, what="the alert is judged") == "active"


@contextmanager
def real_alertmanager(folder: Path) -> Iterator[RealAlertmanager]:
    program = shutil.which("prometheus-alertmanager", path="/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("no Alertmanager here (Debian: prometheus-alertmanager)")
    (folder / "alertmanager.yml").write_text(CONFIGURATION)
    address = f"127.0.0.1:{free_port()}"
    found = RealAlertmanager(f"http://{address}", folder)
    with run_it(found, program, address):
        yield found


@contextmanager
def run_it(found: RealAlertmanager, program: str, address: str) -> Iterator[None]:
    command = [
        program,
        f"--config.file={found.folder / 'alertmanager.yml'}",
        f"--storage.path={found.folder / 'data'}",
        f"--web.listen-address={address}",
        # It looks for others of its kind by default.
        "--cluster.listen-address=",
    ]
    with running(command, environment={}, log=found.folder / "log") as process:
        wait_for(lambda: answers(f"{found.url}/-/ready"), seconds=20, what="Alertmanager is ready")
        found.process = process
        yield


def restarted(found: RealAlertmanager) -> Any:
    """Kill -9, and another one at the same address with the same disk."""
    assert found.process is not None
    program = found.process.child.args[-5]  # type: ignore[index]
    found.process.kill()
    return run_it(found, str(program), found.url.removeprefix("http://"))


@dataclass(slots=True)
class Mirror:
    """A channel to an Alertmanager, and rounds of it as the sender makes them."""

    row: Channel
    values: dict[str, Any]

    def in_use(self) -> ChannelInUse:
        return ChannelInUse(id=self.row.pk, kind="alertmanager", name=self.row.name, values=self.values)

    def round(self, *, now: datetime | None = None, keep: bool = True) -> Outcome:
        """One round; unless `keep` is False, as if we died before we wrote down what came of it."""
        outcome = alertmanager.mirror(self.in_use(), now=now or datetime.now(UTC))
        if keep:
            keep_references(self.row.pk, outcome.references, now=datetime.now(UTC))
        return outcome


def channel_to(url: str, *silences: str, **values: Any) -> Mirror:
    now = datetime.now(UTC)
    row = Channel.objects.create(kind="alertmanager", name="alerts", created_at=now, changed_at=now)
    return Mirror(row, {"url": url, "silences": list(silences), **values})


@pytest.fixture(scope="module")
def am(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAlertmanager]:
    """A real Alertmanager for the whole file: tests tell their events apart."""
    with real_alertmanager(tmp_path_factory.mktemp("alertmanager")) as found:
        yield found


@pytest.fixture
def today(db: None, reach_loopback: None) -> Fleet:
    """A fleet of this very minute: Alertmanager keeps real time."""
    return Fleet(now=datetime.now(UTC) - timedelta(minutes=1))


NUMBERS = count()
BY_NAME = 'shop: instance=~"{name}(:[0-9]+)?"'


class Scene:
    """Six machines of a service, one of which an event hits; names are this test's own."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.prefix = f"web{next(NUMBERS)}-"
        self.hit = f"{self.prefix}1"
        self.event_id = str(uuid4()).upper()
        fleet.enrol_set(12, prefix=self.prefix)
        AvailabilitySet.objects.update(service="shop")
        self.announce()

    def announce(self, status: str = "Scheduled") -> None:
        self.fleet.later(1)
        self.fleet.all_say(listing(self.event_id, status=status, resources=(self.hit,), event_type="Reboot"))

    def start(self) -> None:
        self.announce("Started")

    def end(self) -> None:
        self.fleet.later(1)
        self.fleet.all_say()


@pytest.fixture
def scene(today: Fleet) -> Scene:
    return Scene(today)


def ours(am: RealAlertmanager, scene: Scene, *states: str) -> list[Any]:
    return [each for each in am.silences(*states) if scene.event_id in each["comment"]]


def quiet(mirror: Mirror, **options: Any) -> Outcome:
    outcome = mirror.round(**options)
    assert outcome.ok, outcome
    return outcome


@pytest.fixture
def silenced(scene: Scene, am: RealAlertmanager) -> Mirror:
    """A channel that has silenced the machine of the scene, whose event has started."""
    mirror = channel_to(am.url, BY_NAME)
    scene.start()
    quiet(mirror)
    return mirror


def test_silence_covers_one_machine_from_start_to_end(scene: Scene, am: RealAlertmanager) -> None:
    mirror = channel_to(am.url, BY_NAME)
    quiet(mirror)
    assert ours(am, scene) == []
    scene.start()
    quiet(mirror)
    (silence,) = ours(am, scene)
    assert silence["createdBy"] == "Drydock"
    left = datetime.fromisoformat(silence["endsAt"]) - datetime.now(UTC)
    assert LEASE - timedelta(minutes=2) < left <= LEASE
    assert not am.rings(instance=f"{scene.hit}:9100")
    # `web0-1` is silenced, `web0-10`, `web0-2` and our own alert are not.
    assert am.rings(instance=f"{scene.hit}0:9100")
    assert am.rings(instance=f"{scene.prefix}2:9100")
    assert am.alerts()[scene.event_id]["status"]["silencedBy"] == []
    scene.end()
    quiet(mirror)
    assert ours(am, scene) == []
    assert len(ours(am, scene, "expired")) == 1
    assert Reference.objects.count() == 0


def test_other_services_and_drills_are_not_silenced(scene: Scene, am: RealAlertmanager) -> None:
    scene.start()
    quiet(channel_to(am.url, 'till-*: instance=~"{name}"'))
    quiet(channel_to(am.url))
    assert ours(am, scene) == []
    ScheduledEvent.objects.update(drill=True)
    quiet(channel_to(am.url, BY_NAME))
    assert ours(am, scene) == []


def test_a_user_silences_the_machine_before_its_event_starts(scene: Scene, am: RealAlertmanager) -> None:
    mirror, now = channel_to(am.url, BY_NAME), datetime.now(UTC)
    for until, number in ((now + timedelta(hours=1), 1), (None, 0)):
        claims.silence(event_id=scene.event_id, whole_set=False, actor=acting(operator()), now=now, until=until)
        quiet(mirror)
        assert len(ours(am, scene)) == number
        assert am.rings(instance=f"{scene.hit}:9100") is not bool(number)


@pytest.mark.parametrize(
    ("started", "silenced", "left"),
    [
        *[(None, None, None), (None, 60, 60), (None, 7200, 600), (None, -1, None)],
        *[(0, None, 600), (7140, None, 60), (7200, None, None), (7199, 30, 30), (7200, 60, 60)],
    ],
)
def test_silence_lasts_as_long_as_the_event_or_as_a_user_asked(
    started: int | None, silenced: int | None, left: int | None
) -> None:
    until = None if silenced is None else NOW + seconds(silenced)
    ends = still_silenced(started_at=None if started is None else NOW - seconds(started), silenced_until=until, now=NOW)
    assert ends == (None if left is None else NOW + seconds(left))
    assert (seconds(600), seconds(7200)) == (LEASE, LONGEST)


def test_silence_is_renewed_in_place_until_its_machines_change_or_hours_after_the_start(
    scene: Scene, silenced: Mirror, am: RealAlertmanager
) -> None:
    (first,) = ours(am, scene)
    quiet(silenced)
    assert ours(am, scene) == [first]
    quiet(silenced, now=datetime.now(UTC) + LEASE / 2 + timedelta(seconds=5))
    (second,) = ours(am, scene)
    assert second["id"] == first["id"] and second["endsAt"] > first["endsAt"]
    scene.hit = f"{scene.prefix}3"
    scene.start()
    quiet(silenced)
    (silence,) = ours(am, scene)
    assert silence["matchers"][0]["value"].startswith(f"(?:{scene.prefix.replace('-', chr(92) + '-')}3)")
    assert len(ours(am, scene, "expired")) == 1
    ScheduledEvent.objects.update(started_at=datetime.now(UTC) - LONGEST)
    quiet(silenced)
    assert ours(am, scene) == []


def test_silence_expired_by_a_user_stays_expired(scene: Scene, silenced: Mirror, am: RealAlertmanager) -> None:
    (silence,) = ours(am, scene)
    requests.delete(f"{am.url}/api/v2/silence/{silence['id']}", timeout=10).raise_for_status()
    for minutes in (0, 6, 12):
        quiet(silenced, now=datetime.now(UTC) + timedelta(minutes=minutes))
        assert ours(am, scene) == []
    # Also where we forget everything: its comment says that it was to last longer.
    Reference.objects.all().delete()
    quiet(silenced)
    assert ours(am, scene) == []


def test_silence_taken_over_by_a_user_is_left_alone(scene: Scene, silenced: Mirror, am: RealAlertmanager) -> None:
    (silence,) = ours(am, scene)
    body = {name: silence[name] for name in ("id", "matchers", "startsAt", "comment")}
    longer = (datetime.now(UTC) + timedelta(hours=3)).isoformat()
    am.post("/silences", {**body, "endsAt": longer, "createdBy": "otto"})
    quiet(silenced)
    scene.end()
    quiet(silenced)
    assert [each["createdBy"] for each in ours(am, scene)] == ["otto"]


def test_silence_is_found_again_after_a_crash(scene: Scene, am: RealAlertmanager) -> None:
    mirror = channel_to(am.url, BY_NAME)
    scene.start()
    for _ in range(3):
        quiet(mirror, keep=False)
    (silence,) = ours(am, scene)
    quiet(mirror)
    (reference,) = Reference.objects.values_list("value", flat=True)
    assert [each["id"] for each in reference["silences"].values()] == [silence["id"]]


def test_what_alertmanager_loses_is_made_good_by_the_next_round(today: Fleet, tmp_path: Path) -> None:
    with real_alertmanager(tmp_path) as found:
        scene = Scene(today)
        mirror = channel_to(found.url, BY_NAME)
        scene.start()
        quiet(mirror)
        with restarted(found):
            assert (found.silences(), found.alerts()) == ([], {})
            quiet(mirror)
            assert (len(ours(found, scene)), set(found.alerts())) == (1, {scene.event_id})


def test_expired_lease_is_created_again(today: Fleet, am: RealAlertmanager) -> None:
    today.now -= timedelta(minutes=15)
    scene = Scene(today)
    mirror = channel_to(am.url, BY_NAME)
    scene.start()
    soon = datetime.now(UTC) + timedelta(seconds=2)
    quiet(mirror, now=soon - LEASE)
    wait_for(lambda: ours(am, scene, "expired"), seconds=10, what="the lease is over")
    quiet(mirror)
    assert len(ours(am, scene)) == 1


def test_scale_set_machine_is_matched_by_host_name(today: Fleet, am: RealAlertmanager) -> None:
    scene = Scene(today)
    machine = today.agents[scene.hit].machine
    machine.compute = {"osProfile": {"computerName": f"{scene.prefix}host"}, "privateIpAddresses": ["10.9.8.7"]}
    machine.save()
    scene.start()
    mirror = channel_to(am.url, 'shop: nodename="{host}"', 'shop: instance=~"{address}(:.*)?"')
    quiet(mirror)
    assert not am.rings(nodename=f"{scene.prefix}host")
    assert not am.rings(instance="10.9.8.7:9100")
    assert am.rings(instance="10.9.8.70:9100")


def test_hostile_name_widens_no_silence(today: Fleet, am: RealAlertmanager) -> None:
    scene = Scene(today)
    scene.hit = '.*|(") {evil="x"}'
    scene.start()
    quiet(channel_to(am.url, BY_NAME))
    assert len(ours(am, scene)) == 1
    assert am.rings(instance=f"{scene.prefix}2:9101")


def test_cache_is_silenced_during_maintenance(today: Fleet, am: RealAlertmanager) -> None:
    listeners = Listeners(now=datetime.now(UTC) - timedelta(minutes=2))
    listeners.enrol_set(1, prefix="c")
    listeners.hear("c1", line("NodeMaintenanceStart"))
    Maintenance.objects.update(began_at=datetime.now(UTC))
    mirror = channel_to(am.url, '*: addr=~"rediss?://{cache}:[0-9]+"')
    quiet(mirror)
    (alert,) = [each for each in am.get("/alerts") if each["labels"].get("cache_host") == HOST]
    assert alert["labels"]["alertname"] == "AzureCacheMaintenance"
    assert not am.rings(addr=f"rediss://{HOST}:6380")
    assert am.rings(addr=f"rediss://x{HOST}:6380")
    listeners.later(1)
    listeners.hear("c1", line("NodeMaintenanceEnded", replica="True"))
    quiet(mirror)
    assert am.silences("active") == [] or all(HOST not in each["comment"] for each in am.silences("active"))


WEB = {"name": ("web_1",), "host": ("web000001",), "address": ("10.0.0.4", "10.0.0.40")}


def test_a_line_names_services_and_labels() -> None:
    line = read_line(r'shop-*: job="node", instance=~"{address}(:\d+)?"')
    assert [line.holds_for(service) for service in ("shop-eu", "SHOP-eu", "till")] == [True, True, False]
    assert list(map(str, line.matchers([WEB]))) == [
        'instance=~"(?:10\\\\.0\\\\.0\\\\.4|10\\\\.0\\\\.0\\\\.40)(:\\\\d+)?"',
        'job="node"',
    ]
    # A machine without such a value gets no matcher.
    for muted in ([{"name": ("vm1",)}], [{"name": ("vm1",), "address": ("",)}], []):
        assert line.matchers(muted) == ()


def test_names_are_escaped_and_anchored() -> None:
    odd = 'a.b*c|d(e)[f]\\g"h$'
    (matcher,) = read_line('*: host="{name}"').matchers([{"name": (odd,)}])
    assert matcher.regex
    matching = [name for name in (odd, "axbbbc", odd + "x") if re.fullmatch(matcher.value, name)]
    assert matching == [odd]


BAD_LINES = {
    "no-place": ['*: job="node"'],
    "negative": ['*: instance!~"{name}"', '*: instance!="{name}"'],
    "hits-others": [
        *('*: instance=~"{name}|.*"', '*: instance=~"{name}.*"', '*: instance=~".*{name}"'),
        '*: instance=~"{address}[0-9]*"',
    ],
    "no-expression": ['*: instance=~"({name}"'],
    "two-places": ['*: a="{name}", b="{host}"', '*: a="{name}{host}"'],
    "own-label": ['*: availability_set="{name}"', '*: event_id="{name}"'],
    "unreadable": [
        *('instance="{name}"', ': instance="{name}"', "*: instance={name}", '*: instance="{name}",'),
        *('*: instance="{name}" or job="x"', '*: "instance"="{name}"', "*: " + "x" * 600),
    ],
}


@pytest.mark.parametrize("code", BAD_LINES)
def test_line_that_hits_others_or_is_unreadable_is_refused(code: str) -> None:
    for text in BAD_LINES[code]:
        with refused(f"silence-{code}"):
            read_line(text)


def test_line_may_add_ports_domains_and_a_fixed_negative_matcher() -> None:
    lines = ('*: instance=~"{host}(\\..*)?"', '*: instance=~"{address}(:.*)?"', '*: addr="redis://{cache}:6380"')
    assert [read_line(line).place for line in lines] == ["host", "address", "cache"]
    line = read_line('*: instance="{name}", severity!="page"')
    assert list(map(str, line.matchers([WEB]))) == ['instance=~"(?:web_1)"', 'severity!="page"']


def test_lines_are_bounded_and_empty_ones_do_not_count() -> None:
    assert read_lines(["", "  "]) == ()
    silences = KINDS["alertmanager"].fields["silences"]
    assert silences.clean(['*: instance="{name}"'], None)
    for lines in (['*: job="node"'], [f'*: a="{{name}}", b="{number}"' for number in range(51)]):
        with pytest.raises(ValidationError):
            silences.clean(lines, None)


# An alert for all that is open.


def test_an_open_event_is_an_alert_until_it_has_ended(today: Fleet, am: RealAlertmanager) -> None:
    event_id = str(uuid4()).upper()
    announced(today, event_id=event_id, event_type="Reboot")
    AvailabilitySet.objects.update(service="shop")
    mirror = channel_to(am.url)
    assert mirror.round().ok
    found = am.alerts()[event_id]
    assert found["labels"] == {
        "alertname": "AzureScheduledEvent",
        "availability_set": "web",
        "drydock": "127.0.0.1:8000",
        "event_id": event_id,
        "event_type": "Reboot",
        "resource_group": "shop",
        "service": "shop",
        "severity": "warning",
    }
    assert found["annotations"]["summary"] == "Reboot of vm1, vm2 in web"
    assert found["generatorURL"] == f"http://127.0.0.1:8000/events/{event_id}/"
    lease = datetime.fromisoformat(found["endsAt"]) - datetime.now(UTC)
    assert timedelta(minutes=4) < lease <= timedelta(minutes=5)

    today.later(5)
    today.all_say()
    assert mirror.round().ok
    assert event_id not in am.alerts()
    assert mirror.round().references == {}


def test_renewal_moves_the_lease_and_changed_labels_replace_the_alert(today: Fleet, am: RealAlertmanager) -> None:
    event_id = str(uuid4()).upper()
    announced(today, event_id=event_id)
    mirror = channel_to(am.url)
    mirror.round(now=datetime.now(UTC) - timedelta(minutes=3))
    first = am.alerts()[event_id]
    mirror.round()
    second = am.alerts()[event_id]
    assert second["endsAt"] > first["endsAt"]
    assert (second["startsAt"], second["annotations"]) == (first["startsAt"], first["annotations"])
    AvailabilitySet.objects.update(service="till")
    mirror.round()
    found = [alert for alert in am.get("/alerts") if alert["labels"].get("event_id") == event_id]
    assert [alert["labels"]["service"] for alert in found] == ["till"]


def test_one_alert_that_will_not_do_takes_no_other_with_it(
    today: Fleet, am: RealAlertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = str(uuid4()).upper(), str(uuid4()).upper()
    event = announced(today, event_id=good)
    today.all_say(listing(good, not_before=event.not_before), listing(bad, not_before=event.not_before))
    open_things = alertmanager.open_things()
    next(thing for thing in open_things if bad in thing.path).labels["not a label"] = "x"
    monkeypatch.setattr(alertmanager, "open_things", lambda: open_things)
    outcome = channel_to(am.url).round()
    assert (outcome.status, outcome.ok, outcome.again) == (400, False, True)
    assert "not a label" in outcome.answer
    assert good in am.alerts()
    assert bad not in am.alerts()


def test_unavailable_alertmanager_and_another_server_are_reported(today: Fleet, am: RealAlertmanager) -> None:
    announced(today, event_id=str(uuid4()).upper())
    away = channel_to(f"http://127.0.0.1:{free_port()}").round()
    assert (away.ok, away.again, away.error) == (False, True, "connect")
    other = channel_to(f"{am.url}/nothing").round()
    assert (other.ok, other.again, other.status) == (False, True, 404)


def test_user_and_password_go_along_and_stand_nowhere_else(
    today: Fleet, am: RealAlertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = channel_to(am.url, user="drydock", password="hunter2-long")
    calls = Alertmanager(mirror.in_use(), now=today.now)
    assert calls.headers["Authorization"].startswith("Basic ")
    assert "hunter2-long" not in repr(mirror.in_use())
    assert mirror.round().ok


def test_a_storm_goes_out_in_portions_with_two_queries(
    today: Fleet, am: RealAlertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = announced(today, event_id=str(uuid4()).upper())
    copies = [copy(event) for _ in range(1200)]
    for each in copies:
        each.pk, each.event_id = None, str(uuid4()).upper()
    ScheduledEvent.objects.bulk_create(copies)
    sizes: list[int] = []
    real = Alertmanager.call

    def call(self: Alertmanager, method: str, path: str, body: object = None, query: object = ()) -> object:
        sizes.append(len(body) if isinstance(body, list) else 0)
        return real(self, method, path, body, query)  # type: ignore[arg-type]

    monkeypatch.setattr(Alertmanager, "call", call)
    mirror = channel_to(am.url)
    with CaptureQueriesContext(connection) as caught:
        outcome = mirror.round(keep=False)
    assert outcome.ok
    assert sizes == [500, 500, 201]
    assert len(caught) == 3
    assert len(am.alerts()) >= 1201
