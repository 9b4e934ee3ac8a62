"""What every page keeps to: no inline style or script, one heading, named tables, aligned columns, names as text, and
one time zone: a user in New York sees no bare UTC time.
"""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any
from zoneinfo import ZoneInfo

from django.apps import apps
from django.db.models import Value
from django.db.models.functions import Concat
from django.test import Client
from drydock_agent import wire

from fleet.models import Profile, ScheduledEvent
from fleet.operations.policy import rules
from fleet.wording.times import API
from fleet.wording.times import at as whole_time
from tests import factories
from tests.access.walks import pages
from tests.access.world import busy_world
from tests.dashboard.conftest import logged_in
from tests.factories import EVENT, acting
from tests.policy.conftest import made

ZONE = "America/New_York"
# Everything happens between these; New York is four or five hours behind UTC.
BEFORE, AFTER = timedelta(hours=1), timedelta(hours=3, minutes=30)
CLOCK = re.compile(r"(?<![\d:])(\d\d):(\d\d):(\d\d)(?![\d:])")
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
# Countdowns and ages are lengths; what Azure or an agent wrote is shown as it came; choices name zones.
LENGTHS, AS_IT_CAME = {"data-countdown", "data-since"}, {"pre", "script", "style", "option", "textarea"}
ROWS = {"tr", "li", "dd", "p"}
MARKUP = '"><script>alert(1)</script>'
# Names and texts of machines, users and Azure, which are pages' content.
TEXTS = """availabilityset.name availabilityset.resource_group machine.resource_name inventorymachine.name cache.host
notification.raw scheduledevent.description approval.comment claim.comment order.azure_body savedview.name"""


class Outline(HTMLParser):
    """Tags of a page, and the text that a user reads, including titles under the pointer: the whole, and by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.part = ""
        self.headings: list[bool] = []
        self.cells: list[bool] = []
        self.unaligned: list[str] = []
        self.open: list[tuple[str, bool]] = []
        self.rows: list[str] = []
        self.whole = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append((tag, values))
        if tag in ("table", "thead", "tbody", "tfoot"):
            self.part = tag
        elif tag == "tr":
            self.cells = []
        elif tag in ("th", "td"):
            self.check_cell(values)
        if tag in ROWS:
            self.rows.append("")
        self.read(f" {values.get('title') or ''} ")
        if tag not in ("br", "img", "input", "link", "meta", "path", "use", "wbr"):
            raw = tag in AS_IT_CAME or "raw" in (values.get("class") or "").split()
            self.open.append((tag, raw or bool(LENGTHS & values.keys())))

    def check_cell(self, attrs: dict[str, str | None]) -> None:
        """Note a cell that is aligned in another way than the heading of its column."""
        self.cells.append("num" in str(attrs.get("class")).split())
        if self.part == "thead":
            self.headings = self.cells
        elif self.part != "table" and "colspan" not in attrs and self.cells != self.headings[: len(self.cells)]:
            self.unaligned.append(f"{self.getpos()}: {attrs}")

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

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)

    @property
    def inline(self) -> list[str]:
        wrong = [tag for tag, attrs in self.tags if tag == "style" or (tag == "script" and not attrs.get("src"))]
        for tag, attrs in self.tags:
            wrong += [f"{tag} {name}" for name in attrs if name == "style" or re.match(r"on|hx-on", name)]
            wrong += [
                f"{tag} {value}" for value in attrs.values() if str(value).strip().lower().startswith("javascript:")
            ]
        return wrong

    @property
    def ids(self) -> list[str]:
        return [str(attrs["id"]) for _, attrs in self.tags if "id" in attrs]


def check(answer: Any, address: str) -> Outline:
    """Return the outline of a page: nothing inline, one heading, landmarks, named tables, and times for machines."""
    text = answer.content.decode()
    outline = Outline(text)
    assert outline.inline == [], address
    assert (outline.count("h1"), outline.count("main")) == (1, 1), address
    assert len(set(outline.ids)) == len(outline.ids), address
    assert '<html lang="en"' in text and 'class="skip" href="#main"' in text, address
    assert outline.count("table") == outline.count("caption"), address
    assert outline.unaligned == [], address
    assert "script-src 'self'" in answer["Content-Security-Policy"], address
    assert "unsafe" not in answer["Content-Security-Policy"], address
    for tag, attrs in outline.tags:
        assert tag != "script" or str(attrs.get("src")).startswith("/static/"), address
        assert tag != "time" or TIME.fullmatch(str(attrs.get("datetime"))), address
    return outline


def of_another_clock(page: Outline, now: datetime) -> list[str]:
    """What is no time of New York: other zones, times as programs write them, hours at which nothing happened there."""
    local = now.astimezone(ZoneInfo(ZONE))
    wrong = [row for row in page.rows if "UTC" in row and CLOCK.search(row)]
    wrong += ISO.findall(page.whole) + re.findall(r"\d\d:\d\d(?::\d\d)? UTC", page.whole)
    for match in CLOCK.finditer(page.whole):
        hour, minute, second = map(int, match.groups())
        away = timedelta(hours=hour - local.hour, minutes=minute - local.minute, seconds=second - local.second)
        # Of any day: what lies a day away has the same hour.
        away = (away + timedelta(hours=12)) % timedelta(days=1) - timedelta(hours=12)
        if not -BEFORE < away < AFTER:
            wrong.append(page.whole[max(0, match.start() - 60) : match.end() + 30])
    return wrong


def test_every_page_and_every_part_that_refreshes_itself_keeps_the_policy(client: Client, db: None) -> None:
    check(client.get("/accounts/login/"), "/accounts/login/")
    whole = busy_world()
    fleet, values = whole.fleet, whole.values
    at, amy = fleet.now, acting(factories.admin("amy"), why="as every year")
    made(at=at, name="freezes", event_types=["Freeze"], expires_at=at + timedelta(hours=1))
    times = {"starts_at": at, "ends_at": at + timedelta(hours=1), "set_pattern": "dock"}
    sale = rules.WindowRequestSerializer(data={"name": "All day", "reason": "the shop is full", **times})
    rules.create_window(sale, actor=amy, now=at)
    hook: dict[str, Any] = {"phase": "prepare", "step": "hook", "outcome": "failed", "hook": "drain"}
    fleet.report("vm1", wire.HookData(event_id=EVENT, output=MARKUP, **hook))
    for text in TEXTS.split():
        model, _, column = text.partition(".")
        apps.get_model("fleet", model)._base_manager.update(**{column: Concat(column, Value(MARKUP))})
    ada = factories.admin()
    Profile.objects.create(user=ada, time_zone=ZONE)
    admin, now = logged_in(ada), datetime.now(UTC)
    shown = dict(pages(admin, values))
    assert len(shown) > 45
    events = [f"/events/{event_id}/" for event_id in ScheduledEvent.objects.values_list("event_id", flat=True)]
    more = (*events, "/find/?q=vm1", "/fleet/?as=table", "/sets/999999/", "/no/such/page/")
    parts: dict[str, str] = {}
    wrong: dict[str, list[str]] = {}
    for address, answer in {**shown, **{address: admin.get(address) for address in more}}.items():
        outline = check(answer, address)
        if times_of_others := of_another_clock(outline, now):
            wrong[address] = times_of_others
        for _, attrs in outline.tags:
            if attrs.get("data-live") is not None:
                parts[str(attrs["hx-get"])] = "" if "data-lazy" in attrs else f'id="{attrs["id"]}"'
    assert wrong == {}
    assert len(parts) > 12
    for address, mark in parts.items():
        part: Any = admin.get(address, headers={"HX-Request": "true"})
        assert (part.status_code, b"<html" in part.content) == (200, False), address
        assert mark in part.content.decode() and Outline(part.content.decode()).inline == [], address


def test_a_second_clock_is_seen() -> None:
    now = datetime(2026, 11, 22, 15, 0, tzinfo=UTC)
    right = '<tr><td><time datetime="2026-11-22T15:00:00.000Z">10:00:00<span> EST</span></time></td></tr>'
    assert (
        of_another_clock(Outline(f"{right}<pre>2026-11-22T15:00:00Z</pre><time data-since>3 h ago</time>"), now) == []
    )
    bare = "<li>It was at 15:00:00.</li>"
    whole = f"<li>It was at {whole_time(now, API)}.</li>"
    tip = '<p title="2026-11-22T15:00:00Z">now</p>'
    assert all(of_another_clock(Outline(right + one), now) for one in (bare, whole, tip))


def test_an_unreadable_cursor_leads_to_the_beginning(fleet: factories.Fleet, operator: Client) -> None:
    for address in ("/history/", "/sets/", "/machines/", "/timeline/"):
        answer = operator.get(f"{address}?cursor=nonsense")
        assert (answer.status_code, answer["Location"]) == (302, address)


def test_the_chosen_theme_is_there_before_the_first_paint(fleet: factories.Fleet, operator: Client) -> None:
    assert "data-theme-chosen" not in operator.get("/").content.decode()
    operator.cookies["drydock_theme"] = "dark"
    assert 'data-bs-theme="dark" data-theme-chosen' in operator.get("/").content.decode()
    operator.cookies["drydock_theme"] = '"><script>'
    assert "data-theme-chosen" not in operator.get("/").content.decode()


def test_machines_are_shown_by_domain_with_shape_text_and_what_hits_them(
    fleet: factories.Fleet, operator: Client
) -> None:
    factories.announced(fleet)
    fleet.enrol("newcomer", heard=False)
    machine = fleet.agents["vm1"].machine
    body = operator.get(f"/sets/{machine.availability_set_id}/").content.decode()
    grid = body.split('<table class="grid">')[1].split("</table>")[0]
    assert grid.count('scope="col"') == 2
    assert grid.count('scope="row"') == 3
    assert grid.count("is-hit") == 2
    assert grid.count("tile-good") == 6
    assert grid.count("tile-calm") == 1
    assert "without a report so far: newcomer." in body


def test_pages_of_a_user_without_a_zone_are_in_utc(fleet: factories.Fleet, viewer: Client) -> None:
    factories.announced(fleet)
    assert "UTC" in Outline(viewer.get("/").content.decode()).whole
