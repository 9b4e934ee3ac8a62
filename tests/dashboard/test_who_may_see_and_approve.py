"""Who may see the pages, and who may decide on them."""

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from tests import factories
from tests.dashboard.conftest import logged_in
from tests.policy.conftest import made
from tests.rows import PersonFactory


@pytest.mark.django_db
def test_a_stranger_is_sent_to_sign_in_and_then_back(client: Client) -> None:
    answer = client.get("/sets/?q=web")
    assert (answer.status_code, answer["Location"]) == (302, "/accounts/login/?next=%2Fsets%2F%3Fq%3Dweb")


def test_a_login_leads_to_the_queue_and_a_logout_ends_it(fleet: factories.Fleet, client: Client) -> None:
    factories.operator()
    answer = client.post("/accounts/login/", {"login": "otto", "password": "harbour-otto"}, follow=True)
    assert answer.redirect_chain == [("/", 302)]
    assert client.post("/accounts/logout/").status_code == 302
    assert client.get("/").status_code == 302


@pytest.mark.django_db
def test_the_admin_changes_no_role() -> None:
    """By its name everybody who is in it may what they may, and no line would tell who took that from them."""
    client = logged_in(PersonFactory(username="root", is_superuser=True, is_staff=True))
    group = Group.objects.get_or_create(name="admin")[0]
    assert client.get("/admin/auth/group/add/").status_code == 403
    assert client.post(f"/admin/auth/group/{group.pk}/change/", {"name": "nobody"}).status_code == 403
    assert client.post(f"/admin/auth/group/{group.pk}/delete/", {"post": "yes"}).status_code == 403
    chosen = {"action": "delete_selected", "_selected_action": group.pk, "post": "yes"}
    client.post("/admin/auth/group/", chosen)
    assert Group.objects.filter(name="admin").exists()


def test_the_admin_changes_people_and_only_shows_the_rest(fleet: factories.Fleet) -> None:
    event = factories.announced(fleet)
    root = PersonFactory(username="root", is_superuser=True, is_staff=True)
    client = logged_in(root)
    assert client.get("/admin/auth/user/").status_code == 200
    assert client.get("/admin/auth/group/").status_code == 200
    assert client.get("/admin/fleet/scheduledevent/").status_code == 200
    shown = client.get(f"/admin/fleet/scheduledevent/{event.pk}/change/")
    assert shown.status_code == 200
    # A rule has lists and lines in fields of our own.
    assert client.get(f"/admin/fleet/rule/{made().pk}/change/").status_code == 200
    assert client.get("/admin/fleet/scheduledevent/add/").status_code == 403
    assert client.post(f"/admin/fleet/scheduledevent/{event.pk}/change/", {"status": "ENDED"}).status_code == 403
    assert client.post(f"/admin/fleet/scheduledevent/{event.pk}/delete/", {"post": "yes"}).status_code == 403
    machine = fleet.agents["vm1"].machine
    assert "credential_hash" not in client.get(f"/admin/fleet/machine/{machine.pk}/change/").content.decode()
