"""Time zones on pages: a user in New York sees one zone only, and no row shows a bare UTC time."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from zoneinfo import ZoneInfo

from django.test import Client

from fleet.models import Profile, ScheduledEvent
from fleet.operations.policy import rules
from fleet.wording.times import API
from fleet.wording.times import at as whole_time
from tests import factories
from tests.access.walks import reads
from tests.access.world import CLAIMED, world
from tests.caches.walking import line
from tests.dashboard.conftest import logged_in
from tests.factories import Fleet, acting, announced, listing
from tests.policy.conftest import made

ZONE = "America/New_York"
# Everything told below lies between; New York is four or five hours behind UTC.
BEFORE, AFTER = timedelta(hours=1), timedelta(hours=3, minutes=30)
CLOCK = re.compile(r"(?<![\d:])(\d\d):(\d\d):(\d\d)(?![\d:])")
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
# Countdowns and ages are lengths; what Azure or an agent wrote is shown as it came; choices name zones.
LENGTHS, AS_IT_CAME = {"data-countdown", "data-since"}, {"pre", "script", "style", "option", "textarea"}
ROWS = {"tr", "li", "dd", "p"}


class Shown(HTMLParser):
    """What a person reads of a page, the titles under the pointer too: the whole, and row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, bool]] = []
        self.rows: list[str] = []
        self.whole = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag in ROWS:
            self.rows.append("")
        self.read(f" {said.get('title') or ''} ")
        if tag not in ("br", "img", "input", "link", "meta", "path", "use", "wbr"):
            raw = tag in AS_IT_CAME or "raw" in (said.get("class") or "").split()
            self.open.append((tag, raw or bool(LENGTHS & said.keys())))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not any(hidden for _, hidden in self.open):
            self.read(data)

    def read(self, data: str) -> None:
        self.whole += data
        if self.rows:
            self.rows[-1] += data


def of_another_clock(shown: Shown, now: datetime) -> list[str]:
    """What is no time of New York: other zones, times as programs write them, hours at which nothing happened there."""
    local = now.astimezone(ZoneInfo(ZONE))
    wrong = [row for row in shown.rows if "UTC" in row and CLOCK.search(row)]
    wrong += ISO.findall(shown.whole) + re.findall(r"\d\d:\d\d(?::\d\d)? UTC", shown.whole)
    for found in CLOCK.finditer(shown.whole):
        hour, minute, second = map(int, found.groups())
        away = timedelta(hours=hour - local.hour, minutes=minute - local.minute, seconds=second - local.second)
        # Of any day: what lies a day away has the same hour.
        away = (away + timedelta(hours=12)) % timedelta(days=1) - timedelta(hours=12)
        if not -BEFORE < away < AFTER:
            wrong.append(shown.whole[max(0, found.start() - 60) : found.end() + 30])
    return wrong


def test_no_page_shows_a_second_clock(db: None) -> None:
    whole = world()
    fleet = whole.fleet
    at, amy = fleet.now, acting(factories.admin("amy"), why="as every year")
    made(at=at, name="freezes", event_types=["Freeze"], expires_at=at + timedelta(hours=1))
    times = {"starts_at": at, "ends_at": at + timedelta(hours=1), "set_pattern": "dock"}
    sale = rules.WindowRequestSerializer(data={"name": "All day", "reason": "the shop is full", **times})
    rules.create_window(sale, actor=amy, now=at)
    fleet.later(1)
    fleet.say("web-claimed", listing(CLAIMED, resources=("web-claimed",), event_type="Reboot", status="Started"))
    fleet.say("web-held")
    for kind in ("Start", "Ended"):
        fleet.hear("vm1", line(f"NodeMaintenance{kind}"))
    fleet.cover("vm1", "lost")
    ada = factories.admin()
    Profile.objects.create(user=ada, time_zone=ZONE)
    client, now = logged_in(ada), datetime.now(UTC)
    events = ScheduledEvent.objects.values_list("event_id", flat=True)
    wrong, pages = {}, 0
    for address in [*reads("pages", whole.values), *(f"/events/{event_id}/" for event_id in events)]:
        answer = client.get(address)
        if not answer.streaming and answer["Content-Type"].startswith("text/html"):
            pages += 1
            if found := of_another_clock(Shown(answer.content.decode()), now):
                wrong[address] = found
    assert wrong == {}
    assert pages > 70


def test_a_second_clock_is_seen() -> None:
    now = datetime(2026, 11, 22, 15, 0, tzinfo=UTC)
    right = '<tr><td><time datetime="2026-11-22T15:00:00.000Z">10:00:00<span> EST</span></time></td></tr>'
    assert of_another_clock(Shown(f"{right}<pre>2026-11-22T15:00:00Z</pre><time data-since>3 h ago</time>"), now) == []
    bare = "<li>It was at 15:00:00.</li>"
    whole = f"<li>It was at {whole_time(now, API)}.</li>"
    tip = '<p title="2026-11-22T15:00:00Z">now</p>'
    assert all(of_another_clock(Shown(right + one), now) for one in (bare, whole, tip))


def test_pages_of_a_user_without_a_zone_are_in_utc(fleet: Fleet, viewer: Client) -> None:
    announced(fleet)
    assert "UTC" in Shown(viewer.get("/").content.decode()).whole
