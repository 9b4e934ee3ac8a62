"""What people and programs read most, as calls."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from django.test import Client

from fleet.models import AvailabilitySet, Maintenance, ScheduledEvent
from fleet.projections import blind_spots, intake, machines, sets, spans
from fleet.projections.caches.coverage import Span
from fleet.projections.desk import fleet_map, gauges, queue, service, status_bar
from fleet.projections.events import rows as event_rows
from fleet.projections.events.detail import event_detail
from fleet.projections.filters import EventFilter, MachineFilter
from fleet.projections.timeline import entries
from tests import factories
from tests.caches.walking import Listeners, line

PAGES = """
/ /fleet/ /fleet/?as=table /services/{service}/ /sets/ /sets/{set}/ /machines/ /machines/?as=counts
/machines/{machine}/ /history/ /events/{event}/ /timeline/ /timeline/?kind=stop_lifted&kind=approvals_stopped
/timeline/?service={service} /timeline/?resource_group=nowhere /blind-spots/ /blind-spots/?kind=agent-too-old
/find/?q=vm /views/ /caches/ /caches/{cache}/ /maintenances/{maintenance}/ /pulse/ /audit/ /audit/?q=no+such+words
/audit/?via=slack&via=pagerduty /audit/?actor_kind=person&kind=stop_lifted /timeline/?set={set}&kind=stop_lifted
/history/?type=Nothing /policy/ /handover/?since={day}T00:00:00Z&until=2090-01-01T00:00:00Z /reports/
/reports/{month}/ /reports/events/{event}/
"""
LISTS = """
events/ events/?needs_decision=true machines/ machines/?q=s1 machines/?ordering=-enrolled_at machines/counts/
events/{event}/ events/{event}/timeline/ events/{event}/documents/ approvals/ sets/ audit/ blind-spots/ caches/
maintenances/ notifications/ events/?changed_since=2026-01-01T00:00:00Z sets/?changed_since=2026-01-01T00:00:00Z
approvals/?changed_since=2026-01-01T00:00:00Z events/?resource_group=shop&set_name=set-1&machine_name=s1-1
machines/?resource_group=shop&set_name=set-1&machine_name=s1-1
audit/?resource_group=shop&set_name=set-1&machine_name=s1-1
"""


def answered(client: Client, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 200, answer


def grow(walker: Listeners, number: int) -> None:
    """One more set of three machines with an open, a decided and an ended event each, and a cache of its own."""
    names = [f"s{number}-{machine}" for machine in range(3)]
    for name in names:
        walker.enrol(name, availability_set=f"set-{number}")
        walker.say(name)
    walker.later(0.1)
    ids = [f"0A1B2C3D-0000-4000-8000-{number:06d}{kind:06d}" for kind in range(3)]
    times = [walker.now + timedelta(minutes=5 + kind) for kind in range(3)]
    listings = [
        factories.listing(event_id, resources=(names[kind],), not_before=times[kind])
        for kind, event_id in enumerate(ids)
    ]
    walker.all_say(*listings, names=names)
    walker.approve(ids[1])
    walker.all_say(*listings[:2], names=names)
    AvailabilitySet.objects.update(service="shop")
    host = f"cache{number}.redis.cache.windows.net"
    walker.cover(names[0], "subscribed", host=host)
    for kind in ("Start", "Ended", "Start"):
        walker.hear(names[0], line(f"NodeMaintenance{kind}"), host=host)


def calls(client: Client) -> dict[str, Callable[[], Any]]:
    """What is read often, by name: projections, pages and lists of the API."""
    now = datetime.now(UTC)
    event = ScheduledEvent.objects.order_by("pk")[0]
    machine_id = event.availability_set.machines.order_by("pk")[0].pk
    set_id, maintenance = event.availability_set_id, Maintenance.objects.order_by("pk")[0]
    found: dict[str, Callable[[], Any]] = {
        "queue": lambda: queue.decision_queue(now=now),
        "pulse": lambda: queue.pulse(now=now),
        "overview": lambda: status_bar.overview(now=now),
        "cards": lambda: sets.cards(now=now, first=[set_id]),
        "sets": lambda: sets.listing(now=now),
        "set lines": lambda: sets.lines(now=now),
        "gauges": lambda: gauges.measure(now=now),
        "set": lambda: sets.detail(set_id=set_id, now=now),
        "machines": lambda: machines.listing(now=now, machines=MachineFilter({"q": "s"}).qs),
        "machine": lambda: machines.detail(machine_id=machine_id, now=now),
        "events": lambda: event_rows.listing(now=now, events=EventFilter({}, now=now).qs, size=100),
        "event": lambda: event_detail(event_id=event.event_id, now=now),
        "documents": lambda: intake.for_event(event_id=event.event_id),
        "fleet map": lambda: fleet_map.fleet_map(now=now),
        "service": lambda: service.detail(service=event.availability_set.service, now=now),
        "spans": lambda: spans.of_machines(
            set_id, Span(now - timedelta(hours=1), now), now=now, availability_set=set_id
        ),
        "timeline": entries.fleet,
        "story": lambda: entries.for_event(event_id=event.event_id),
        "blind spots": lambda: blind_spots.overview(now=now),
    }
    parts = {
        "service": event.availability_set.service, "set": set_id, "machine": machine_id, "event": event.event_id,
        "cache": maintenance.cache_id, "maintenance": maintenance.pk, "day": f"{now:%Y-%m-%d}", "month": f"{now:%Y-%m}",
    }  # fmt: skip
    found |= {f"page {path}": partial(answered, client, path.format(**parts)) for path in PAGES.split()}
    found |= {
        f"GET {path}": partial(answered, client, f"/api/v1/{path.format(event=event.event_id)}")
        for path in LISTS.split()
    }
    return found
