"""SCOPED_READ_ACCESS: users with scopes see only objects within them, and all others appear not to exist."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings
from drydock_agent import wire
from pytest_django.plugin import DjangoDbBlocker

from fleet.domain.people import Place, in_scopes
from fleet.gateway.open_calls import CallCredentials
from fleet.gateway.streams import listener_of, visible_frames
from fleet.models import AvailabilitySet, Entry, InventoryMachine, SavedView, Scope
from fleet.notifications.models import Channel
from fleet.operations import drills as drilling
from fleet.operations import waves
from fleet.operations.approvals import claims
from fleet.operations.machines import enrolment
from fleet.operations.orders import advance
from fleet.operations.policy import rules
from fleet.projections import visibility
from tests import factories
from tests.access import walks
from tests.access.world import rolled_back
from tests.access.world import world as visible_world
from tests.api.conftest import Caller, caller
from tests.caches.walking import HOST, Listeners, line, the_cache
from tests.dashboard.conftest import logged_in
from tests.factories import acting, listing
from tests.messages.sent import a_channel, a_message, a_post, a_route

pytestmark = pytest.mark.django_db

# Part of the name of every hidden object, and of nothing else.
MARK = "umbra"
HIDDEN_EVENTS = [f"BADCAFE0-0000-4000-8000-00000000000{number}" for number in range(3)]
HIDDEN_CACHE = "umbra.redis.cache.windows.net"
NEIGHBOUR = "BADCAFE0-0000-4000-8000-00000000000B"
GUARDS = ("last-live-machines", "other-open-event", "service-in-flight")


@dataclass
class Divided:
    """What the reader sees, as the values of addresses that `tests.access.walks` takes; and row ids of hidden rows."""

    reader: User
    seen: dict[str, Any]
    hidden: dict[str, int]


def events_of(fleet: Listeners) -> None:
    """Add hidden sets with events to a fleet whose other sets are visible, also where both meet."""
    due = fleet.now + timedelta(minutes=14)
    shop, shade = ({"tagsList": [{"name": "drydock:service", "value": name}]} for name in ("shop", "umbra-service"))
    homes = {"umbra-1": "umbra", "umbra-2": "umbra", "umbra-3": "umbra-second", "umbra-5": "umbra-dock"}
    for name, home in homes.items():
        fleet.enrol(name, availability_set=home, resourceGroupName="umbra-group", **shade)
    # In one service with visible sets.
    fleet.enrol("umbra-4", availability_set="umbra-beside", **shop)
    fleet.enrol("web-shop", availability_set="web-shop", **shop)
    fleet.enrol("umbra-6", availability_set="")
    fleet.all_say(names=[*homes, "umbra-4", "umbra-6", "web-shop"])
    own = listing(resources=("vm1", "vm2"), not_before=factories.the_event().not_before)
    first = listing(HIDDEN_EVENTS[0], resources=("umbra-1",), not_before=due, Description="umbra is moved")
    fleet.later(1)
    fleet.all_say(first, names=["umbra-1", "umbra-2"])
    # A machine of another set lists the visible event.
    fleet.say("umbra-2", own, first)
    for event_id, name in ((HIDDEN_EVENTS[1], "umbra-3"), (HIDDEN_EVENTS[2], "umbra-4"), (NEIGHBOUR, "web-shop")):
        fleet.say(name, listing(event_id, resources=(name,), not_before=due))
    anna = factories.approver()
    approval = fleet.approve(HIDDEN_EVENTS[2], by=anna, overrides=dict.fromkeys(GUARDS, "umbra"))
    advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="celery")
    claims.claim(event_id=HIDDEN_EVENTS[0], actor=acting(anna, why="umbra is mine"), now=fleet.now)
    guards = dict.fromkeys(GUARDS, "the umbra of it")
    waves.begin(actor=acting(anna, why="umbra wave"), now=fleet.now, events=HIDDEN_EVENTS[:2], overrides=guards)
    fleet.approve(NEIGHBOUR, by=anna, overrides=dict.fromkeys(GUARDS, "both at once"))
    drilling.begin(set_id=factories.the_set("umbra-dock").pk, actor=acting(anna, why="umbra in spring"), now=fleet.now)


def policy(fleet: Listeners) -> dict[str, Any]:
    """Add rules and windows of both sides; return the ids of the visible ones."""
    ada, seen = acting(factories.admin()), {}
    for name, pattern in (("For umbra", "umbra*"), ("For web", "web*")):
        values = {"name": name, "reason": name, "action": "hold", "set_pattern": pattern, "event_types": ["Freeze"]}
        rule = rules.create_rule(rules.RuleRequestSerializer(data=values), actor=ada, now=fleet.now)
        window = {"name": name, "reason": name, "weekdays": [0], "from_time": "18:00", "set_pattern": pattern}
        sent = rules.WindowRequestSerializer(data={**window, "time_zone": "UTC"})
        seen = {"rule_id": rule.pk, "window_id": rules.create_window(sent, actor=ada, now=fleet.now).pk}
    return seen


def rest(fleet: Listeners) -> None:
    """Add what is hidden of saved views, inventory, admissions, caches and notifications."""
    anna, now = factories.approver(), fleet.now
    SavedView.objects.create(owner=anna, name="umbra view", page="events", shared=True, created_at=now)
    home = factories.the_set("umbra")
    InventoryMachine.objects.create(name="umbra-lost", resource_id="/lost", availability_set=home, imported_at=now)
    asking = {"join_token": fleet.join_token, "machine_id": fleet.agents["umbra-1"].machine.vm_id, "ask": "umbra-1"}
    enrolment.enrol(request=wire.EnrolRequest(**asking), now=now)
    for host in (HOST, HIDDEN_CACHE):
        fleet.cover("umbra-1", "subscribed", host=host)
        start = f"{now + timedelta(minutes=10):%Y-%m-%dT%H:%M:%S}"
        fleet.hear("umbra-1", line("NodeMaintenanceScheduled") + f"|StartTimeInUTC|{start}", host=host)
    Channel.objects.update(last_answer="umbra")
    channel = a_channel("umbra-ops", kind="webhook", at=now, owner=anna)
    a_route("umbra-ops", at=now, channel=channel, owner=anna)
    for event_id in HIDDEN_EVENTS:
        a_post(channel, [a_message(factories.the_event(event_id), channel, at=now)], at=now)


@pytest.fixture(scope="module")
def world_of_module(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Divided]:
    """Everything on both sides, made once; each test works in a savepoint within it."""
    hashers = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    with rolled_back(django_db_blocker):
        with override_settings(SCOPED_READ_ACCESS=True, PASSWORD_HASHERS=hashers):
            whole = visible_world()
            events_of(whole.fleet)
            # No calendar: its address has the rights of its owner.
            seen = whole.values | policy(whole.fleet) | {"token": "none"}
            rest(whole.fleet)
            reader = factories.approver("rita")
            Scope.objects.create(user=reader, kind="name", pattern="WEB*")
            machine = whole.fleet.agents["umbra-1"].machine
            hidden = {"set": factories.the_set("umbra").pk, "machine": machine.pk, "cache": the_cache(HIDDEN_CACHE).pk}
        yield Divided(reader, seen, hidden)


@pytest.fixture
def world(world_of_module: Divided, db: None, settings: Any) -> Divided:
    settings.SCOPED_READ_ACCESS = True
    return replace(world_of_module, reader=User.objects.get(pk=world_of_module.reader.pk))


def body_of(answer: Any) -> str:
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return str(content.decode())


def leaks(answer: Any) -> list[str]:
    """What an answer tells of the hidden side."""
    text = body_of(answer)
    wide = [text[max(0, at.start() - 80) : at.end() + 40] for at in re.finditer(MARK, text, re.IGNORECASE)]
    return wide + [one for one in HIDDEN_EVENTS if one in text.upper()]


def callers(world: Divided) -> tuple[Client, Caller]:
    return logged_in(world.reader), caller(world.reader)


def ask(client: Client | Caller, address: str, **headers: str) -> Any:
    return client.get(address, headers=headers) if isinstance(client, Client) else client.get(address)


def test_no_read_discloses_hidden_rows(world: Divided) -> None:
    """That no address of a hidden row answers anything but 404 is in `docs/dev/access`, for every call."""
    page, call = callers(world)
    wrong: list[Any] = []
    files = [f"/reports/{world.seen['month']}/{table}.csv" for table in ("events", "people", "rules", "lapsed")]
    for address in (*walks.reads("pages", world.seen), *walks.reads("api", world.seen), *files):
        answer = ask(call if address.startswith("/api/") else page, address)
        assert answer.status_code in (200, 302, 403, 404, 422), (address, answer.status_code)
        wrong += [(address, found) for found in leaks(answer)]
    assert wrong == []


def test_filters_and_parts_find_no_hidden_rows(world: Divided) -> None:
    page, call = callers(world)
    hidden = world.hidden
    asked = [
        *(f"/{page}/?set={hidden['set']}" for page in ("history", "timeline", "audit", "waves/begin", "waves")),
        *(f"/{page}/?machine={hidden['machine']}" for page in ("history", "timeline")),
        *(f"/api/v1/{each}/?machine={hidden['machine']}" for each in ("audit", "machines")),
        *(f"/api/v1/{each}/?cache={hidden['cache']}" for each in ("maintenances", "notifications")),
        *(f"/api/v1/{each}/?resource_group=umbra-group" for each in ("machines", "sets", "events", "admissions")),
        *(f"/api/v1/blind-spots/?set={hidden['set']}", "/find/?q=umb", "/?part=queue"),
        f"/events/{factories.EVENT}/?part=documents",
    ]
    for address in asked:
        answer = ask(call if address.startswith("/api/") else page, address, HX_Request="true")
        assert leaks(answer) == [], address


def test_refusals_do_not_disclose_hidden_rows(world: Divided) -> None:
    call, unknown_id = caller(world.reader), "0A1B2C3D-0000-4000-8000-0000000000FF"
    for what, body in (("approvals/", {"comment": "x"}), ("claims/", {}), ("holds/", {"reason": "x"})):
        there, not_there = (call.post(f"events/{one}/{what}", body) for one in (HIDDEN_EVENTS[1], unknown_id))
        assert there.status_code == not_there.status_code == 404
        assert there.json()["type"] == not_there.json()["type"] == "unknown-event"
        assert leaks(there) == []
    answer = call.post("bulk/approvals/", {"events": [HIDDEN_EVENTS[0], unknown_id], "comment": "x"})
    kinds = {str(one.get("type") or one.get("code") or one) for one in answer.json()["results"]}
    assert MARK not in str(kinds).replace(HIDDEN_EVENTS[0], "")
    assert "not-permitted" not in body_of(answer)
    answer = call.post("drills/", {"set": world.hidden["set"], "comment": "x"})
    assert (answer.status_code, leaks(answer)) == (404, [])


def test_other_listener_of_a_shared_cache_has_no_name(world: Divided) -> None:
    address = f"caches/{the_cache().pk}/"
    names = {row["machine"]["resource_name"] for row in caller(world.reader).get(address).json()["coverage"]}
    assert names == {"vm1", visibility.HIDDEN}


def test_a_stream_tells_a_reader_what_lies_in_their_scopes(world: Divided) -> None:
    everybody = visibility.LimitedReader("rita", (("name", "WEB*"),))
    ids_of = list(Entry.objects.order_by("pk").values_list("pk", flat=True))
    frames = visible_frames(everybody, ids_of)
    assert 0 < len(frames) < len(ids_of)
    text = b"".join(frames.values()).decode()
    assert MARK not in text.lower()
    assert not any(one in text for one in HIDDEN_EVENTS)
    assert factories.EVENT in text
    token = caller(world.reader).headers["authorization"].removeprefix("Bearer ")
    ear = listener_of(CallCredentials(token, "", "", None), now=datetime.now(UTC))
    assert ear is not None and ear.reader is not None
    token = caller(factories.viewer()).headers["authorization"].removeprefix("Bearer ")
    ear = listener_of(CallCredentials(token, "", "", None), now=datetime.now(UTC))
    assert ear is not None and ear.reader is None


def test_admins_and_people_without_scopes_see_all_and_without_the_setting_all_do(world: Divided, settings: Any) -> None:
    ada = factories.admin()
    Scope.objects.create(user=ada, kind="name", pattern="web*")
    for person in (ada, factories.viewer()):
        assert leaks(logged_in(person).get("/sets/"))
    settings.SCOPED_READ_ACCESS = False
    page, call = callers(world)
    # So the walk above would see what it looks for.
    for route in ("", "sets/", "machines/", "history/", "caches/", "timeline/", "blind-spots/", "audit/export.csv"):
        assert leaks(page.get(f"/{route}")), route
    for route in ("events/", "maintenances/", "notifications/", "audit/", "waves/", "drills/", "rules/"):
        assert leaks(call.get(route)), route


@pytest.mark.parametrize(
    "pattern", ["web", "WEB*", "w?b", "*", "", "w.b", "we\\b", "[w]eb", "web$", "(web|x)", "we b", "wéb", "a-b_c"]
)
def test_the_database_matches_scopes_as_people_s_rights_do(db: None, pattern: str) -> None:
    sets, now = AvailabilitySet.objects, datetime.now(UTC)
    names = ["web", "Web-2", "w.b", "we\\b", "[w]eb", "web$", "(web|x)", "x", "we b", "wéb", "a-b_c", "axb_c", "web\nx"]
    for number, name in enumerate(names):
        sets.create(key=str(number), kind="availability_set", name=name, created_at=now)
    provisional = sets.create(key="p", kind="provisional", name="web", created_at=now)
    scopes = (("name", pattern), ("service", "nowhere"))
    found = set(visibility.LimitedReader("rita", scopes).sets.values_list("name", "kind"))
    wanted = {
        (row.name, row.kind)
        for row in AvailabilitySet.objects.all()
        if in_scopes(Place(row.kind, row.name, row.service, row.resource_group), scopes)
    }
    assert found == wanted
    assert (provisional.name, provisional.kind) not in found


def test_row_merged_into_a_visible_set_is_visible(db: None) -> None:
    sets, now = AvailabilitySet.objects, datetime.now(UTC)
    web = sets.create(key="w", kind="availability_set", name="web", created_at=now)
    old = sets.create(key="o", kind="provisional", name="umbra-old", created_at=now, merged_into=web)
    pks = set(visibility.LimitedReader("rita", (("name", "web"),)).sets.values_list("pk", flat=True))
    assert {web.pk, old.pk} <= pks
