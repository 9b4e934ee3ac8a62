"""Who may see the pages, and who may decide on them."""

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from tests import factories
from tests.dashboard.conftest import logged_in
from tests.rows import PersonFactory


@pytest.mark.django_db
def test_a_stranger_is_sent_to_sign_in_and_then_back(client: Client) -> None:
    answer = client.get("/sets/?q=web")
    assert (answer.status_code, answer["Location"]) == (302, "/accounts/login/?next=%2Fsets%2F%3Fq%3Dweb")


def test_the_admin_deletes_no_role_and_shows_no_secret(fleet: factories.Fleet) -> None:
    """docs/dev/access/admin.csv has what it may do with each model, which tests/access holds against Django's admin."""
    client = logged_in(PersonFactory(username="root", is_superuser=True, is_staff=True))
    group = Group.objects.get_or_create(name="admin")[0]
    client.post("/admin/auth/group/", {"action": "delete_selected", "_selected_action": group.pk, "post": "yes"})
    assert Group.objects.filter(name="admin").exists()
    machine = fleet.enrol("vm1").machine
    assert "credential_hash" not in client.get(f"/admin/fleet/machine/{machine.pk}/change/").content.decode()
