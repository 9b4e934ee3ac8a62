"""Search box: it finds machines, sets, services, events, caches, users and pages by the words of their names."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.models import Cache, Machine
from fleet.models.index_scan import BETWEEN
from fleet.projections.desk.find import MOST
from tests import factories
from tests.dashboard.conftest import text_of
from tests.factories import Fleet
from tests.plans import is_answered_by, queries


def found(client: Client, text: str) -> tuple[str, list[str]]:
    """What is read, and where its links lead."""
    answer = client.get("/find/", {"q": text, "part": "found"}, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    return text_of(answer), re.findall(r'href="([^"]+)"', answer.content.decode())


@pytest.fixture
def shop(fleet: Fleet) -> Fleet:
    for number in range(3):
        fleet.enrol(f"web-vm{number}", availability_set="front_end")
        fleet.say(f"web-vm{number}")
    Cache.objects.create(host="basket.redis.cache.windows.net", service="shop", created_at=fleet.now)
    home = fleet.agents["web-vm0"].machine.availability_set
    home.service = "Shop"
    home.save()
    event = factories.listing(resources=("web-vm1",), event_type="Redeploy")
    fleet.all_say(event, names=[f"web-vm{number}" for number in range(3)])
    return fleet


def test_a_word_inside_a_name_finds_it(shop: Fleet, operator: Client) -> None:
    said, links = found(operator, "vm1")
    machine = shop.agents["web-vm1"].machine
    assert f"/machines/{machine.pk}/" in links
    assert f"/events/{factories.EVENT}/" in links
    assert "web-vm0" not in said
    # So does the beginning of its vmId.
    assert f"/machines/{machine.pk}/" in found(operator, machine.vm_id[:13].upper())[1]


FOUND = {
    "FRONT": "/sets/",
    "end front": "/sets/",
    "shop": "/services/Shop/",
    "basket": "/caches/",
    "redeploy": f"/events/{factories.EVENT}/",
    factories.EVENT[:8].lower(): f"/events/{factories.EVENT}/",
    "ott": "/audit/?person=otto",
    "blind spots": "/blind-spots/",
    "tokens": "/you/",
}
STRANGE = ("", "v", "'", "\\", "a'b:*|!(", "<b>vm1</b>", "%", "🦀", "& | !", BETWEEN, "x" * 5000)


def test_everything_that_has_a_name_is_found_and_no_text_breaks_it(shop: Fleet, operator: Client) -> None:
    for text, link in FOUND.items():
        assert any(to.startswith(link) for to in found(operator, text)[1]), text
    for text in STRANGE:
        said, _ = found(operator, text)
        assert "vm1" not in said or "vm1" in text
        assert operator.get("/find/", {"q": text}).status_code == 200, text
    # Also without scripts.
    page = operator.get("/find/", {"q": "front"})
    assert 'action="/find/"' in page.content.decode() and "front_end" in text_of(page)


def test_admins_find_people_and_their_pages_and_others_do_not(shop: Fleet, admin: Client, operator: Client) -> None:
    assert "/people/otto/" in found(admin, "otto")[1]
    assert "/people/" in found(admin, "users")[1]
    assert "/people/" not in found(operator, "users")[1]


def test_what_belongs_to_me_comes_first(fleet: Fleet, operator: Client) -> None:
    for name in ("alpha", "beta", "gamma"):
        fleet.enrol(f"vm-{name}", availability_set=name)
    otto = User.objects.get(username="otto")
    otto.scopes.create(kind="name", pattern="gamma")
    said, links = found(operator, "vm")
    mine = fleet.agents["vm-gamma"].machine.pk
    assert next(to for to in links if to.startswith("/machines/")) == f"/machines/{mine}/"
    assert said.count("yours") == 1


def test_few_of_many_are_shown_at_the_same_cost_and_by_an_index(shop: Fleet, operator: Client) -> None:
    before = queries(found, operator, "vm1")
    home = shop.agents["web-vm0"].machine.availability_set
    Machine.objects.bulk_create(
        Machine(
            vm_id=f"00000000-0000-0000-0000-{number:012d}",
            resource_name=f"herd-vm{number}",
            availability_set=home,
            enrolled_at=shop.now,
        )
        for number in range(3000)
    )
    after = queries(found, operator, "vm1")
    assert len(after) == len(before)
    assert len([to for to in found(operator, "vm1")[1] if to.startswith("/machines/")]) == MOST
    [asked] = [sql for sql in after if sql.startswith('SELECT "fleet_machine"')]
    # Beginnings of vmIds go by the index that Django makes for them.
    assert is_answered_by(asked, "machine_by_words", "fleet_machine_vm_id_23090f5d_like", "machine_by_node_name")


def test_every_page_carries_the_box(operator: Client) -> None:
    body = operator.get("/drills/").content.decode()
    assert '<dialog id="find"' in body
    assert 'id="find-open" href="/find/"' in body
