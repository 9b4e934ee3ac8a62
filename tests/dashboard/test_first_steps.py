"""An empty installation opens on a checklist: join token, first agent, its set's name, a drill; for admins alone."""

import re

from django.test import Client

from fleet.notifications.models import Channel
from tests import factories
from tests.dashboard.conftest import logged_in
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
