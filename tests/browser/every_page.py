"""Every page there is, by the routing table, over a fleet with something of everything.

Who adds a page need not know of the tests that look at all of them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.test import Client
from django.urls import URLPattern

from fleet.accounts.external_accounts import invitation
from fleet.accounts.models import SignOnGrant
from fleet.domain.machines.inventory import read_inventory
from fleet.models import AvailabilitySet, Maintenance, NoApprovalWindow, Rule, ScheduledEvent
from fleet.notifications.channels import KINDS
from fleet.notifications.models import Channel, Route
from fleet.operations import waves
from fleet.operations.approvals import claims
from fleet.operations.drills import begin as drills
from fleet.operations.machines.inventory import import_inventory
from fleet.operations.policy import rules
from fleet.operations.saved_views import ViewForm, save_view
from fleet.urls import PAGES
from tests import accounts, factories
from tests.browser.story import tell
from tests.caches.walking import HOST, Listeners, line, the_cache
from tests.factories import acting, listing
from tests.machines.test_inventories import sample
from tests.messages.sent import a_channel, a_message, a_post, failed
from tests.policy.conftest import made

# Addresses that end here and not at a page: they need what only a form gives them, or are another page's part. A
# service account is not a person and cannot be erased.
ADDITIONAL = ("/accounts/logout/", "/accounts/sign-on/", "/accounts/passkey/", "/agent/", "/people/deploy-bot/forget/")
# What an address has to ask for.
QUERIES = {"/bulk/": "?do=approve&all=on&of=queue", "/services/": "?name=shop", "/waves/begin/": "?service=shop"}


@dataclass(frozen=True, slots=True)
class Whole:
    """A fleet with something of everything; `values` are the examples of each argument of an address."""

    fleet: Listeners
    values: dict[str, list[object]]

    def addresses(self) -> Iterator[tuple[str, str]]:
        """The name and the addresses of every route of the pages, by their examples."""
        for pattern in PAGES:
            if isinstance(pattern, URLPattern):
                for address in self._filled(str(pattern.pattern)):
                    yield str(pattern.name), f"/{address}{QUERIES.get(f'/{address}', '')}"

    def _filled(self, route: str) -> list[str]:
        found = re.search(r"<(?:\w+:)?(\w+)>", route)
        if found is None:
            return [route]
        assert found[1] in self.values, f"say in tests/browser/every_page.py what {found[0]} may be, for {route}"
        return [
            whole
            for value in self.values[found[1]]
            for whole in self._filled(route[: found.start()] + str(value) + route[found.end() :])
        ]


def whole_fleet(fleet: Listeners) -> Whole:
    """Build the story and add rules, windows, a wave, a drill, caches, an inventory and decisions of all kinds."""
    story = tell(fleet)
    now, ada, otto = fleet.now, factories.admin(), factories.operator()
    made(at=now, name="Freezes are harmless", event_types=["Freeze"], max_duration_seconds=8, enabled=False)
    # Never today, whatever day it is: it would keep the wave from beginning.
    sale = {
        "name": "Summer sale",
        "reason": "The shop is full.",
        "weekdays": sorted({(now.weekday() + later) % 7 for later in (3, 4)}),
    }
    rules.create_window(rules.WindowRequestSerializer(data=sale), actor=acting(ada), now=now)
    caches(fleet)
    ids = [f"0A1B2C3D-0000-4000-8000-0000000000A{number}" for number in range(3)]
    names = ("shop-1", "shop-2", "shop-3")
    for number, name in enumerate(names):
        fleet.enrol(name, availability_set="shop-front", fault_domain=number)
    AvailabilitySet.objects.filter(name="shop-front").update(service="shop")
    due = [now + timedelta(minutes=15 * number) for number in range(1, 4)]
    told = [
        listing(one, event_type="Reboot", resources=[name], not_before=at)
        for one, name, at in zip(ids, names, due, strict=True)
    ]
    fleet.all_say(*told, names=names)
    wave = waves.begin(actor=acting(otto, why="patch night"), service="shop", now=now)
    fleet.enrol("solo", availability_set="standalone:solo")
    drill = drills.begin(set_id=fleet.agents["solo"].machine.availability_set_id, actor=acting(otto), now=now)
    claims.claim(event_id=story.waiting, actor=acting(otto, why="I am on it"), now=now)
    view = save_view(
        ViewForm({"name": "Web", "page": "sets", "query": "q=web", "shared": True}), actor=acting(ada), now=now
    )
    post = messages(fleet.now, story.waiting)
    bot = accounts.make_service(username="deploy-bot", group="operator", owner="otto", purpose="deploys", now=now)
    import_inventory(inventory=read_inventory(sample("vm_list")), now=now)
    states = [story.waiting, story.under_way, story.ended, ids[0], drill.event.event_id]
    machine = fleet.agents["vm1"].machine
    values: dict[str, list[object]] = {
        "set_id": [machine.availability_set_id, fleet.agents["stray-vm"].machine.availability_set_id],
        "machine_id": [machine.pk, fleet.agents["newcomer"].machine.pk],
        "event_id": list(states),
        "drill_id": [drill.pk],
        "wave_id": [wave.pk],
        "cache_id": [the_cache().pk],
        "maintenance_id": [Maintenance.objects.order_by("pk")[0].pk],
        "rule_id": [Rule.objects.order_by("pk")[0].pk],
        "window_id": [NoApprovalWindow.objects.order_by("pk")[0].pk],
        "approval_id": [ScheduledEvent.objects.get(event_id=story.under_way).approvals.latest("pk").pk],
        "view_id": [view.pk],
        "username": ["otto", bot.user.username],
        "prefix": ["join_none"],
        "month": [f"{now:%Y-%m}"],
        "delivery_id": [post],
        "invitation": [invitation(kind="slack", team="T1", account="U1", name="Otto")],
        "account_id": [],
        "handover_id": [],
        "grant_id": [SignOnGrant.objects.create(value="Drydock.Operator", group="operator", created_at=now).pk],
        "sign_on_id": [],
        "factor_id": [],
        "session_id": [],
        "kind": list(KINDS),
        "channel_id": list(Channel.objects.order_by("pk").values_list("pk", flat=True)),
        "route_id": [Route.objects.create(name="All", created_at=now, changed_at=now).pk],
        "table": ["notice"],
        "name": ["shop"],
    }
    return Whole(fleet, values)


def messages(now: datetime, event_id: str) -> UUID:
    """Messages of all kinds: told, failed, waiting, dropped, and one that no route wanted; the post that failed."""
    event = ScheduledEvent.objects.get(event_id=event_id)
    slack, mail = a_channel("#shop-ops", at=now), a_channel("On call", kind="mail", at=now)
    a_post(slack, [a_message(event, slack, at=now)], at=now)
    Channel.objects.filter(pk=slack.pk).update(last_ok_at=now)
    tries = [failed("<b>452</b> Insufficient system storage", status=452)]
    post = a_post(mail, [a_message(event, mail, at=now)], at=now, state="QUEUED", tries=tries)
    health = {"failing_since": now, "failures": 1, "last_error": "status", "last_answer": "452 Insufficient storage"}
    Channel.objects.filter(pk=mail.pk).update(held_until=now + timedelta(hours=1), **health)
    a_message(event, slack, at=now, moment="event.claimed")
    a_message(event, slack, at=now, moment="event.changed", state="DROPPED", why="superseded")
    a_message(event, None, at=now, state="UNROUTED")
    return post.pk


def caches(fleet: Listeners) -> None:
    """A maintenance that is announced, heard by two machines of which one was cut off."""
    for name in ("vm1", "vm2"):
        fleet.cover(name, "subscribed", tier="standard")
    soon = (fleet.now + timedelta(seconds=700)).strftime("%Y-%m-%dT%H:%M:%S")
    fleet.hear("vm1", line("NodeMaintenanceScheduled") + f"|StartTimeInUTC|{soon}", host=HOST)
    fleet.cover("vm2", "lost", reason="closed by the server")


def pages(whole: Whole, client: Client, *, every_state: bool = True, may_all: bool = True) -> list[str]:
    """The addresses that answer with a page of their own; forms, files, parts and old addresses are none.

    Of each route all examples, or the first alone. A reader who may not do all is refused some.
    """
    found = []
    seen = set()
    for name, address in whole.addresses():
        if address.startswith(ADDITIONAL):
            continue
        answer = client.get(address)
        kind = answer.get("Content-Type", "")
        refused = answer.status_code in (403, 404) and not may_all
        assert answer.status_code in (200, 301, 302, 405) or refused or _file(address), (
            f"{name} {address}: {answer.status_code}"
        )
        if answer.status_code == 200 and kind.startswith("text/html") and b"<main" in answer.content:
            if every_state or name not in seen:
                found.append(address)
            seen.add(name)
    return found


def _file(address: str) -> bool:
    return address.endswith((".csv", ".json", ".jsonl", ".md", ".ics"))
