"""A list with its filters is kept under a name, for oneself or for everybody, and is one click away, mine first."""

import re

from django.contrib.auth.models import User
from django.test import Client

from fleet.models import Entry, SavedView
from fleet.operations.profile import MOST_VIEWS
from tests import factories
from tests.dashboard.conftest import logged_in, text_of

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
