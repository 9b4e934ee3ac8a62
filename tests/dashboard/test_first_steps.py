"""An empty installation opens on a checklist: join token, first agent, its set's name, a drill; for admins alone."""

import re

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from fleet.models import JoinToken, Machine
from fleet.notifications.models import Channel
from tests import factories
from tests.api.conftest import caller, problem
from tests.dashboard.conftest import acts, logged_in, text_of
from tests.factories import Fleet, the_set
from tests.messages.posts import channel_of

STEPS = "/first-steps/"


def marks(answer: object) -> list[str]:
    """How far each step is."""
    body = answer.content.decode()  # type: ignore[attr-defined]
    return re.findall(r'class="check-mark [^"]*" data-state="([^"]+)"', body)


def test_an_empty_installation_opens_on_it_for_who_may_act_on_it(admin: Client, operator: Client) -> None:
    front = admin.get("/")
    assert marks(front) == ["to do"] * 5
    assert marks(operator.get("/")) == []


def test_it_makes_a_token_shown_once_with_one_line_for_each_platform(admin: Client) -> None:
    answer = admin.post("/first-steps/token/")
    found = re.search(r"DRYDOCK_JOIN_TOKEN=(join_[\w-]+)</pre>", answer.content.decode())
    assert found is not None
    assert answer.content.decode().count(found[1]) == 6
    assert set(re.findall(r'data-copy="(install-[\w-]+)"', answer.content.decode())) == set(
        re.findall(r'<pre [^>]*id="(install-[\w-]+)"', answer.content.decode())
    )
    assert marks(answer)[:2] == ["done", "waiting"]
    assert found[1] not in admin.get(STEPS).content.decode()


def test_the_part_that_follows_the_fleet_shows_the_agent_names_its_set_and_offers_a_drill(
    fleet: Fleet, admin: Client
) -> None:
    admin.post("/first-steps/token/")
    fleet.enrol("<b>vm1</b>", availability_set="")
    part = admin.get(f"{STEPS}?part=first_steps", headers={"HX-Request": "true"})
    assert "<!doctype" not in part.content.decode() and "<b>vm1" not in part.content.decode()
    assert marks(part) == ["done", "done", "to do", "to do", "to do"]
    unnamed = re.search(r"/first-steps/sets/(\d+)/name/", part.content.decode())
    assert unnamed is not None
    refused = admin.post(unnamed[0], {"name": "", "kind": "availability_set"})
    assert refused.status_code == 422
    named = admin.post(unnamed[0], {"name": "web", "kind": "availability_set"}, follow=True)
    assert marks(named) == ["done", "done", "done", "to do", "to do"]
    drill = re.search(rf'action="(/sets/{the_set().pk}/drill/)".*?</form>', named.content.decode(), flags=re.DOTALL)
    assert drill is not None
    sent = dict(re.findall(r'type="hidden" name="(\w+)" value="(\w+)"', drill[0]))
    assert sent.keys() >= {"type", "notice_seconds", "duration_seconds"}
    assert admin.post(drill[1], sent, follow=True).status_code == 200
    assert marks(admin.get(STEPS)) == ["done", "done", "done", "to do", "done"]
    # Now something happens here: the front page is the queue's alone.
    assert marks(admin.get("/")) == []


def test_dismissed_first_steps_are_linked_under_admin(admin: Client) -> None:
    answer = admin.post("/first-steps/put-away/", follow=True)
    assert marks(answer) == []
    assert f'href="{STEPS}"' in admin.get("/people/").content.decode()
    assert marks(admin.get(STEPS)) == ["to do"] * 5
    other = factories.admin("adele")
    assert marks(logged_in(other).get("/")) == ["to do"] * 5


def test_channel_step_is_open_until_a_shared_channel_exists(admin: Client) -> None:
    body = admin.get(STEPS).content.decode()
    assert 'href="/messages/"' in body
    channel = channel_of("webhook", factories.NOW, url="http://127.0.0.1:9/")
    Channel.objects.update(owner=factories.admin("adele"))
    assert marks(admin.get(STEPS))[3] == "to do"
    Channel.objects.filter(pk=channel.pk).update(owner=None)
    assert marks(admin.get(STEPS))[3] == "done"


# Join tokens: admins make them on a page, see each once with the agent's settings, and move machines on theirs.


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
