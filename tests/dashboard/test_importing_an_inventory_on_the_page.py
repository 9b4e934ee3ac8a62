"""An inventory is uploaded or pasted, tried with a result for each machine, and imported; what is wrong is named."""

import json
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from fleet.domain.machines.inventory import read_inventory
from fleet.models import Entry, InventoryMachine
from tests.dashboard.conftest import plain, text_of
from tests.factories import Fleet
from tests.machines.test_inventories import sample

TAKE = "/inventory/take/"
VMS = json.dumps(sample("vm_list"))
IDS = {machine.name: machine.vm_id for machine in read_inventory(sample("vm_list")).machines}


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
