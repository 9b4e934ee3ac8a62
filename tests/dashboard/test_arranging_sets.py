"""Set pages: admins name and merge sets there, and every user sees a set's faults and Drydock's blind spots.

tests/sets/test_naming_and_merging.py tests what naming and merging do.
"""

import re

from django.test import Client

from fleet.domain.machines.inventory import read_inventory
from fleet.models import AvailabilitySet, Machine
from fleet.operations.machines.inventory import import_inventory
from tests import factories
from tests.dashboard.conftest import acts, codes, marks, text_of
from tests.factories import Fleet, listing, seconds
from tests.machines.test_inventories import IDS, sample


def provisional(fleet: Fleet) -> int:
    return fleet.enrol("stray", availability_set="").machine.availability_set_id


def test_a_set_without_a_name_is_named(fleet: Fleet, operator: Client, admin: Client) -> None:
    set_id = provisional(fleet)
    address = f"/sets/{set_id}/"
    assert "set-unnamed" in codes(operator.get(address)) and "name" not in acts(operator.get(address))
    assert "name" in acts(admin.get(address))
    assert "merge" not in acts(admin.get(address))
    fleet.enrol("vm1")
    sent = {"name": "workers", "kind": "scale_set", "service": "shop"}
    for body in ({}, {"name": ""}, {"name": "x", "kind": "rack"}):
        assert admin.post(f"{address}name/", body).status_code == 422, body
    taken = admin.post(f"{address}name/", {"name": "web", "kind": "availability_set"})
    assert (taken.status_code, marks(taken, "data-refusal")) == (409, ["set-exists"])
    # It leads to the other set, and what was typed stays.
    assert f'<a href="/sets/{factories.the_set().pk}/">' in taken.content.decode()
    assert 'value="web"' in taken.content.decode()
    assert AvailabilitySet.objects.get(pk=set_id).kind == "provisional"
    answer = admin.post(f"{address}name/", sent, follow=True)
    assert answer.redirect_chain == [(address, 302)]
    assert "workers" in text_of(answer) and "set-unnamed" not in codes(answer)
    assert "name" not in acts(answer)
    assert admin.post("/sets/999999/name/", sent).status_code == 404


def test_two_sets_are_merged_and_the_old_address_shows_what_remains(fleet: Fleet, admin: Client) -> None:
    fleet.enrol("vm1")
    set_id = provisional(fleet)
    web = factories.the_set().pk
    assert f'<option value="{web}">' in admin.get(f"/sets/{set_id}/").content.decode()
    assert admin.post(f"/sets/{set_id}/merge/", {}).status_code == 422
    answer = admin.post(f"/sets/{set_id}/merge/", {"into": web}, follow=True)
    assert answer.redirect_chain == [(f"/sets/{web}/", 302)]
    # What happened to the machine before is part of the history of the set that it is in now.
    for address in (f"/sets/{web}/", f"/sets/{set_id}/", f"/timeline/?set={web}"):
        assert "stray" in text_of(admin.get(address)), address


def test_pages_list_machines_without_an_agent_and_disagreements(fleet: Fleet, operator: Client) -> None:
    machine = fleet.enrol("web1", availability_set="shop", vm_id=IDS["web1"]).machine
    import_inventory(inventory=read_inventory(sample("vm_list")), now=fleet.now)
    seen = operator.get(f"/sets/{factories.the_set('WEB').pk}/")
    assert "set-without-agents" in codes(seen)
    assert "web2" in text_of(seen) and "web3" in text_of(seen)
    assert "sets-disagree" in codes(operator.get(f"/machines/{machine.pk}/"))
    assert "machine-warning" in codes(operator.get(f"/sets/{machine.availability_set_id}/"))


def test_the_page_goes_from_the_decision_over_machines_and_time_to_settings(fleet: Fleet, admin: Client) -> None:
    for number in range(20):
        fleet.enrol(f"vm{number:02}", fault_domain=0, update_domain=0)
        fleet.say(f"vm{number:02}")
    fleet.later(0.1)
    fleet.say("vm03", listing(resources=("vm03", "vm04"), not_before=fleet.now + seconds(600)))
    home = factories.the_set()
    Machine.objects.filter(resource_name="vm19").update(revoked_at=fleet.now)
    page = admin.get(f"/sets/{home.pk}/")
    titles = ["open-title", "grid-title", "lanes-title", "history-title", "rehearse-title", "arrange-title"]
    assert [title for title in marks(page, "id") if title in titles] == titles
    # Each machine is a tile of the one domain; in the timeline are only those with events.
    body = page.content.decode()
    grid, after = body.partition('id="grid-title"')[2].split('id="lanes-title"')
    assert [len(re.findall(r"/machines/\d+/", part)) for part in (grid, after.partition("</svg>")[0])] == [19, 2]
    assert grid.count('class="tiles"') == 1 and ">1 gone\n      machine</a>" in grid
    assert ">other machines<" in re.sub(r"\s*\n\s*", "", after)
    assert grid.count("is-hit") == 2


def test_tiles_show_each_event_that_names_the_machine(fleet: Fleet, operator: Client) -> None:
    fleet.enrol("vm1")
    ids = [f"0A1B2C3D-0000-4000-8000-{number:012d}" for number in range(3)]
    fleet.say("vm1", *(listing(one, resources=("vm1",), not_before=fleet.now + seconds(600)) for one in ids))
    body = operator.get(f"/sets/{factories.the_set().pk}/").content.decode()
    assert body.count('class="tile-hit"') == 3 and ">1 more events<" in body
