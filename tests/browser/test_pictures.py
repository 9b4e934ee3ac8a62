"""Pictures of the documentation, taken from the running product; `make screenshots` renews the committed files."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleet.models import Maintenance, ScheduledEvent
from tests import factories
from tests.browser.conftest import PHONE, WIDE, OpenPage
from tests.browser.story import caches_told, tell
from tests.caches.walking import HOST, Listeners, the_cache
from tests.gateway_process import Gateway
from tests.messages.sent import a_channel, a_message, a_post, failed

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


@dataclass(frozen=True, slots=True)
class Picture:
    """`name` is the file's in `docs/screenshots`, and ends with the kind: `light`, `dark` or `phone`. `path` may name
    what the `story` (`whole`, `caches`, `empty`) holds; `presses` are buttons that are pressed first.
    """

    name: str
    path: str
    story: str = "whole"
    presses: tuple[str, ...] = ()
    whole: bool = False

    @property
    def kind(self) -> str:
        return self.name.rpartition("-")[2]


PICTURES: tuple[Picture, ...] = (
    Picture("queue-light", "/"),
    Picture("queue-phone", "/"),
    Picture("event-dark", "/events/{event}/"),
    Picture("event-phone", "/events/{event}/#decision"),
    Picture("fleet-light", "/fleet/"),
    Picture("messages-light", "/messages/"),
    Picture("set-light", "/sets/{set}/"),
    Picture("first-steps-light", "/first-steps/", story="empty", presses=("Create a join token",), whole=True),
    Picture("cache-light", "/caches/{cache}/?hours=6", story="caches", whole=True),
    Picture("maintenance-light", "/maintenances/{maintenance}/", story="caches", whole=True),
)

KINDS: dict[str, dict[str, Any]] = {
    "light": {"viewport": WIDE, "color_scheme": "light"},
    "dark": {"viewport": WIDE, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "device_scale_factor": 2},
}


def story_of(picture: Picture) -> dict[str, object]:
    """Build the story of the picture and return the values that its address needs."""
    now = datetime.now(UTC)
    if picture.story == "empty":
        factories.admin()
        return {}
    if picture.story == "caches":
        caches_told(now)
        return {"cache": the_cache().pk, "maintenance": Maintenance.objects.get(cache__host=HOST).pk}
    event, home = tell(Listeners(now=now))
    factories.admin()
    messages(now, event)
    return {"event": event, "set": home}


def messages(now: datetime, event_id: str) -> None:
    """Messages of all kinds: told, failed, waiting, dropped, and one that no route wanted; the post that failed."""
    event = ScheduledEvent.objects.get(event_id=event_id)
    slack = a_channel("#shop-ops", at=now, last_ok_at=now)
    health: dict[str, Any] = {"failing_since": now, "failures": 1, "last_error": "status"}
    mail = a_channel("On call", kind="mail", at=now, held_until=now + timedelta(hours=1), **health)
    a_post(slack, [a_message(event, slack, at=now)], at=now)
    a_post(mail, [a_message(event, mail, at=now)], at=now, state="QUEUED", tries=[failed("452 Insufficient storage")])
    a_message(event, slack, at=now, moment="event.claimed")
    a_message(event, slack, at=now, moment="event.changed", state="DROPPED", why="superseded")
    a_message(event, None, at=now, state="UNROUTED")


@pytest.mark.parametrize(
    "picture",
    [pytest.param(one, id=one.name, marks=[] if one.name == "queue-light" else [pytest.mark.long]) for one in PICTURES],
)
def test_picture_is_taken(gateway: Gateway, open_page: OpenPage, tmp_path: Path, picture: Picture) -> None:
    names = story_of(picture)
    who = "ada" if picture.story != "caches" else "otto"
    watched = open_page(picture.path.format(**names), who=who, **KINDS[picture.kind])
    for press in picture.presses:
        watched.page.get_by_role("button", name=press).first.click()
        watched.live()
    watched.page.wait_for_timeout(400)
    target = Path(os.environ.get("SCREENSHOTS") or tmp_path) / f"{picture.name}.png"
    # The caret stays: hiding it would write a style into the page's fields, which the policy forbids in htmx's copy.
    watched.page.screenshot(path=target, full_page=picture.whole, caret="initial")
    assert target.stat().st_size > 20_000
