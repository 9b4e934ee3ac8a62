"""A calendar that programs fetch: announced events, windows, maintenance of caches, as long as its person may read."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

import ical.calendar_stream
import pytest
import vobject
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from icalendar import Calendar

from fleet.accounts.calendars import AHEAD, KEPT, dates
from fleet.models import AvailabilitySet, CalendarFeed, Entry, NoApprovalWindow, ScheduledEvent, Scope
from tests import accounts, factories
from tests.caches.walking import HOST, Listeners, line
from tests.dashboard.conftest import logged_in
from tests.factories import EVENT, Fleet, acting, announced


@pytest.fixture
def today(db: None) -> Fleet:
    fleet = Fleet(now=datetime.now(UTC) - timedelta(minutes=1))
    announced(fleet, not_before=fleet.now + timedelta(minutes=15), event_type="Reboot")
    AvailabilitySet.objects.update(service="shop")
    return fleet


def address_of(person: User, **narrowed: str) -> str:
    _, plain = accounts.calendar(actor=acting(person), name="mine", now=datetime.now(UTC), **narrowed)
    return f"/calendar/{plain}.ics"


def fetched(client: Client, address: str) -> Calendar:
    answer = client.get(address)
    assert answer.status_code == 200, answer.content
    assert answer["Content-Type"] == "text/calendar; charset=utf-8"
    # By three parsers: each finds what the others miss.
    body = answer.content
    assert body.endswith(b"\r\n")
    assert all(len(part) <= 75 for part in body.split(b"\r\n"))
    whole: Any = Calendar.from_ical(body)
    found = whole.walk("VEVENT")
    assert not [event.errors for event in found if event.errors]
    strict = ical.calendar_stream.IcsCalendarStream.calendar_from_ics(body.decode())
    assert [event.uid for event in strict.events] == [str(event["UID"]) for event in found]
    (loose,) = vobject.readComponents(body.decode())
    loose.validate(raiseException=True)
    assert len(loose.contents.get("vevent", [])) == len(found)
    return whole


def events(whole: Calendar) -> list[Any]:
    return list(whole.walk("VEVENT"))


def test_an_announced_event_is_a_date_at_its_not_before(today: Fleet, client: Client) -> None:
    whole = fetched(client, address_of(factories.viewer()))
    (found,) = events(whole)
    event = ScheduledEvent.objects.get()
    assert found["UID"] == f"event-{EVENT.lower()}@127.0.0.1"
    assert found.decoded("DTSTART") == event.not_before
    assert found.decoded("DTSTART").utcoffset() == timedelta(0)
    assert found["SUMMARY"] == "Reboot of vm1, vm2 in web"
    assert found["STATUS"] == "CONFIRMED"
    assert found["URL"] == f"http://127.0.0.1:8000/events/{EVENT}/"
    assert "it is no alert" in found["DESCRIPTION"]
    assert whole["X-PUBLISHED-TTL"] == "PT5M"
    assert b"TZID" not in whole.to_ical()


def test_each_change_is_a_higher_sequence_of_the_same_date_until_it_has_ended(today: Fleet, client: Client) -> None:
    address = address_of(factories.viewer())
    (before,) = events(fetched(client, address))
    later = today.now + timedelta(minutes=30)
    today.later(1)
    today.all_say(factories.listing(not_before=later, resources=("vm1", "vm2"), event_type="Reboot"))
    (after,) = events(fetched(client, address))
    assert after.decoded("DTSTART") == later.replace(microsecond=0)
    today.later(5)
    today.all_say()
    (ended,) = events(fetched(client, address))
    assert (before["STATUS"], after["STATUS"], ended["STATUS"]) == ("CONFIRMED", "CONFIRMED", "CANCELLED")
    assert before["UID"] == after["UID"] == ended["UID"]
    assert before["SEQUENCE"] < after["SEQUENCE"] < ended["SEQUENCE"]
    ScheduledEvent.objects.update(ended_at=datetime.now(UTC) - KEPT - timedelta(seconds=1))
    assert events(fetched(client, address)) == []


def test_weekly_windows_follow_their_clock_through_the_end_of_summer_time(db: None) -> None:
    now = datetime(2026, 10, 23, 12, tzinfo=UTC)
    NoApprovalWindow.objects.create(
        name="Evenings", reason="Sales.", weekdays=[5, 6], from_time=time(22), until_time=time(2),
        time_zone="Europe/Berlin", created_at=now,
    )  # fmt: skip
    found = {str(date["uid"]): (date["dtstart"].dt, date["dtend"].dt - date["dtstart"].dt) for date in dates(now=now)}
    # The night in which the clocks go back, and those after it.
    assert list(found.values())[:3] == [
        (datetime(2026, 10, 24, 20, tzinfo=UTC), timedelta(hours=5)),
        (datetime(2026, 10, 25, 21, tzinfo=UTC), timedelta(hours=4)),
        (datetime(2026, 10, 31, 21, tzinfo=UTC), timedelta(hours=4)),
    ]
    assert all(begin <= now + AHEAD for begin, _ in found.values())
    # Tomorrow they are still the same dates.
    assert found.keys() <= {str(date["uid"]) for date in dates(now=now + timedelta(days=1))}


def test_a_window_that_was_deleted_is_cancelled(db: None, client: Client) -> None:
    now = datetime.now(UTC)
    during = {"starts_at": now, "ends_at": now + timedelta(days=1), "created_at": now}
    row = NoApprovalWindow.objects.create(name="Sale, <b>big</b>; really\\", reason="Two\nlines", **during)
    address = address_of(factories.viewer())
    (window,) = events(fetched(client, address))
    assert window["SUMMARY"] == "No approvals: Sale, <b>big</b>; really\\"
    assert window["DESCRIPTION"].startswith("Two\nlines\n")
    row.deleted_at = datetime.now(UTC)
    row.save()
    (window,) = events(fetched(client, address))
    assert window["STATUS"] == "CANCELLED"


def test_maintenance_of_a_cache_is_a_date(db: None, client: Client) -> None:
    listeners = Listeners(now=datetime.now(UTC) - timedelta(minutes=2))
    listeners.enrol_set(1, prefix="c")
    listeners.hear("c1", line("NodeMaintenanceStart"))
    (found,) = events(fetched(client, address_of(factories.viewer())))
    assert found["SUMMARY"] == f"Maintenance of the cache {HOST}, shard 0"
    listeners.later(30)
    listeners.hear("c1", line("NodeMaintenanceEnded", replica="True"))
    (after,) = events(fetched(client, address_of(factories.viewer("vic"))))
    assert after["STATUS"] == "CANCELLED"
    assert after["SEQUENCE"] > found["SEQUENCE"]


def test_it_is_narrowed_to_a_service_or_sets(today: Fleet, client: Client) -> None:
    viewer = factories.viewer()
    for narrowed, count in (
        ({"service": "shop"}, 1), ({"service": "SHOP"}, 1), ({"service": "till"}, 0),
        ({"set_pattern": "w*"}, 1), ({"set_pattern": "w"}, 0), ({"set_pattern": ".*"}, 0),
    ):  # fmt: skip
        assert len(events(fetched(client, address_of(viewer, **narrowed)))) == count, narrowed


def test_it_shows_no_more_than_its_person_sees(today: Fleet, client: Client, settings: Any) -> None:
    settings.SCOPED_READ_ACCESS = True
    viewer = factories.viewer()
    Scope.objects.create(user=viewer, kind="service", pattern="till")
    address = address_of(viewer)
    assert events(fetched(client, address)) == []
    viewer.scopes.update(pattern="shop")
    assert len(events(fetched(client, address))) == 1


def test_wrong_or_orphaned_address_is_404_unlogged(db: None, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    viewer = factories.viewer()
    address = address_of(viewer)
    assert client.get(address).status_code == 200
    assert client.get(address.replace("/calendar/", "/api/v1/calendar/")).status_code == 200
    assert client.head(address).status_code == 200
    assert client.post(address).status_code == 405
    for wrong in (address[:-5] + "x.ics", "/calendar/x.ics", "/calendar/cal__.ics"):
        assert client.get(wrong).status_code == 404, wrong
    User.objects.update(is_active=False)
    assert client.get(address).status_code == 404
    User.objects.update(is_active=True)
    viewer.groups.clear()
    assert client.get(address).status_code == 404
    assert address[10:-4] not in caplog.text


def test_calendar_secret_is_stored_hashed_and_in_no_entry(today: Fleet) -> None:
    feed, plain = accounts.calendar(actor=acting(factories.viewer()), name="mine", now=datetime.now(UTC))
    secret = plain.split("_", 2)[2]
    assert secret not in str(CalendarFeed.objects.values())
    entry = Entry.objects.get(kind="calendar_made")
    assert secret not in f"{entry.before}{entry.after}{entry.data}"
    assert entry.after["prefix"] == feed.prefix


def test_a_program_that_has_it_already_is_not_sent_it_again_and_asking_is_cheap(today: Fleet, client: Client) -> None:
    address = address_of(factories.viewer())
    first = client.get(address)
    with CaptureQueriesContext(connection) as caught:
        again = client.get(address, headers={"If-None-Match": f'W/"x", {first["ETag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert len(caught) <= 9
    assert first.content == client.get(address).content


def test_it_is_bounded_and_long_hostile_names_are_folded(today: Fleet, client: Client) -> None:
    row = ScheduledEvent.objects.get()
    row.resources = ["vm\r\nEND:VCALENDAR\r\n;,\\ü" * 20] * 3
    row.save()
    copies = []
    for number in range(250):
        copy = ScheduledEvent.objects.get(pk=row.pk)
        copy.pk, copy.event_id = None, f"0A1B2C3D-0000-4000-8000-{number:012d}"
        copies.append(copy)
    ScheduledEvent.objects.bulk_create(copies)
    assert len(events(fetched(client, address_of(factories.viewer())))) == 200


def test_it_is_made_shown_once_and_ended_on_ones_own_page(today: Fleet, client: Client) -> None:
    client.force_login(factories.viewer())
    made = client.post("/you/calendars/", {"name": "Shop", "service": "shop"}).content.decode()
    address = made.split('id="new-calendar" readonly value="http://127.0.0.1:8000')[1].split('"')[0]
    assert address.startswith("/calendar/cal_")
    assert len(events(fetched(client, address))) == 1
    shown = client.get("/you/").content.decode()
    prefix = CalendarFeed.objects.get().prefix
    assert "new-calendar" not in shown
    assert prefix in shown
    assert "do not use a calendar as an alert" in " ".join(shown.split())
    other = logged_in(factories.operator())
    statuses = [each.post(f"/you/calendars/{prefix}/end/").status_code for each in (other, client, client)]
    assert statuses == [403, 302, 422]
    assert client.get(address).status_code == 404
    assert Entry.objects.filter(kind="calendar_ended").count() == 1
    answers = [client.post("/you/calendars/", {"name": f"c{number}"}).status_code for number in range(21)]
    assert [*answers, client.post("/you/calendars/", {"name": ""}).status_code] == [200] * 20 + [422] * 2
