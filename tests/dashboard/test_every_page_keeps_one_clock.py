"""Time zones on pages: a user in New York sees one zone only, and no row shows a bare UTC time."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from urllib.parse import parse_qs, urljoin, urlsplit
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from fleet.models import Profile
from fleet.operations.approvals import claims
from fleet.operations.approvals.approve import When
from fleet.operations.policy import rules
from fleet.wording.times import API
from fleet.wording.times import at as whole_time
from tests import accounts, factories
from tests.caches.walking import Listeners, line
from tests.dashboard.conftest import logged_in
from tests.drills.walking import Walk as DrillWalk
from tests.factories import Fleet, acting, announced, listing, seconds
from tests.policy.conftest import made
from tests.waves.test_waves_walk_through_the_fleet import FIRST, SECOND, THIRD
from tests.waves.test_waves_walk_through_the_fleet import Walk as WaveWalk

ZONE = "America/New_York"
# Everything told below lies between; New York is four or five hours behind UTC.
BEFORE, AFTER = timedelta(hours=1), timedelta(hours=2)
CLOCK = re.compile(r"(?<![\d:])(\d\d):(\d\d):(\d\d)(?![\d:])")
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
# Countdowns and ages are lengths; what Azure or an agent wrote is shown as it came; choices name zones.
LENGTHS, AS_IT_CAME = {"data-countdown", "data-since"}, {"pre", "script", "style", "option", "textarea"}
# No pages, or Django's own.
ELSEWHERE = ("//", "/static/", "/docs/", "/api/", "/admin/")
ROWS = {"tr", "li", "dd", "p"}


class Shown(HTMLParser):
    """What a person reads of a page, the titles under the pointer too: the whole, and row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, bool]] = []
        self.rows: list[str] = []
        self.links: set[str] = set()
        self.whole = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        self.links |= {str(said[name]) for name in ("href", "hx-get") if said.get(name)}
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


MAX_EQUAL_LISTS = 4
# What in an address leads to other times, by steps or by a choice.
OTHER_TIMES = {"hours", "from", "to", "since", "until", "show"}


def every_page(client: Client) -> Iterator[tuple[str, str, Shown]]:
    """The address, the name and what is shown of each page, and of each part of one, to which links lead."""
    seen, waiting = {"/"}, ["/"]
    occurrences: Counter[tuple[str, ...]] = Counter()
    while waiting:
        address = waiting.pop()
        asked = urlsplit(address)
        # The same page with other numbers in its address, or other choices, says nothing new in the end.
        kind = (re.sub(r"[0-9A-F-]{8,}|\d+", "", asked.path), *sorted(parse_qs(asked.query)))
        occurrences[kind] += 1
        if occurrences[kind] > MAX_EQUAL_LISTS:
            continue
        answer = client.get(address, headers={"HX-Request": "true"} if "part=" in address else {})
        if answer.status_code != 200 or not answer["Content-Type"].startswith("text/html"):
            continue
        shown = Shown(answer.content.decode())
        yield address, answer.resolver_match.view_name, shown
        found = {urljoin(address, link).partition("#")[0] for link in shown.links}
        # Of other times than those of the stories; there is no end to them.
        found = {link for link in found - seen if not OTHER_TIMES & parse_qs(urlsplit(link).query).keys()}
        new = {link for link in found if link.startswith("/") and not link.startswith(ELSEWHERE)}
        seen |= new
        waiting += sorted(new)


@pytest.fixture
def start(db: None, monkeypatch: pytest.MonkeyPatch) -> datetime:
    """When the stories begin."""
    begin = datetime.now(UTC) - timedelta(minutes=40)
    monkeypatch.setattr(Fleet.__init__, "__defaults__", (begin,))
    return begin


def fleet_of(kind: type[Fleet], prefix: str) -> Fleet:
    """Three machines in a set of their own."""
    fleet = kind()
    fleet.enrol_set(3, prefix=prefix, availability_set=prefix)
    return fleet


def approvals_of_each_kind(at: datetime) -> None:
    """One that went round, one that waits for its time, one held, one proposed; a rule, a window, tokens."""
    ada = acting(factories.admin(), why="as every year")
    made(at=at, name="freezes", event_types=["Freeze"], expires_at=at + timedelta(hours=1))
    rules.create_window(
        rules.WindowRequestSerializer(
            data={
                "name": "sale",
                "reason": "the shop is full",
                "starts_at": at,
                "ends_at": at + timedelta(hours=1),
                "set_pattern": "b",
            }
        ),
        actor=ada,
        now=at,
    )
    accounts.join_token(comment="spring", expires_in=timedelta(days=30), now=at, actor=ada)
    accounts.token(user=factories.admin(), name="cron", scopes=["read"], now=at, expires_at=at + timedelta(days=90))
    factories.freeze_completed(fleet_of(Fleet, "a"), event_id="0A1B2C3D-0000-4000-8000-00000000000A", resources=("a1",))
    fleet = fleet_of(Fleet, "b")
    ids = [f"0A1B2C3D-0000-4000-8000-00000000000{letter}" for letter in "BCDE"]
    resources = [("b1",), ("b2",), ("b3",), ("b1", "b2", "b3")]
    fleet.later(1)
    fleet.all_say(
        *(
            listing(one, resources=named, not_before=at + timedelta(minutes=80), event_type="Reboot")
            for one, named in zip(ids, resources, strict=True)
        )
    )
    reason = {"no-approval-window": "it cannot wait", "set-in-flight": "they share nothing"}
    fleet.approve(ids[0], when=When.TIME, due_at=at + timedelta(minutes=70), overrides=reason)
    claims.hold(event_id=ids[1], actor=acting(factories.operator(), why="the import runs"), now=fleet.now)
    claims.claim(event_id=ids[2], actor=acting(factories.operator(), why="draining"), now=fleet.now)
    fleet.approve(ids[3], overrides=reason | {"last-live-machines": "no user is there at night"})


def test_no_page_shows_a_second_clock(start: datetime) -> None:
    waves = WaveWalk()
    waves.begin(FIRST, SECOND, THIRD, service="shop")
    waves.goes(FIRST)
    approvals_of_each_kind(start)
    drill = DrillWalk(fleet_of(Fleet, "d"))
    drill.announced()
    drill.approved()
    drill.all_say("started")
    caches = Listeners()
    for name in ("c1", "c2"):
        caches.enrol(name, availability_set="c")
        caches.cover(name, "subscribed")
    begins = f"{caches.now + seconds(840):%Y-%m-%dT%H:%M:%S}"
    caches.hear("c1", f"{line('NodeMaintenanceScheduled')}|StartTimeInUTC|{begins}")
    caches.later(840)
    caches.hear("c1", line("NodeMaintenanceStart"))
    caches.later(30)
    caches.hear("c2", line("NodeMaintenanceEnded", replica="True"))
    caches.cover("c2", "lost")
    announced(fleet_of(Fleet, "e"), event_id="0A1B2C3D-0000-4000-8000-00000000000F", resources=("e1",))

    ada = factories.admin()
    Profile.objects.create(user=ada, time_zone=ZONE)
    client, now = logged_in(ada), datetime.now(UTC)
    wrong, kinds = {}, set()
    for address, kind, shown in every_page(client):
        kinds.add(kind)
        if found := of_another_clock(shown, now):
            wrong[address] = found
    assert wrong == {}
    assert {"queue", "set", "drill", "machine", "event", "event-documents", "wave", "cache", "maintenance"} <= kinds
    assert {"rules", "rule", "timeline", "audit", "you", "people", "person", "blind-spots"} <= kinds


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
