"""List filters: they are part of the page's address and of the address of the part that refreshes."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.db import transaction
from django.test import Client

from fleet.domain.timeline import GROUPS, EntryKind, kinds_of
from fleet.models import ScheduledEvent
from fleet.operations.timeline.entries import tell
from tests import factories
from tests.dashboard.conftest import marks, text_of

OTHER = "0A1B2C3D-0000-4000-8000-000000000001"


@pytest.fixture
def two(fleet: factories.Fleet) -> factories.Fleet:
    """Two open events of `web`: a Freeze of vm1 that is approved, a Reboot of VM2 that waits."""
    fleet.enrol_set()
    fleet.enrol("lone", availability_set="standalone:lone")
    fleet.later(1)
    due = fleet.now + timedelta(minutes=15)
    fleet.all_say(
        factories.listing(resources=("vm1",), not_before=due),
        factories.listing(OTHER, event_type="Reboot", resources=("VM2",), not_before=due, EventSource="User"),
        names=[f"vm{number}" for number in range(1, 7)],
    )
    fleet.approve(factories.EVENT)
    return fleet


def test_the_part_that_refreshes_keeps_the_filter(two: factories.Fleet, operator: Client) -> None:
    body = operator.get("/history/?needs_decision=true").content.decode()
    assert 'hx-get="/history/?needs_decision=true&amp;part=event_rows"' in body
    part = operator.get("/history/?needs_decision=true&part=event_rows", headers={"HX-Request": "true"})
    assert "of vm1" not in text_of(part)


def test_events_are_sorted_by_the_column_in_the_address(two: factories.Fleet, operator: Client) -> None:
    ScheduledEvent.objects.filter(event_id=OTHER).update(not_before=two.now + timedelta(minutes=5))
    for order, ids in (("not_before", [OTHER, factories.EVENT]), ("-not_before", [factories.EVENT, OTHER])):
        answer = operator.get(f"/history/?order={order}")
        assert [key for key in marks(answer, "data-key") if key in ids] == ids, order
        assert answer.content.decode().count("aria-sort=") == 1
    body = operator.get("/history/?type=Reboot&order=-not_before").content.decode()
    assert 'href="?type=Reboot&amp;order=not_before"' in body and 'href="?type=Reboot&amp;order=-first_seen_at"' in body
    assert "aria-sort" not in operator.get("/history/?order=description").content.decode()


def test_machines_sets_and_entries_by_filter(two: factories.Fleet, operator: Client) -> None:
    assert "vm3" not in text_of(operator.get("/machines/?q=LONE"))
    assert "lone" in text_of(operator.get("/machines/?q=LONE"))
    only = text_of(operator.get("/sets/?kind=standalone"))
    assert "lone" in only and "web" not in only
    story = text_of(operator.get(f"/timeline/?event={OTHER.lower()}"))
    assert "Reboot" in story
    assert "Freeze" not in story
    machine = two.agents["lone"].machine.pk
    assert "vm1" not in text_of(operator.get(f"/timeline/?machine={machine}"))


def test_a_group_shows_its_kinds_and_the_queue_none_about_accounts(two: factories.Fleet, operator: Client) -> None:
    with transaction.atomic():
        tell(EntryKind.TOKEN_CREATED, factories.acting(factories.admin()), at=two.now, name="ci", person="ada")
    page = operator.get("/timeline/?event=" + factories.EVENT)
    links = [unescape(link) for link in re.findall(r'href="(\?[^"]*kind=[^"]*)"', page.content.decode())]
    shown = dict(zip(GROUPS, [operator.get(f"/timeline/{link}") for link in links], strict=True))
    assert EntryKind.EVENT_SEEN.label in text_of(shown["Azure"])
    assert EntryKind.APPROVAL_GRANTED.label in text_of(shown["Decisions"])
    assert EntryKind.APPROVAL_GRANTED.label not in text_of(shown["Azure"])
    kinds = "&".join(f"kind={kind.value}" for kind in kinds_of("Accounts"))
    assert EntryKind.TOKEN_CREATED.label in text_of(operator.get(f"/timeline/?{kinds}"))
    assert EntryKind.TOKEN_CREATED.label not in text_of(operator.get("/"))


def test_next_page_link_keeps_the_filter(two: factories.Fleet, operator: Client) -> None:
    for number in range(60):
        two.enrol(f"many{number:02d}", availability_set="standalone:many", heard=False)
    first = operator.get("/machines/?q=many").content.decode()
    assert "many49" in first
    assert "many50" not in first
    link = first.split('<nav class="pager"')[1].split('href="')[1].split('"')[0].replace("&amp;", "&")
    assert "q=many" in link
    second = operator.get(f"/machines/{link}").content.decode()
    assert "many50" in second
    assert "many59" in second
    assert "many49" not in second


def test_a_timeline_opens_at_a_time_and_keeps_its_filter(two: factories.Fleet, operator: Client) -> None:
    at, home = f"{two.now:%Y-%m-%dT%H:%M}", two.agents["lone"].machine.availability_set_id
    two.later(3600)
    two.enrol("newcomer", availability_set="standalone:lone")
    assert "newcomer" in text_of(operator.get(f"/timeline/?set={home}"))
    for address in (f"/sets/{home}/", "/timeline/?kind=machine_enrolled", f"/events/{OTHER}/", "/machines/"):
        body = operator.get(address).content.decode()
        assert ('name="at"' in body) == (address != "/machines/"), address
    assert (
        '<input type="hidden" name="kind" value="machine_enrolled">'
        in operator.get(f"/timeline/?kind=machine_enrolled&at={at}").content.decode()
    )
    then = operator.get(f"/timeline/?set={home}&at={at}")
    assert "newcomer" not in text_of(then) and "lone" in text_of(then)
    later = unescape(re.findall(r'href="([^"]*)" rel="prev"', then.content.decode())[0])
    assert f"set={home}" in later and "newcomer" in text_of(operator.get(f"/timeline/{later}"))


def test_a_time_that_cannot_be_read_is_refused(two: factories.Fleet, operator: Client) -> None:
    for at in ("yesterday", "1999-12-31T00:00", "2026-02-30T00:00", "9999-12-31T23:59:59-14:00"):
        page = operator.get("/timeline/", {"at": at})
        assert marks(page, "data-refusal") == ["validation"], at
        assert "Reboot" in text_of(page)
