"""Admins name and merge sets on the set's page; everybody sees what is wrong with a set and where Drydock is blind."""

import pytest
from django.test import Client

from fleet.domain.machines.inventory import read_inventory
from fleet.models import AvailabilitySet
from fleet.operations.machines.inventory import import_inventory
from tests import factories
from tests.dashboard.conftest import text_of
from tests.machines.test_importing_inventories import IDS
from tests.machines.test_reading_inventories import sample


def provisional(fleet: factories.Fleet) -> int:
    return fleet.enrol("stray", availability_set="").machine.availability_set_id


def test_only_admins_see_the_forms(fleet: factories.Fleet, operator: Client, admin: Client) -> None:
    address = f"/sets/{provisional(fleet)}/"
    assert "Name this set" not in text_of(operator.get(address))
    seen = text_of(admin.get(address))
    assert "Name this set" in seen
    assert "Merge this set into another" in seen
    fleet.enrol("vm1")
    named = text_of(admin.get(f"/sets/{factories.the_set().pk}/"))
    assert "Name this set" not in named
    assert "There is no other set to merge it into." in named


def test_a_name_is_given_and_the_page_says_so(fleet: factories.Fleet, admin: Client) -> None:
    set_id = provisional(fleet)
    body = {"name": "workers", "kind": "scale_set", "service": "shop"}
    answer = admin.post(f"/sets/{set_id}/name/", body, follow=True)
    assert answer.redirect_chain == [(f"/sets/{set_id}/", 302)]
    seen = text_of(answer)
    assert "This set is now called “workers”." in seen
    assert "service shop" in seen
    assert "Nobody has stated this set's name yet" not in seen


def test_a_name_that_is_taken_leads_to_the_other_set(fleet: factories.Fleet, admin: Client) -> None:
    fleet.enrol("vm1")
    set_id = provisional(fleet)
    answer = admin.post(f"/sets/{set_id}/name/", {"name": "web", "kind": "availability_set"})
    assert answer.status_code == 409
    assert "There is already a set of this kind and name: “web”." in text_of(answer)
    assert f'<a href="/sets/{factories.the_set().pk}/">Show that set</a>' in answer.content.decode()
    assert 'value="web"' in answer.content.decode()


@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": "x", "kind": "rack"}])
def test_a_form_that_makes_no_sense_is_refused_on_the_page(
    fleet: factories.Fleet, admin: Client, body: dict[str, str]
) -> None:
    set_id = provisional(fleet)
    answer = admin.post(f"/sets/{set_id}/name/", body)
    assert answer.status_code == 422
    assert "A set needs a name" in text_of(answer)
    assert AvailabilitySet.objects.get(pk=set_id).kind == "provisional"
    assert admin.post(f"/sets/{set_id}/merge/", {}).status_code == 422


def test_two_sets_are_merged_and_the_old_address_shows_what_remains(fleet: factories.Fleet, admin: Client) -> None:
    fleet.enrol("vm1")
    set_id = provisional(fleet)
    web = factories.the_set().pk
    assert f'<option value="{web}">web (availability set)</option>' in admin.get(f"/sets/{set_id}/").content.decode()
    answer = admin.post(f"/sets/{set_id}/merge/", {"into": web}, follow=True)
    assert answer.redirect_chain == [(f"/sets/{web}/", 302)]
    seen = text_of(answer)
    assert "Merged: “web” remains." in seen
    # What happened to the machine before is part of the history of the set that it is in now.
    assert "stray enrolled." in seen
    assert "ada merged" in text_of(admin.get(f"/sets/{set_id}/"))
    assert "stray enrolled." in text_of(admin.get(f"/timeline/?set={web}"))


def test_others_may_not_arrange_and_strangers_log_in(fleet: factories.Fleet, operator: Client, client: Client) -> None:
    set_id = provisional(fleet)
    for path, body in (("name", {"name": "x", "kind": "scale_set"}), ("merge", {"into": 1})):
        answer = operator.post(f"/sets/{set_id}/{path}/", body)
        assert answer.status_code == 403
        assert "right of an admin" in text_of(answer)
        assert client.post(f"/sets/{set_id}/{path}/", body).status_code == 302
    assert AvailabilitySet.objects.get(pk=set_id).kind == "provisional"


def test_a_set_that_is_not_there_is_said_so(fleet: factories.Fleet, admin: Client) -> None:
    answer = admin.post("/sets/999999/name/", {"name": "x", "kind": "scale_set"})
    assert answer.status_code == 404
    assert "No availability set has this number" in text_of(answer)


def test_machines_without_an_agent_and_disagreements_stand_on_the_pages(
    fleet: factories.Fleet, operator: Client
) -> None:
    machine = fleet.enrol("web1", availability_set="shop", vm_id=IDS["web1"]).machine
    import_inventory(inventory=read_inventory(sample("vm_list")), now=fleet.now)
    seen = text_of(operator.get(f"/sets/{factories.the_set('WEB').pk}/"))
    assert "According to the imported inventory, 2 machines have no agent: web2, web3." in seen
    assert "Without an agent" in seen
    assert "2 without agent" in text_of(operator.get("/sets/"))
    for address in (f"/machines/{machine.pk}/", f"/sets/{machine.availability_set_id}/"):
        assert "the imported inventory says availability set WEB" in text_of(operator.get(address)), address
    assert "by its configuration" in text_of(operator.get(f"/machines/{machine.pk}/"))


def test_the_blind_spots_have_a_page(fleet: factories.Fleet, viewer: Client) -> None:
    empty = viewer.get("/blind-spots/")
    assert "Nobody watches yet" in text_of(empty)
    assert '<a href="/blind-spots/" aria-current="page">' in empty.content.decode()
    fleet.enrol("quiet", availability_set="", heard=False)
    answer = viewer.get("/blind-spots/")
    seen = text_of(answer)
    assert "Agents never heard" in seen
    assert "Enrolled but never heard: quiet." in seen
    assert "Sets without a name" in seen
    assert "possible" in seen
