"""A fleet in which every call has something to do for the callers that may make it. It supplies the value of each part
of an address and the body to send. Callers whose scopes are here act in sets named `web*`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from drydock_agent import wire
from pytest_django.plugin import DjangoDbBlocker

from fleet.accounts.external_accounts import invitation
from fleet.accounts.models import SignOn, SignOnGrant
from fleet.audit import handovers
from fleet.domain.approvals.conditions import When
from fleet.domain.machines.inventory import read_inventory
from fleet.domain.secrets import new_secret
from fleet.models import Admission, Maintenance, OutsideAccount, SavedView
from fleet.operations import drills, waves
from fleet.operations.approvals import claims
from fleet.operations.machines import enrolment
from fleet.operations.machines.inventory import import_inventory
from fleet.operations.policy import rules
from tests import accounts, factories
from tests.caches.walking import HOST, Listeners, line, the_cache
from tests.factories import EVENT, acting, listing
from tests.machines.test_inventories import sample
from tests.messages.sent import a_channel, a_message, a_post, a_route, failed
from tests.rows import TokenFactory

ISSUER = "https://login.example"
A_DAY = 86400.0
PROPOSED, WAITING, CLAIMED, HELD = (f"0A1B2C3D-0000-4000-8000-00000000000{number}" for number in range(4))
IN_WAVE = [f"0A1B2C3D-0000-4000-8000-00000000001{number}" for number in range(2)]
ANOTHER_WAVE = [f"0A1B2C3D-0000-4000-8000-00000000002{number}" for number in range(2)]
OWN_SETS = {PROPOSED: "web-second", WAITING: "web-later", CLAIMED: "web-claimed", HELD: "web-held"}


@dataclass
class World:
    """`values` are by the names that addresses give them; `secrets` what machines and calendars prove themselves by."""

    fleet: Listeners
    values: dict[str, Any]
    secrets: dict[str, str]


def world() -> World:
    """Build the fleet. Gina, an approver, and Grace, whom admins manage, act in it; neither is a column."""
    fleet = Listeners(now=datetime.now(UTC))
    gina, grace = factories.approver("gina"), factories.operator("grace")
    sets(fleet)
    decisions(fleet, gina)
    values = values_of(fleet, gina) | caches(fleet) | messages(fleet) | people(fleet, grace)
    feed, plain = accounts.calendar(actor=acting(grace), name="Web", now=fleet.now)
    values |= {"token": plain, "feed": feed.prefix}
    secrets = {"machine": fleet.agents["vm1"].credential, "join-token": fleet.join_token, "calendar": plain}
    return World(fleet, values, secrets)


def busy_world() -> World:
    """The same, in which an event has started, another ended, a maintenance is over, and a notification failed."""
    found = world()
    fleet = found.fleet
    mail = a_channel("On call", kind="mail", at=fleet.now, failing_since=fleet.now, failures=1, last_error="status")
    a_post(mail, [a_message(factories.the_event(), mail, at=fleet.now)], at=fleet.now, state="QUEUED", tries=[failed()])
    a_message(factories.the_event(), None, at=fleet.now, state="UNROUTED")
    import_inventory(inventory=read_inventory(sample("vm_list")), now=fleet.now)
    fleet.later(1)
    fleet.say("web-claimed", listing(CLAIMED, resources=("web-claimed",), event_type="Reboot", status="Started"))
    fleet.say("web-held")
    for kind in ("Start", "Ended"):
        fleet.hear("vm1", line(f"NodeMaintenance{kind}"))
    fleet.cover("vm1", "lost", reason="closed by the server")
    return found


@contextmanager
def rolled_back(blocker: DjangoDbBlocker) -> Iterator[None]:
    """A transaction around all tests of a module that share a world; each of them works in a savepoint within it."""
    together = transaction.atomic()
    # As Django marks its own around tests: what has to be a transaction of its own may run inside.
    together._from_testcase = True  # type: ignore[attr-defined]
    with blocker.unblock(), together:
        yield
        transaction.set_rollback(True)


def lasting_world(monkeypatch: Any, settings: Any) -> World:
    """The same for tests that walk through all of it, which takes minutes: nothing in it may expire meanwhile."""
    for name in ("MACHINE_LIVE_SECONDS", "MACHINE_LATE_SECONDS", "MACHINE_GONE_SECONDS", "STEP_UP_SECONDS"):
        setattr(settings, name, A_DAY)
    monkeypatch.setattr("fleet.accounts.external_accounts.INVITATION", timedelta(seconds=A_DAY))
    settings.OIDC_ISSUER = ISSUER
    found = world()
    # From here on no setting states how machines enrol.
    settings.ENROLMENT_POLICY = ""
    return found


def sets(fleet: Listeners) -> None:
    """`web` with six machines and an event, and sets of one machine with one event each; `dock` lies elsewhere."""
    shop, pier = ({"tagsList": [{"name": "drydock:service", "value": name}]} for name in ("shop", "pier"))
    due = fleet.now + timedelta(hours=2)
    fleet.enrol_set()
    fleet.later(1)
    six = list(fleet.agents)
    fleet.all_say(listing(resources=("vm1", "vm2"), not_before=due), names=six)
    for event, name in OWN_SETS.items():
        fleet.enrol(name, availability_set=name)
        fleet.say(name, listing(event, resources=(name,), not_before=due, event_type="Reboot"))
    for number, event in enumerate(IN_WAVE + ANOTHER_WAVE):
        name = f"web-wave-{number}"
        fleet.enrol(name, availability_set=name, fault_domain=number, **(shop if event in IN_WAVE else pier))
        if event in ANOTHER_WAVE:
            fleet.enrol(f"{name}-beside", availability_set=name)
            fleet.say(f"{name}-beside")
        at = due + timedelta(minutes=15 * number)
        fleet.say(name, listing(event, resources=(name,), not_before=at, event_type="Reboot"))
    for name in ("web-drill", "web-idle", "dock"):
        fleet.enrol(name, availability_set=name)
        fleet.say(name)
    fleet.enrol("stray", availability_set="")


def decisions(fleet: Listeners, gina: User) -> None:
    second, amy = factories.the_set("web-second"), acting(factories.admin("amy"))
    factories.change_set(set_id=second.pk, second_person=True, actor=amy, now=fleet.now)
    alone = {"last-live-machines": "it is alone"}
    fleet.approve(PROPOSED, by=gina, overrides=alone)
    at = fleet.now + timedelta(minutes=5)
    fleet.approve(WAITING, by=gina, when=When.TIME, due_at=at, overrides=alone)
    claims.claim(event_id=CLAIMED, actor=acting(gina, why="mine"), now=fleet.now)
    claims.hold(event_id=HELD, actor=acting(gina, why="let it run"), now=fleet.now)


def values_of(fleet: Listeners, gina: User) -> dict[str, Any]:
    ada, now = acting(factories.admin("amy")), fleet.now
    rule = {"name": "Pauses", "reason": "short", "action": "hold", "event_types": ["Freeze"], "set_pattern": "dock"}
    # One above it, for where no ready-made rules are left.
    rules.create_rule(rules.RuleRequestSerializer(data=rule | {"name": "Docks", "reason": "first"}), actor=ada, now=now)
    window = {"name": "Sale", "reason": "full", "weekdays": [(now.weekday() + 3) % 7], "set_pattern": "dock"}
    window["time_zone"] = "America/New_York"
    guards = dict.fromkeys(("last-live-machines", "other-open-event", "service-in-flight"), "one by one")
    for name in ("vm2", "vm3"):
        asking = {"join_token": fleet.join_token, "machine_id": fleet.agents[name].machine.vm_id, "ask": name}
        enrolment.enrol(request=wire.EnrolRequest(**asking), now=now)
    join, _ = accounts.join_token(comment="rack 7", expires_in=timedelta(days=1), now=now)
    machine = fleet.agents["vm6"].machine
    handover = handovers.send(since=now - timedelta(minutes=30), until=None, actor=acting(gina), now=now)
    return {
        "set_id": machine.availability_set_id,
        "machine_id": machine.pk,
        "event_id": EVENT,
        "approval_id": factories.the_event(WAITING).approvals.get().pk,
        "consent_id": factories.the_event(PROPOSED).approvals.get().pk,
        "stray_id": fleet.agents["stray"].machine.availability_set_id,
        "idle_id": factories.the_set("web-idle").pk,
        "drill_id": drills.begin(set_id=factories.the_set("web-drill").pk, actor=acting(gina), now=now).pk,
        "claimed_id": CLAIMED,
        "held_id": HELD,
        "wave_events": ANOTHER_WAVE,
        "wave_id": waves.begin(actor=acting(gina, why="patches"), events=IN_WAVE, overrides=guards, now=now).pk,
        "rule_id": rules.create_rule(rules.RuleRequestSerializer(data=rule), actor=ada, now=now).pk,
        "window_id": rules.create_window(rules.WindowRequestSerializer(data=window), actor=ada, now=now).pk,
        "join": join.prefix,
        "admission": Admission.objects.order_by("pk")[0].pk,
        "version": factories.the_event().version,
        "content_type_id": ContentType.objects.get_for_model(User).pk,
        "object_id": User.objects.get(username="grace").pk,
        "month": f"{now:%Y-%m}",
        "table": "notice",
        "file": "drydock/mark.svg",
        "name": "shop",
        "handover_id": handover.entry.id,
        "at": (now + timedelta(minutes=5)).isoformat(),
    }


def caches(fleet: Listeners) -> dict[str, Any]:
    fleet.cover("vm1", "subscribed", host=HOST)
    start = f"{fleet.now + timedelta(minutes=10):%Y-%m-%dT%H:%M:%S}"
    fleet.hear("vm1", line("NodeMaintenanceScheduled") + f"|StartTimeInUTC|{start}", host=HOST)
    return {"cache_id": the_cache().pk, "maintenance_id": Maintenance.objects.get().pk}


def messages(fleet: Listeners) -> dict[str, Any]:
    """A webhook of the installation, a route to it, and a post that it took."""
    now = fleet.now
    channel = a_channel("hook", kind="webhook", at=now)
    message = a_message(factories.the_event(), channel, at=now)
    post = a_post(channel, [message], at=now)
    route = a_route("All", at=now, channel=channel)
    unused = a_channel("unused", kind="webhook", at=now)
    ids = {"channel_id": channel.pk, "unused_id": unused.pk, "route_id": route.pk, "message_id": message.pk}
    return {**ids, "channel": channel.pk, "delivery_id": post.pk, "kind": "webhook"}


def people(fleet: Listeners, grace: User) -> dict[str, Any]:
    """What is of grace: a view, a token, accounts elsewhere; and a line of the mapping."""
    now = fleet.now
    view = SavedView.objects.create(owner=grace, name="Web", page="sets", shared=True, created_at=now)
    token = TokenFactory(secret=new_secret("dd"), user=grace)
    linked = SignOn.objects.create(issuer=ISSUER, subject="7f1c", name="grace", user=grace, seen_at=now, linked_at=now)
    amy = acting(factories.admin("amy"))
    accounts.make_service(username="robot", group="operator", owner="grace", purpose="deploys", actor=amy, now=now)
    known = {"kind": "slack", "team": "T1", "account": "U1", "name": "Grace", "seen_at": now}
    return {
        "username": "grace",
        "service": "robot",
        "session_id": accounts.a_session(grace).pk,
        "prefix": token.prefix,
        "view_id": view.pk,
        "sign_on_id": linked.pk,
        "grant_id": SignOnGrant.objects.create(value="Drydock.Operator", group="operator", created_at=now).pk,
        "account_id": OutsideAccount.objects.create(user=grace, **known).pk,
        "invitation": invitation(kind="slack", team="T1", account="U2", name="Somebody"),
        "factor_id": 1,
    }
