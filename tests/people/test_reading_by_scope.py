"""SCOPED_READ_ACCESS: users with scopes see only objects within them, and all others appear not to exist."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client, override_settings
from django.urls import URLPattern
from drydock_agent import wire
from pytest_django.plugin import DjangoDbBlocker

from fleet.domain.people import Place, in_scopes
from fleet.domain.timeline import EntryKind
from fleet.gateway.open_calls import CallCredentials
from fleet.gateway.streams import listener_of, visible_frames
from fleet.models import (
    AvailabilitySet,
    Cache,
    Drill,
    Entry,
    InventoryMachine,
    Machine,
    Maintenance,
    NoApprovalWindow,
    Rule,
    SavedView,
    ScheduledEvent,
    Scope,
    Wave,
)
from fleet.notifications.models import Channel, Message, MessageDelivery, Route
from fleet.operations import waves
from fleet.operations.approvals import claims
from fleet.operations.drills import begin as drilling
from fleet.operations.machines import enrolment
from fleet.operations.orders import advance
from fleet.operations.policy import rules
from fleet.projections import visibility
from fleet.urls import CALLS, PAGES
from tests import factories
from tests.api.conftest import Caller, caller
from tests.caches.walking import Listeners
from tests.dashboard.conftest import logged_in
from tests.factories import acting, listing

pytestmark = pytest.mark.django_db

# Part of the name of every hidden object, and of nothing else.
MARK = "umbra"
HIDDEN_EVENTS = [f"BADCAFE0-0000-4000-8000-00000000000{number}" for number in range(4)]
SEEN_CACHE, SHARED_CACHE, HIDDEN_CACHE = (f"{name}.redis.cache.windows.net" for name in ("orders", "both", "umbra"))


@dataclass
class World:
    """What is there: values for the addresses of each side, by the names that routes give them."""

    reader: User
    seen: dict[str, list[Any]]
    hidden: dict[str, list[Any]]


def everything(fleet: Listeners) -> None:
    """In a visible set, in two hidden ones, and between them."""
    due = datetime.now(UTC) + timedelta(minutes=14)
    shop = {"tagsList": [{"name": "drydock:service", "value": "shop"}]}
    shade = {"tagsList": [{"name": "drydock:service", "value": "umbra-service"}]}
    for name in ("vm1", "vm2", "vm3"):
        fleet.enrol(name, availability_set="web", **shop)
    for name in ("umbra-1", "umbra-2"):
        fleet.enrol(name, availability_set="umbra", resourceGroupName="umbra-group", **shade)
    fleet.enrol("umbra-3", availability_set="umbra-second", resourceGroupName="umbra-group", **shade)
    # In one service with the visible set.
    fleet.enrol("umbra-4", availability_set="umbra-beside", **shop)
    fleet.enrol("umbra-5", availability_set="umbra-dock", **shade)
    fleet.enrol("umbra-6", availability_set="")
    fleet.all_say()
    fleet.later(1)
    own = listing(resources=("vm1",), not_before=due)
    names = [name for name in fleet.agents if name.startswith("vm")]
    fleet.all_say(own, names=names)
    first = listing(HIDDEN_EVENTS[0], resources=("umbra-1",), not_before=due, Description="umbra is moved")
    fleet.all_say(first, names=["umbra-1", "umbra-2"])
    # A machine of another set lists the visible event.
    fleet.say("umbra-2", own, first)
    fleet.all_say(listing(HIDDEN_EVENTS[1], resources=("umbra-3",), not_before=due), names=["umbra-3"])
    fleet.all_say(listing(HIDDEN_EVENTS[2], resources=("umbra-4",), not_before=due), names=["umbra-4"])
    anna = factories.approver()
    approval = fleet.approve(HIDDEN_EVENTS[2], by=anna, overrides={"last-live-machines": "umbra"})
    advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="celery")
    claims.claim(event_id=HIDDEN_EVENTS[0], actor=acting(anna, why="umbra is mine"), now=fleet.now)
    guards = dict.fromkeys(("last-live-machines", "other-open-event", "service-in-flight"), "the umbra of it")
    waves.begin(actor=acting(anna, why="umbra wave"), now=fleet.now, events=HIDDEN_EVENTS[:2], overrides=guards)
    fleet.approve(by=anna, overrides={"service-in-flight": "both at once"})
    drilling.begin(set_id=factories.the_set("umbra-dock").pk, actor=acting(anna, why="umbra in spring"), now=fleet.now)
    drilling_again(fleet)
    told(fleet)


def drilling_again(fleet: Listeners) -> None:
    """A visible set of its own for a drill, since one with a real event cannot be rehearsed."""
    fleet.enrol("web-dock", availability_set="web-dock")
    fleet.say("web-dock")
    drilling.begin(set_id=factories.the_set("web-dock").pk, actor=acting(factories.approver()), now=fleet.now)


def told(fleet: Listeners) -> None:
    """Rules, windows, inventory, admissions, caches."""
    ada = acting(factories.admin())
    for name, pattern in (("For web", "web*"), ("For umbra", "umbra*")):
        values = {"name": name, "reason": name, "action": "hold", "set_pattern": pattern, "event_types": ["Freeze"]}
        rules.create_rule(rules.RuleRequestSerializer(data=values), actor=ada, now=fleet.now)
        window = {"name": name, "reason": name, "weekdays": [0], "from_time": "18:00", "set_pattern": pattern}
        rules.create_window(
            rules.WindowRequestSerializer(data={**window, "time_zone": "UTC"}), actor=ada, now=fleet.now
        )
    SavedView.objects.create(
        owner=factories.approver(), name="umbra view", page="events", shared=True, created_at=fleet.now
    )
    for name, home in (("web-lost", "web"), ("umbra-lost", "umbra")):
        row = InventoryMachine(name=name, resource_id=f"/{name}", availability_set=factories.the_set(home))
        row.imported_at = fleet.now
        row.save()
    for name in ("vm3", "umbra-1"):
        asking = {"join_token": fleet.join_token, "machine_id": fleet.agents[name].machine.vm_id, "ask": name}
        enrolment.enrol(request=wire.EnrolRequest(**asking), now=fleet.now)
    for host, names in ((SEEN_CACHE, ["vm1"]), (SHARED_CACHE, ["vm1", "umbra-1"]), (HIDDEN_CACHE, ["umbra-1"])):
        for name in names:
            fleet.cover(name, "subscribed", host=host)
            start = f"{fleet.now + timedelta(minutes=10):%Y-%m-%dT%H:%M:%S}"
            raw = "NotificationType|NodeMaintenanceScheduled|IsReplica|False|IPAddress|52.158.249.185|SSLPort|15000"
            fleet.hear(name, f"{raw}|NonSSLPort|13000|StartTimeInUTC|{start}", host=host)


def sent(fleet: Listeners) -> None:
    """Create a channel of the installation and one of a single user, each notified of the events on its side."""
    for name, owner in (("web-ops", None), ("umbra-ops", factories.approver())):
        row = Channel.objects.create(
            kind="webhook", name=name, owner=owner, created_at=fleet.now, changed_at=fleet.now, last_answer="umbra"
        )
        Route.objects.create(name=name, channel=row, owner=owner, created_at=fleet.now, changed_at=fleet.now)
        for event in ScheduledEvent.objects.all():
            if event.availability_set.name.startswith("web") is (owner is None):
                hidden_delivery = MessageDelivery.objects.create(
                    channel=row, moment="event.first_seen", created_at=fleet.now, due_at=fleet.now
                )
                Message.objects.create(
                    moment="event.first_seen", subject=f"event:{event.pk}", event=event, at=fleet.now, channel=row,
                    created_at=fleet.now, due_at=fleet.now, severity="info", state="PACKED", delivery=hidden_delivery,
                )  # fmt: skip


@pytest.fixture(scope="module")
def world_of_module(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[World]:
    """Everything on both sides, made once; each test works in a savepoint within it."""
    hashers = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    together = transaction.atomic()
    # As Django marks its own around tests: what has to be a transaction of its own may run inside.
    together._from_testcase = True  # type: ignore[attr-defined]
    with django_db_blocker.unblock(), together:
        with override_settings(SCOPED_READ_ACCESS=True, PASSWORD_HASHERS=hashers):
            fleet = Listeners(now=datetime.now(UTC))
            everything(fleet)
            sent(fleet)
            reader = factories.approver("rita")
            Scope.objects.create(user=reader, kind="name", pattern="WEB*")
            made = World(reader, seen=ids(hidden=False), hidden=ids(hidden=True))
        yield made
        transaction.set_rollback(True)


@pytest.fixture
def world(world_of_module: World, db: None, settings: Any) -> World:
    settings.SCOPED_READ_ACCESS = True
    return World(User.objects.get(pk=world_of_module.reader.pk), world_of_module.seen, world_of_module.hidden)


def ids(hidden: bool) -> dict[str, list[Any]]:
    """By the name of a part of an address: what is there on this side."""
    sets = [row for row in AvailabilitySet.objects.order_by("pk") if row.name.startswith("web") is not hidden]
    pks = [row.pk for row in sets]
    caches = [HIDDEN_CACHE] if hidden else [SHARED_CACHE, SEEN_CACHE]
    events = [AvailabilitySet.objects.get(pk=pk).events.all() for pk in pks]
    rows = [event for of_set in events for event in of_set]
    rules_of = {True: "For umbra", False: "For web"}[hidden]
    messages = Message.objects.filter(event__in=[event.pk for event in rows])
    whose = "umbra-ops" if hidden else "web-ops"
    return {
        "channel_id": list(Channel.objects.filter(name=whose).values_list("pk", flat=True)),
        "route_id": list(Route.objects.filter(name=whose).values_list("pk", flat=True)),
        "message_id": list(messages.values_list("pk", flat=True)),
        "delivery_id": list(messages.values_list("delivery", flat=True)),
        "kind": ["webhook"],
        "account_id": [1],
        "invitation": ["none"],
        "token": ["none"],
        "set_id": pks,
        "machine_id": list(
            Machine.objects.filter(availability_set__in=pks).order_by("pk").values_list("pk", flat=True)
        ),
        "event_id": [event.event_id for event in rows],
        "approval_id": [approval.pk for event in rows for approval in event.approvals.all()],
        "drill_id": list(Drill.objects.filter(event__in=[event.pk for event in rows]).values_list("pk", flat=True)),
        "wave_id": list(Wave.objects.values_list("pk", flat=True)) if hidden else [],
        "cache_id": [Cache.objects.get(host=host).pk for host in caches],
        "maintenance_id": [row.pk for host in caches for row in Maintenance.objects.filter(cache__host=host)],
        "rule_id": list(Rule.objects.filter(name=rules_of).values_list("pk", flat=True)),
        "window_id": list(NoApprovalWindow.objects.filter(name=rules_of).values_list("pk", flat=True)),
        "name": ["umbra-service"] if hidden else ["shop"],
        "username": ["rita"],
        # For admins alone, whatever they see.
        **{name: [1] for name in ("grant_id", "sign_on_id", "factor_id", "session_id")},
        "view_id": [SavedView.objects.get().pk],
        "prefix": ["dd_none"],
        "service": ["umbra-service"] if hidden else ["shop"],
        "handover_id": list(Entry.objects.filter(kind=EntryKind.HANDOVER_SENT).values_list("pk", flat=True)),
        "month": [f"{datetime.now(UTC):%Y-%m}"],
        "table": ["events", "notice", "people", "rules", "lapsed"],
    }


def routes() -> Iterator[str]:
    """Every address that there is, out of the tables by which Django finds them."""
    for begin, table in (("/", PAGES), ("/api/", CALLS)):
        for pattern in table:
            if isinstance(pattern, URLPattern) and "accounts/" not in str(pattern.pattern):
                yield f"{begin}{pattern.pattern}"


PART = re.compile(r"<(?:\w+:)?(\w+)>")


def filled(route: str, values: dict[str, list[Any]]) -> list[str]:
    """Its addresses with these values; fails for a part of an address that this test has no values for."""
    found = [route]
    for name in PART.findall(route):
        assert name in values, f"{route}: say in `ids` what is hidden and what is not under <{name}>"
        found = [PART.sub(str(value), one, count=1) for one in found for value in values[name]]
    return found


def in_turn(route: str, values: dict[str, list[Any]], number: int) -> list[str]:
    """One address of a route, or none where a part of it has no value; the next route takes the next values."""
    return filled(route, {name: [each[number % len(each)]] if each else [] for name, each in values.items()})


def body_of(answer: Any) -> str:
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return str(content.decode())


def leaks(answer: Any) -> list[str]:
    """What an answer tells of the hidden side."""
    text = body_of(answer)
    wide = [text[max(0, at.start() - 80) : at.end() + 40] for at in re.finditer(MARK, text, re.IGNORECASE)]
    return wide + [one for one in HIDDEN_EVENTS if one in text.upper()]


def callers(world: World) -> list[Client | Caller]:
    return [logged_in(world.reader), caller(world.reader)]


def ask(client: Client | Caller, address: str, **headers: str) -> Any:
    return client.get(address, headers=headers) if isinstance(client, Client) else client.get(address)


def test_no_read_discloses_hidden_rows(world: World) -> None:
    page, call = callers(world)
    wrong: list[Any] = []
    # The first of each kind has to do with the most of what is hidden; tables are pages of their own.
    most_telling = {name: values if name == "table" else values[:1] for name, values in world.seen.items()}
    for number, route in enumerate(routes()):
        client = call if route.startswith("/api/") else page
        for address in filled(route, most_telling):
            answer = ask(client, address)
            assert answer.status_code in (200, 301, 302, 403, 404, 405, 422), (address, answer.status_code)
            wrong += [(address, found) for found in leaks(answer)]
        for address in in_turn(route, world.hidden, number) if PART.search(route) else ():
            answer = ask(client, address)
            own = not set(PART.findall(route)) & {*visibility.ADDRESSED, "name"}
            expected = (403, 404, 405) if not own else (200, 302, 403, 404, 405)
            if answer.status_code not in expected:
                wrong.append((address, answer.status_code))
            echoed = answer.status_code == 404 and "name" in PART.findall(route)
            wrong += [] if echoed else [(address, found) for found in leaks(answer)]
    assert wrong == []


def test_this_walk_would_see_it(world: World, settings: Any) -> None:
    settings.SCOPED_READ_ACCESS = False
    page, call = callers(world)
    for route in (
        "/", "/fleet/", "/sets/", "/machines/", "/history/", "/caches/", "/timeline/", "/audit/",
        "/blind-spots/", "/waves/", "/drills/", "/policy/", "/audit/export.csv", "/audit/export.jsonl",
        "/api/v1/sets/", "/api/v1/machines/", "/api/v1/events/", "/api/v1/caches/", "/api/v1/maintenances/",
        "/api/v1/notifications/", "/api/v1/audit/", "/api/v1/blind-spots/", "/api/v1/waves/", "/api/v1/drills/",
        "/api/v1/rules/",
    ):  # fmt: skip
        assert leaks(ask(call if route.startswith("/api/") else page, route)), route


def test_filters_and_parts_find_no_hidden_rows(world: World) -> None:
    page, call = callers(world)
    hidden = {name: values[0] for name, values in world.hidden.items() if values}
    asked = [
        f"/history/?set={hidden['set_id']}",
        f"/history/?machine={hidden['machine_id']}",
        f"/timeline/?set={hidden['set_id']}",
        f"/timeline/?machine={hidden['machine_id']}",
        f"/audit/?set={hidden['set_id']}",
        f"/api/v1/audit/?machine={hidden['machine_id']}",
        f"/api/v1/maintenances/?cache={hidden['cache_id']}",
        f"/api/v1/notifications/?cache={hidden['cache_id']}",
        f"/api/v1/events/?set={hidden['set_id']}",
        f"/waves/begin/?set={hidden['set_id']}",
        f"/waves/?set={hidden['set_id']}",
        "/find/?q=umb",
        "/?part=queue",
        f"/events/{factories.EVENT}/?part=documents",
    ]
    for address in asked:
        answer = ask(call if address.startswith("/api/") else page, address, HX_Request="true")
        assert leaks(answer) == [], address


def test_hidden_rows_cannot_be_changed_and_refusals_do_not_disclose_them(world: World) -> None:
    page, call = callers(world)
    assert isinstance(page, Client) and isinstance(call, Caller)
    unknown_id = "0A1B2C3D-0000-4000-8000-0000000000FF"
    for what, body in (("approvals/", {"comment": "x"}), ("claims/", {}), ("holds/", {"reason": "x"})):
        there, not_there = (call.post(f"events/{one}/{what}", body) for one in (HIDDEN_EVENTS[1], unknown_id))
        assert there.status_code == not_there.status_code == 404
        assert there.json()["type"] == not_there.json()["type"] == "unknown-event"
        assert leaks(there) == []
    for number, route in enumerate(routes()):
        if not set(PART.findall(route)) & set(visibility.ADDRESSED):
            continue
        for address in in_turn(route, world.hidden, number):
            answer = page.post(address, {}) if not route.startswith("/api/") else call.post(address, {})
            assert answer.status_code in (403, 404, 405), (address, answer.status_code)
            assert leaks(answer) == [], address
    answer = call.post("bulk/approvals/", {"events": [HIDDEN_EVENTS[0], unknown_id], "comment": "x"})
    kinds = {str(one.get("type") or one.get("code") or one) for one in answer.json()["results"]}
    assert MARK not in str(kinds).replace(HIDDEN_EVENTS[0], "")
    assert "not-permitted" not in body_of(answer)
    answer = call.post("drills/", {"set": world.hidden["set_id"][0], "comment": "x"})
    assert answer.status_code == 404
    assert leaks(answer) == []


def test_other_listener_of_a_shared_cache_has_no_name(world: World) -> None:
    _, call = callers(world)
    # The other listener of a shared cache has no name.
    shared = Cache.objects.get(host=SHARED_CACHE)
    names = {row["machine"]["resource_name"] for row in ask(call, f"caches/{shared.pk}/").json()["coverage"]}
    assert names == {"vm1", visibility.HIDDEN}


def test_a_stream_tells_a_reader_what_lies_in_their_scopes(world: World) -> None:
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


def test_admins_and_people_without_scopes_see_everything_and_without_the_setting_all_do(
    world: World, settings: Any
) -> None:
    for person in (factories.admin(), factories.viewer()):
        assert leaks(logged_in(person).get("/sets/"))
    ada = factories.admin()
    Scope.objects.create(user=ada, kind="name", pattern="web*")
    assert leaks(logged_in(ada).get("/sets/"))
    settings.SCOPED_READ_ACCESS = False
    assert leaks(logged_in(world.reader).get("/sets/"))


@pytest.mark.parametrize(
    "pattern", ["web", "WEB*", "w?b", "*", "", "w.b", "we\\b", "[w]eb", "web$", "(web|x)", "we b", "wéb", "a-b_c"]
)
def test_the_database_matches_scopes_as_people_s_rights_do(db: None, pattern: str) -> None:
    names = ["web", "Web-2", "w.b", "we\\b", "[w]eb", "web$", "(web|x)", "x", "we b", "wéb", "a-b_c", "axb_c", "web\nx"]
    for number, name in enumerate(names):
        AvailabilitySet.objects.create(
            key=str(number), kind="availability_set", name=name, created_at=datetime.now(UTC)
        )
    provisional = AvailabilitySet.objects.create(key="p", kind="provisional", name="web", created_at=datetime.now(UTC))
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
    now = datetime.now(UTC)
    sets = AvailabilitySet.objects
    web = sets.create(key="w", kind="availability_set", name="web", created_at=now)
    old = sets.create(key="o", kind="provisional", name="umbra-old", created_at=now, merged_into=web)
    pks = set(visibility.LimitedReader("rita", (("name", "web"),)).sets.values_list("pk", flat=True))
    assert {web.pk, old.pk} <= pks
