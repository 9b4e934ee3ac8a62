"""An inventory is uploaded or pasted, tried with a result for each machine, and imported; what is wrong is named."""

from __future__ import annotations

import json
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from fleet.domain.machines.inventory import read_inventory
from fleet.models import Entry, InventoryMachine
from tests.dashboard.conftest import text_of
from tests.factories import Fleet
from tests.machines.test_reading_inventories import sample

TAKE = "/inventory/take/"
VMS = json.dumps(sample("vm_list"))
IDS = {machine.name: machine.vm_id for machine in read_inventory(sample("vm_list")).machines}


def file_of(name: str, text: str) -> SimpleUploadedFile:
    return SimpleUploadedFile(name, text.encode())


def rows_of(answer: Any) -> dict[str, str]:
    """What the trial says of each machine, by name."""
    trial = answer.content.decode().split('id="tried"')[1].split("</tbody>")[0].split("<tbody>")[1]
    found = {}
    for row in trial.split("<tr>")[1:]:
        name = row.split("</th>")[0]
        plain = text_of(type("Part", (), {"content": row.encode()})())
        found[text_of(type("Part", (), {"content": name.encode()})()).split()[0]] = plain
    return found


def test_trying_says_what_would_change_about_each_machine_and_changes_nothing(fleet: Fleet, admin: Client) -> None:
    fleet.enrol("web1", availability_set="", vm_id=IDS["web1"])
    before = Entry.objects.count()
    answer = admin.post(TAKE, {"pasted": VMS, "what": "try"})
    assert answer.status_code == 200
    assert "5 machines, 5 of them new, 4 without an agent" in text_of(answer)
    said = rows_of(answer)
    assert "new" in said["web1"] and "availability set WEB" in said["web1"] and "has one" in said["web1"]
    assert "none" in said["web2"]
    assert InventoryMachine.objects.count() == 0 and Entry.objects.count() == before


def test_what_was_tried_is_carried_to_the_import_and_then_listed(fleet: Fleet, admin: Client) -> None:
    tried = admin.post(TAKE, {"files": [file_of("vms.json", VMS)], "what": "try"})
    carried = tried.context["kept"]
    answer = admin.post(TAKE, {"pasted": carried, "what": "import"}, follow=True)
    assert "Imported: 5 machines, 5 of them new, 5 without an agent." in text_of(answer)
    assert InventoryMachine.objects.count() == 5
    again = rows_of(admin.post(TAKE, {"pasted": carried, "what": "try"}))
    assert all("as before" in row for row in again.values())
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
    assert "dropped" in rows_of(answer)["web2"]
    assert "1 would be dropped" in text_of(answer)
    assert InventoryMachine.objects.filter(name="web2").exists()


def test_each_file_that_cannot_be_read_is_named_with_what_is_wrong_and_nothing_is_taken(
    fleet: Fleet, admin: Client
) -> None:
    files = [file_of("vms.json", VMS), file_of("<b>.json", "{"), file_of("disks.json", '[{"id": "x"}]')]
    answer = admin.post(TAKE, {"files": files, "what": "import"})
    assert answer.status_code == 422
    assert "&lt;b&gt;.json</strong>: This is not JSON" in answer.content.decode()
    assert "disks.json : Item 1 is none of the things" in text_of(answer)
    assert "vms.json" not in text_of(answer).split("Nothing was taken")[1].split("Import")[0]
    assert InventoryMachine.objects.count() == 0
    pasted = admin.post(TAKE, {"pasted": "no json", "what": "try"})
    assert "What was pasted : This is not JSON" in text_of(pasted)
    assert ">no json</textarea>" in pasted.content.decode()
    assert "choose files, or paste" in text_of(admin.post(TAKE, {"what": "try"}))


def test_what_a_form_cannot_carry_is_chosen_again(fleet: Fleet, admin: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr("fleet.dashboard.inventory.MOST_PASTED", 100)
    answer = admin.post(TAKE, {"files": [file_of("vms.json", VMS)], "what": "try"})
    assert answer.context["kept"] == ""
    assert "choose the files again to import it" in text_of(answer)
    monkeypatch.setattr("fleet.dashboard.inventory.MOST_BYTES", 100)
    assert "may hold" in text_of(admin.post(TAKE, {"files": [file_of("vms.json", VMS)], "what": "try"}))


def test_it_is_for_admins(fleet: Fleet, operator: Client, client: Client) -> None:
    assert operator.get("/inventory/").status_code == 403
    assert operator.post(TAKE, {"pasted": VMS, "what": "import"}).status_code == 403
    assert operator.post(TAKE, {"pasted": VMS, "what": "try"}).status_code == 403
    assert client.get("/inventory/").status_code == 302
    assert InventoryMachine.objects.count() == 0
