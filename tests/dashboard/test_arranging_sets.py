"""Set pages: admins name and merge sets there, and every user sees a set's faults and Drydock's blind spots.

tests/sets/test_naming_and_merging.py tests what naming and merging do.
"""

import json
import re
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from fleet.domain.machines.inventory import read_inventory
from fleet.models import AvailabilitySet, Entry, InventoryMachine, Machine
from fleet.operations.machines.inventory import import_inventory
from tests import factories
from tests.dashboard.conftest import acts, codes, marks, plain, text_of
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


# Inventories: one is uploaded or pasted, tried with a result for each machine, and imported; what is wrong is named.


TAKE = "/inventory/take/"
VMS = json.dumps(sample("vm_list"))


def file_of(name: str, text: str) -> SimpleUploadedFile:
    return SimpleUploadedFile(name, text.encode())


def rows_of(answer: Any) -> dict[str, str]:
    """What the trial says of each machine, by name."""
    trial = answer.content.decode().split('id="tried"')[1].split("</tbody>")[0].split("<tbody>")[1]
    return {plain(row.split("</th>")[0]).split()[0]: plain(row) for row in trial.split("<tr>")[1:]}


def test_trying_says_what_would_change_about_each_machine_and_changes_nothing(fleet: Fleet, admin: Client) -> None:
    fleet.enrol("web1", availability_set="", vm_id=IDS["web1"])
    before = Entry.objects.count()
    answer = admin.post(TAKE, {"pasted": VMS, "what": "try"})
    assert answer.status_code == 200
    said = rows_of(answer)
    assert set(said) == set(IDS) and "WEB" in said["web1"]
    assert InventoryMachine.objects.count() == 0 and Entry.objects.count() == before


def test_what_was_tried_is_carried_to_the_import_and_then_listed(fleet: Fleet, admin: Client) -> None:
    tried = admin.post(TAKE, {"files": [file_of("vms.json", VMS)], "what": "try"})
    carried = tried.context["kept"]
    answer = admin.post(TAKE, {"pasted": carried, "what": "import"}, follow=True)
    assert answer.status_code == 200
    assert InventoryMachine.objects.count() == 5
    page = text_of(admin.get("/inventory/"))
    assert "web2" in page and "WEB" in page
    fleet.enrol("web1", availability_set="", vm_id=IDS["web1"])
    without = admin.get("/inventory/?agent=none&q=web").content.decode()
    assert "web2" in without and ">web1<" not in without


def test_a_complete_list_names_whom_it_would_drop(fleet: Fleet, admin: Client) -> None:
    admin.post(TAKE, {"pasted": VMS, "what": "import"})
    less = json.dumps([each for each in sample("vm_list") if each["name"] != "web2"])
    assert "web2" not in rows_of(admin.post(TAKE, {"pasted": less, "what": "try"}))
    answer = admin.post(TAKE, {"pasted": less, "what": "try", "complete": "on"})
    assert "web2" in rows_of(answer)
    assert InventoryMachine.objects.filter(name="web2").exists()


def test_each_file_that_cannot_be_read_is_named_with_what_is_wrong_and_nothing_is_taken(
    fleet: Fleet, admin: Client
) -> None:
    files = [file_of("vms.json", VMS), file_of("<b>.json", "{"), file_of("disks.json", '[{"id": "x"}]')]
    answer = admin.post(TAKE, {"files": files, "what": "import"})
    assert answer.status_code == 422
    alert = answer.content.decode().split('role="alert"')[1].split("</div></div>")[0]
    assert "&lt;b&gt;.json" in alert and "disks.json" in alert and "vms.json" not in alert
    assert InventoryMachine.objects.count() == 0
    pasted = admin.post(TAKE, {"pasted": "no json", "what": "try"})
    assert (pasted.status_code, ">no json</textarea>" in pasted.content.decode()) == (422, True)
    assert admin.post(TAKE, {"what": "try"}).status_code == 422


def test_what_a_form_cannot_carry_is_chosen_again(fleet: Fleet, admin: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr("fleet.dashboard.machines.MOST_PASTED", 100)
    answer = admin.post(TAKE, {"files": [file_of("vms.json", VMS)], "what": "try"})
    assert answer.context["kept"] == ""
    monkeypatch.setattr("fleet.dashboard.machines.MOST_BYTES", 100)
    assert admin.post(TAKE, {"files": [file_of("vms.json", VMS)], "what": "try"}).status_code == 422
