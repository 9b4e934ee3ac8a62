"""List filters: they are part of the page's address and of the address of the part that refreshes."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.db import transaction
from django.test import Client

from fleet.domain.timeline import GROUPS, EntryKind, kinds_of
from fleet.operations.timeline.entries import tell
from tests import factories
from tests.dashboard.conftest import text_of

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
