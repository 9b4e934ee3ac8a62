"""List filters: they are part of the page's address and of the address of the part that refreshes."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client

from fleet.domain.timeline import GROUPS, EntryKind, kinds_of
from fleet.models import Cache, Entry, Machine, SavedView, ScheduledEvent
from fleet.models.index_scan import BETWEEN
from fleet.operations.profile import MOST_VIEWS
from fleet.operations.timeline.entries import tell
from fleet.projections.desk.find import MOST
from tests import factories
from tests.dashboard.conftest import logged_in, marks, text_of
from tests.factories import Fleet
from tests.plans import is_answered_by, queries

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


# Saved views: a list with its filters is kept under a name, for oneself or for everybody, and is one click away.


LISTS = ("/fleet/", "/sets/", "/machines/", "/caches/", "/history/", "/timeline/", "/audit/")


def keep(client: Client, name: str, *, page: str = "sets", query: str = "kind=scale_set&q=web", **more: str) -> int:
    return client.post("/views/save/", {"name": name, "page": page, "query": query, **more}).status_code


def bar(client: Client, path: str = "/sets/") -> list[tuple[str, str]]:
    """Where the saved views above a list lead, and what they are called."""
    body = client.get(path).content.decode().partition('aria-label="Saved views"')[2].partition("</nav>")[0]
    found = re.findall(r'<a class="saved-view" href="([^"]*)"[^>]*>(.*?)</a>', body, re.DOTALL)
    return [(to, re.sub(r"<svg.*?</svg>|<[^>]+>|\n", "", name, flags=re.DOTALL).strip()) for to, name in found]


def test_every_list_with_filters_offers_to_keep_what_is_filtered(operator: Client) -> None:
    for path in LISTS:
        assert "/views/save/" not in operator.get(path).content.decode(), path
        assert "/views/save/" in operator.get(f"{path}?q=web&cursor=&part=").content.decode(), path


def test_a_kept_view_is_one_click_away_and_says_when_it_is_shown(operator: Client) -> None:
    answer = operator.post(
        "/views/save/", {"name": "Web", "page": "sets", "query": "q=web&kind=scale_set&cursor=abc&part=rows"}
    )
    assert answer["Location"] == "/sets/?kind=scale_set&q=web"
    assert bar(operator) == [("/sets/?kind=scale_set&amp;q=web", "Web")]
    shown = operator.get("/sets/?q=web&kind=scale_set").content.decode()
    assert re.search(r'class="saved-view"[^>]*aria-current="true"', shown)
    assert bar(operator, "/machines/") == []
    [entry] = Entry.objects.filter(kind="view_saved")
    assert (entry.data["name"], entry.data["page"], entry.data["shared"]) == ("Web", "sets", False)


def test_mine_come_first_and_shared_ones_are_everybodys(operator: Client) -> None:
    olga = logged_in(factories.operator("olga"))
    keep(olga, "A of olga", shared="on")
    keep(olga, "B of olga")
    keep(operator, "Z of otto")
    assert [name for _, name in bar(operator)] == ["Z of otto", "A of olga"]
    assert "Z of otto" not in text_of(olga.get("/views/"))
    assert "A of olga" in text_of(operator.get("/find/?q=olga"))
    assert "olga" in text_of(operator.get("/views/"))


def test_the_same_name_again_replaces_it(operator: Client) -> None:
    keep(operator, "Web")
    keep(operator, "Web", query="q=shop")
    assert bar(operator) == [("/sets/?q=shop", "Web")]
    keep(operator, "Web", query="q=shop")
    assert Entry.objects.filter(kind="view_saved").count() == 2


def test_only_its_owner_or_an_admin_forgets_it(operator: Client, admin: Client) -> None:
    olga = logged_in(factories.operator("olga"))
    keep(olga, "Hers", shared="on")
    keep(olga, "Private")
    shared, private = SavedView.objects.order_by("name")
    assert operator.post(f"/views/{shared.pk}/delete/").status_code == 404
    assert admin.post(f"/views/{private.pk}/delete/").status_code == 404
    assert admin.post(f"/views/{shared.pk}/delete/").status_code == 302
    assert olga.post(f"/views/{private.pk}/delete/", follow=True).status_code == 200
    assert not SavedView.objects.exists()
    assert Entry.objects.filter(kind="view_deleted").count() == 2


def test_what_cannot_be_kept_is_refused(operator: Client) -> None:
    for sent in (
        {"name": " "}, {"name": "x" * 61}, {"page": "nowhere"}, {"page": "people"}, {"query": "q=" + "x" * 3000},
    ):  # fmt: skip
        answer = operator.post("/views/save/", {"name": "Web", "page": "sets", "query": "q=web", **sent})
        assert answer.status_code in (400, 422), sent
        assert 'role="alert"' in answer.content.decode()
    assert not SavedView.objects.exists()


def test_a_person_keeps_a_hundred(operator: Client) -> None:
    otto = User.objects.get(username="otto")
    now = otto.date_joined
    SavedView.objects.bulk_create(
        SavedView(owner=otto, name=f"view {number}", page="sets", created_at=now) for number in range(MOST_VIEWS)
    )
    refused = operator.post("/views/save/", {"name": "one more", "page": "sets", "query": ""})
    assert (refused.status_code, SavedView.objects.count()) == (422, MOST_VIEWS)


# Search box: it finds machines, sets, services, events, caches, users and pages by the words of their names.


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
