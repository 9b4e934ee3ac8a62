"""Who may see the pages, and who may decide on them."""

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from fleet.models import Approval
from tests import factories
from tests.dashboard.conftest import logged_in, text_of
from tests.rows import PersonFactory

PAGES = ["/", "/sets/", "/machines/", "/history/", "/timeline/", "/blind-spots/", "/pulse/"]


@pytest.mark.django_db
@pytest.mark.parametrize("address", PAGES)
def test_a_stranger_is_sent_to_log_in_and_then_back(client: Client, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/accounts/login/?next=")


@pytest.mark.django_db
def test_a_part_asked_for_after_the_login_ended_asks_for_the_password_in_place(client: Client) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": "http://testserver/sets/7/?x=1"}
    answer = client.get("/sets/7/?part=set_body", headers=headers)
    assert answer.status_code == 401
    assert answer["HX-Retarget"] == "#again"
    assert 'type="password"' in answer.content.decode()


@pytest.mark.django_db
def test_somebody_without_a_group_may_not_read() -> None:
    answer = logged_in(PersonFactory(username="nora")).get("/")
    assert answer.status_code == 403
    assert "none of the groups" in text_of(answer)


def test_a_login_leads_to_the_queue_and_a_logout_ends_it(fleet: factories.Fleet, client: Client) -> None:
    factories.operator()
    answer = client.post("/accounts/login/", {"login": "otto", "password": "harbour-otto"}, follow=True)
    assert answer.redirect_chain == [("/", 302)]
    assert "Nothing needs a decision" in text_of(answer)
    assert client.post("/accounts/logout/").status_code == 302
    assert client.get("/").status_code == 302


@pytest.mark.django_db
def test_a_wrong_password_is_refused_in_one_sentence(client: Client) -> None:
    factories.operator()
    answer = client.post("/accounts/login/", {"login": "otto", "password": "guess"})
    assert "password is wrong" in text_of(answer)


def test_a_viewer_sees_the_event_but_no_button(fleet: factories.Fleet, viewer: Client, operator: Client) -> None:
    event = factories.announced(fleet)
    address = f"/events/{event.event_id}/"
    assert "Start Freeze of vm1, vm2 now" in text_of(operator.get(address))
    seen = text_of(viewer.get(address))
    assert "Start Freeze of vm1, vm2 now" not in seen
    assert "Approving needs the right of an operator" in seen


@pytest.mark.parametrize("htmx", [True, False])
def test_a_viewer_who_posts_anyway_gets_403_and_changes_nothing(
    fleet: factories.Fleet, viewer: Client, htmx: bool
) -> None:
    event = factories.announced(fleet)
    headers = {"HX-Request": "true"} if htmx else {}
    answer = viewer.post(f"/events/{event.event_id}/approve/", {"comment": "let me"}, headers=headers)
    assert answer.status_code == 403
    assert "needs the right of an operator" in text_of(answer)
    assert not Approval.objects.exists()


def test_an_approval_needs_the_token_of_the_form(fleet: factories.Fleet) -> None:
    event = factories.announced(fleet)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(factories.operator())
    assert strict.post(f"/events/{event.event_id}/approve/").status_code == 403
    assert not Approval.objects.exists()


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
    assert client.get("/admin/fleet/scheduledevent/add/").status_code == 403
    assert client.post(f"/admin/fleet/scheduledevent/{event.pk}/change/", {"status": "ENDED"}).status_code == 403
    assert client.post(f"/admin/fleet/scheduledevent/{event.pk}/delete/", {"post": "yes"}).status_code == 403
    machine = fleet.agents["vm1"].machine
    assert "credential_hash" not in client.get(f"/admin/fleet/machine/{machine.pk}/change/").content.decode()
