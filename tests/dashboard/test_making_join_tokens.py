"""Admins make join tokens on a page, see each once with the agent's settings, and move machines on theirs."""

import re

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from fleet.models import JoinToken, Machine
from tests import factories
from tests.api.conftest import caller, problem
from tests.dashboard.conftest import acts, text_of
from tests.factories import Fleet, the_set

MAKE = "/join-tokens/make/"
SENT = {"comment": "rack 7", "expires_in_seconds": "86400", "max_uses": "3", "set_id": ""}
SENT |= {"set_name": "scale_set:workers"}


def test_it_is_shown_once_with_what_the_agent_needs(fleet: Fleet, admin: Client) -> None:
    answer = admin.post(MAKE, SENT)
    shown = re.search(r"DRYDOCK_FLEET_URL=(\S+)\nDRYDOCK_JOIN_TOKEN=(join_[\w-]+)</pre>", answer.content.decode())
    assert shown is not None and shown[1].startswith("http")
    assert "workers" in text_of(answer)
    assert shown[2] not in text_of(admin.get("/join-tokens/"))
    token = JoinToken.objects.latest("pk")
    assert (token.comment, token.max_uses, token.set_name) == ("rack 7", 3, "scale_set:workers")
    assert (token.expires_at - token.created_at).total_seconds() == 86400
    assert token.created_by is not None and token.created_by.get_username() == "ada"
    fleet.join_token = shown[2]
    assert fleet.enrol("w1", availability_set="").machine.availability_set.name == "workers"


def test_a_set_that_is_here_can_be_chosen(fleet: Fleet, admin: Client) -> None:
    fleet.enrol("vm1")
    assert f'<option value="{the_set().pk}"' in admin.get("/join-tokens/").content.decode()
    sent = {**SENT, "set_id": str(the_set().pk), "set_name": ""}
    assert admin.post(MAKE, sent).status_code == 200
    confined = JoinToken.objects.latest("pk").confined_to
    assert confined is not None and confined["resource_group"] == "shop"


def test_what_was_typed_stays_when_it_is_refused(fleet: Fleet, admin: Client) -> None:
    before = JoinToken.objects.count()
    wrong = {"comment": "", "expires_in_seconds": "9999", "max_uses": "0", "set_name": "rack:7", "set_id": "1"}
    for name, value in wrong.items():
        sent = {**SENT, "expires_in_seconds": "14400", name: value}
        answer = admin.post(MAKE, sent)
        assert answer.status_code == 422, name
        page = answer.content.decode()
        assert f'value="{sent["set_name"]}"' in page and f'value="{sent["max_uses"]}"' in page
        if sent["expires_in_seconds"] == "14400":
            assert '<option value="14400" selected>' in page
    assert JoinToken.objects.count() == before


def test_machine_is_moved_and_released_on_its_page(fleet: Fleet, admin: Client, operator: Client) -> None:
    machine = fleet.enrol("vm1").machine
    fleet.enrol("db1", availability_set="db")
    here, db = f"/machines/{machine.pk}/", the_set("db").pk
    assert "move" in acts(admin.get(here)) and "move" not in acts(operator.get(here))
    assert admin.post(f"{here}move/", {"set": ""}).status_code == 422
    assert admin.post(f"{here}move/", {"set": "999999"}).status_code == 404
    answer = admin.post(f"{here}move/", {"set": db, "comment": "rebuilt"}, follow=True)
    assert "rebuilt" in text_of(answer) and f'formaction="{here}lift/"' in answer.content.decode()
    assert Machine.objects.get(pk=machine.pk).availability_set_id == db
    assert admin.post(f"{here}lift/", {"set": db, "comment": ""}, follow=True).status_code == 200
    assert Machine.objects.get(pk=machine.pk).availability_set == the_set("web")


def test_the_api_and_the_command_line_do_the_same(fleet: Fleet) -> None:
    machine = fleet.enrol("vm1").machine
    fleet.enrol("db1", availability_set="db")
    ada, db = caller(factories.admin()), the_set("db").pk
    move = f"machines/{machine.pk}/move/"
    problem(ada.post(move, {}), 422, "validation")
    problem(ada.post(move, {"set": 999999}), 404, "not-found")
    problem(ada.post("machines/999999/move/", {"set": db}), 404, "unknown-machine")
    answer = ada.post(move, {"set": db, "comment": "rebuilt"}).json()
    assert (answer["set"]["name"], answer["set_source"]) == ("db", "confinement")
    assert ada.post(move, {"set": None}).json()["set_source"] == "configuration"
    made = ada.post("join-tokens/", {"comment": "", "set_id": db}).json()
    assert made["set"] == "availability_set:db"
    assert ada.get("join-tokens/").json()["results"][0]["confines"] is True
    problem(ada.post("join-tokens/", {"comment": "", "set_id": 999999}), 404, "not-found")
    call_command("move_machine", machine.vm_id, set_id=db, why="rebuilt")
    assert Machine.objects.get(pk=machine.pk).availability_set_id == db
    call_command("move_machine", machine.vm_id, lift=True)
    assert Machine.objects.get(pk=machine.pk).confined_to is None
    call_command("create_join_token", set_id=db)
    assert JoinToken.objects.latest("pk").confined_to is not None
    with pytest.raises(CommandError, match="no machine"):
        call_command("move_machine", "nobody", lift=True)
