"""Slack: one card for each event, edited in place, with a thread of what happened."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from fleet.notifications.channels.base import ChannelInUse, Delivery, Item, Outcome
from fleet.notifications.formats import for_slack, without_links
from fleet.notifications.formats import for_slack as escaped
from fleet.notifications.grouping import Digest, DigestEvent, one_service
from fleet.notifications.payloads import CLAIM, OPEN, MessageWords, digest_words, more_events
from fleet.notifications.routing import GROUP, NotificationType
from fleet.notifications.sender.jobs import Answer, HttpJob
from fleet.notifications.sender.pool import send as send_job
from fleet.projections.events.rows import EventRow
from fleet.wording.events import named
from fleet.wording.times import Form, Reader

# A header, a section, the text beside the blocks; and so many sections, so that all together stays below 13,000.
MOST_HEADER = 150
MOST_SECTION = 3000
MOST_TEXT = 3000
MOST_SECTIONS = 3
MOST_VALUE = 2000
# The one action that comes back to us, and that which only opens a page.
CLAIM_ACTION, OPEN_ACTION = "drydock-claim", "drydock-open"


def blocks_of(words: MessageWords, url: str, *, claims: str) -> list[dict[str, Any]]:
    """The card. With `claims`, an EventId, it has the button that claims this event."""
    texts = list(sections([line for line in words.lines if line != words.title]))[:MOST_SECTIONS]
    blocks = [
        {"type": "header", "text": plain(words.title, MOST_HEADER)},
        *({"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}} for text in texts),
    ]
    elements = [
        {"type": "button", "action_id": OPEN_ACTION, "text": plain(OPEN, MOST_HEADER), "url": url[:MOST_SECTION]}
    ]
    if claims and len(claims) <= MOST_VALUE:
        button = {"type": "button", "action_id": CLAIM_ACTION, "text": plain(CLAIM, MOST_HEADER), "value": claims}
        elements.append({**button, "style": "primary"})
    return [*blocks, {"type": "actions", "elements": elements}]


def fallback(words: MessageWords) -> str:
    """What stands beside the blocks: in notifications, and for who cannot see them."""
    return escaped(without_links(words.title), MOST_TEXT)


def plain(text: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": escaped(text, most), "emoji": False}


def sections(lines: Sequence[str]) -> Iterator[str]:
    """The lines in texts of sections, escaped; a line that is longer than one is cut."""
    text = ""
    for line in (escaped(line, MOST_SECTION) for line in lines):
        if text and len(text) + 1 + len(line) > MOST_SECTION:
            yield text
            text = ""
        text = f"{text}\n{line}" if text else line
    if text:
        yield text


# Slack by a bot's token: one card an event, edited in place, and what happened to it in the card's thread.

URL = "https://slack.com/api"
# So many new subjects have a card each; more are a digest.
FEW = 5
# Slack takes about one post a second in a channel, and says so where it is too much.
PAUSE_SECONDS = 1.0
RATE_SECONDS = 30.0
MOST_CALLS = 30
LIMIT_SECONDS = 8.0
BUDGET_SECONDS = 25.0
MOST_ANSWER_BYTES = 256 * 1024
# Of a thread's message, which is a line for each thing that happened.
MOST_LINES = 20

# The card is not there any more, or may not be edited: another one is posted.
NO_CARD = {"message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found"}
# It is this very text that Slack does not take.
REFUSES_TEXT = {"msg_too_long", "invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "no_text"}
# Of these, whoever reads the channel has to hear beside the thread.
LOUD = {
    NotificationType.FIRST_SEEN,
    NotificationType.CHANGED,
    NotificationType.UNCLAIMED,
    NotificationType.UNDECIDED,
    NotificationType.PROPOSED,
    NotificationType.OVERDUE,
    NotificationType.REFUSED,
    NotificationType.CORRECTED,
    NotificationType.SET_UNWATCHED,
}
# Each time is a new thing.
ALWAYS_NEW = {
    NotificationType.SOURCE_QUIET,
    NotificationType.SET_LOWERED,
    NotificationType.AUDIT_FAILED,
    NotificationType.STORAGE_TROUBLE,
    NotificationType.BREAK_GLASS,
}
CLOSES = {
    NotificationType.ENDED,
    NotificationType.COVERAGE_CLOSED,
    NotificationType.MAINTENANCE_ENDED,
    NotificationType.CHANNEL_WORKS,
}


class CallError(Exception):
    """Slack did not do what it was asked. `code` is its own word, empty where it gave none."""

    def __init__(self, answer: Answer, code: str) -> None:
        super().__init__(code)
        self.answer = answer
        self.code = code


class OutOfTimeError(Exception):
    """Too much for one post: the rest goes with its next attempt."""


@dataclass(slots=True)
class Conversation:
    """The calls of one post. `found` is what is to be kept, `last` Slack's last answer."""

    post: Delivery
    channel: ChannelInUse
    now: datetime
    found: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)
    last: Answer | None = None
    calls: int = 0
    began: float = field(default_factory=time.monotonic)

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """What Slack answered. Raises CallError, OutOfTimeError."""
        if self.calls >= MOST_CALLS or time.monotonic() - self.began > BUDGET_SECONDS:
            raise OutOfTimeError
        self.calls += 1
        headers = {
            "Authorization": f"Bearer {self.channel.values['token']}",
            "Content-Type": "application/json; charset=utf-8",
        }
        body = json.dumps(arguments).encode()
        job = HttpJob(
            "POST", f"{URL}/{method}", headers, body, limit_seconds=LIMIT_SECONDS, most_bytes=MOST_ANSWER_BYTES
        )
        self.last = send_job(job, now=self.now)
        said = parsed(self.last.body)
        if not self.last.ok or said.get("ok") is not True:
            raise CallError(self.last, str(said.get("error", "")))
        return said

    def card(self, words: MessageWords, place: Mapping[str, str], *, claims: str = "") -> dict[str, str]:
        """The card at this place as it is now, or a new one where there is none; where it stands."""
        if place:
            try:
                self.write("chat.update", words, claims=claims, channel=place["channel"], ts=place["ts"])
                return dict(place)
            except CallError as error:
                if error.code not in NO_CARD:
                    raise
        said = self.write("chat.postMessage", words, claims=claims, channel=self.channel.values["channel"])
        return {"channel": str(said["channel"]), "ts": str(said["ts"])}

    def write(self, method: str, words: MessageWords, *, claims: str, **where: str) -> dict[str, Any]:
        url = self.post.url.removesuffix(self.post.words.path) + words.path
        quiet = {} if method == "chat.update" else {"unfurl_links": False, "unfurl_media": False}
        plain = {"text": fallback(words), **quiet, **where}
        try:
            return self.call(method, blocks=blocks_of(words, url, claims=claims), **plain)
        except CallError as error:
            if error.code not in REFUSES_TEXT:
                raise
        # Better plain than not at all. Without blocks of its own an edited card keeps none.
        return self.call(method, blocks=[], **plain)

    def add(self, place: Mapping[str, str], lines: Sequence[str], *, loud: bool) -> None:
        """A line for each thing that happened, in the thread of a card."""
        self.call(
            "chat.postMessage",
            channel=place["channel"],
            thread_ts=place["ts"],
            text="\n".join(for_slack(without_links(line), MOST_HEADER) for line in lines[:MOST_LINES]),
            reply_broadcast=loud,
            mrkdwn=False,
            unfurl_links=False,
            unfurl_media=False,
        )


def send(post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome:
    """Tell Slack what the post says: new cards, edited ones, a digest where there are many."""
    told = Conversation(post, channel, now)
    refused: CallError | None = None
    try:
        for step in steps(told):
            try:
                step()
            except CallError as error:
                if error.code not in REFUSES_TEXT:
                    raise
                # This one Slack will never take; the others it may.
                refused = error
    except CallError as error:
        return failure(error, told.found)
    except OutOfTimeError:
        return Outcome(ok=False, again=True, error="too-many-calls", wait_seconds=RATE_SECONDS, references=told.found)
    if refused is not None:
        return failure(refused, told.found)
    status = told.last.status if told.last else None
    return Outcome(
        ok=True, status=status, answer="ok", wait_seconds=PAUSE_SECONDS if told.calls else None, references=told.found
    )


def steps(told: Conversation) -> Iterator[Callable[[], object]]:
    """What is to be done, one card after the other; digests first, as they stand for most."""
    post = told.post
    if not post.items:
        yield partial(told.card, post.words, {})
        return
    by_subject: dict[str, list[Item]] = {}
    for item in post.items:
        by_subject.setdefault(item.news.subject, []).append(item)
    # What an earlier attempt of this post has done already.
    left = {s: items for s, items in by_subject.items() if post.references.get(s, {}).get("told") != post.id}
    digests = [Digest.of_json(kept) for kept in post.references.get(GROUP, {}).get("digests", ())]
    of_digest = {subject: digest for digest in digests for subject in digest.events if subject in left}
    fresh = [
        subject
        for subject, items in left.items()
        if subject not in of_digest and not place_of(post, subject) and items[-1].news.event is not None
    ]
    if len(fresh) > FEW:
        of_digest |= dict.fromkeys(fresh, digest_for(fresh, left, digests, told))
    for digest in digests:
        mine = {subject: items for subject, items in left.items() if of_digest.get(subject) is digest}
        if mine:
            yield partial(tell_digest, told, digest, mine, digests)
    alone = {subject: items for subject, items in left.items() if subject not in of_digest}
    for subject, items in alone.items():
        yield partial(tell_subject, told, subject, items, brief=len(alone) > FEW)


def place_of(post: Delivery, subject: str) -> dict[str, str]:
    """Where the card of a subject stands; empty where it has none of its own."""
    kept = post.references.get(subject, {})
    return {name: str(kept[name]) for name in ("channel", "ts") if name in kept}


def tell_subject(told: Conversation, subject: str, items: Sequence[Item], *, brief: bool) -> None:
    """The card of one subject, and in its thread what happened; where it is `brief`, only what has to be heard."""
    kept, newest = told.post.references.get(subject, {}), items[-1]
    event = newest.news.event
    over = not event.open if event is not None else newest.news.moment in CLOSES
    anew = event is None and (kept.get("over") or newest.news.moment in ALWAYS_NEW)
    place = {} if anew else place_of(told.post, subject)
    claims = event.event_id if event and event.open and event.claim is None and claimable(told.channel) else ""
    stands = told.card(newest.words, place, claims=claims)
    loud = any(item.news.moment in LOUD for item in items)
    if stands == place and (loud or not brief):
        told.add(stands, [item.words.title for item in items], loud=loud)
    told.found[subject] = {**stands, "told": told.post.id, "over": over}


def digest_for(
    fresh: Sequence[str], by_subject: Mapping[str, Sequence[Item]], digests: list[Digest], told: Conversation
) -> Digest:
    """The digest that takes these in: one that is there, or a new one."""
    of = one_service(by_subject[subject][-1].news.service for subject in fresh)
    drill = all(by_subject[subject][-1].news.drill for subject in fresh)
    for digest in digests:
        if (digest.of, digest.drill) == (of, drill) and digest.takes_in(now=told.now):
            return digest
    digest = Digest(of, told.now, drill=drill)
    digests.append(digest)
    return digest


def tell_digest(
    told: Conversation, digest: Digest, mine: Mapping[str, Sequence[Item]], digests: Sequence[Digest]
) -> None:
    """The digest as it is now, and in its thread what happened; loud only where it became more urgent."""
    before = digest.urgency if digest.place else None
    more = 0
    for subject, items in mine.items():
        event = items[-1].news.event
        more += subject not in digest.events
        if event is not None:
            digest.events[subject] = digest_event(items[-1], event)
        if event is None or not event.open:
            digest.end(subject)
    words = digest_words(digest, reader_of(told.channel, told.now))
    stands = told.card(words, digest.place)
    if before is not None and stands == digest.place:
        line = more_events(more, words.title) if more else words.title
        alone = [item for items in mine.values() for item in items]
        told.add(stands, [alone[0].words.title if len(alone) == 1 else line], loud=digest.urgency > before)
    digest.place, digest.told = stands, told.post.id
    told.found[GROUP] = {"digests": [one.as_json() for one in digests if one.place and (one.events or one is digest)]}
    for subject in mine:
        # However often this post is tried again, it is no card of its own.
        told.found[subject] = {"told": told.post.id}


def digest_event(item: Item, event: EventRow) -> DigestEvent:
    """What a digest keeps of an event."""
    card = item.news.card
    return DigestEvent(
        event_type=event.event_type[:64],
        what=f"{named(event.event_type, event.resources)[:120]} in {event.set.name[:64]}",
        severity=item.news.severity,
        started=event.started_at is not None,
        waits=event.needs_decision,
        on_it=event.claim is not None,
        deadline=(card.decide_by if card else None) or event.not_before,
    )


def failure(error: CallError, found: Mapping[str, Mapping[str, Any] | None]) -> Outcome:
    """What Slack's no means for the post, and for the channel."""
    answer, code = error.answer, error.code
    wait = answer.retry_after_seconds
    if wait is None and (code in ("ratelimited", "rate_limited") or answer.status == 429):
        wait = seconds_of(answer.headers.get("retry-after", "")) or RATE_SECONDS
    return Outcome(
        ok=False,
        again=code not in REFUSES_TEXT,
        status=answer.status,
        error=str(answer.error) or "status",
        answer=code or answer.answer,
        wait_seconds=wait,
        references=found,
    )


def claimable(channel: ChannelInUse) -> bool:
    """Whether a press of the button comes back to us, signed."""
    return bool(channel.values.get("signing_secret"))


def reader_of(channel: ChannelInUse, now: datetime) -> Reader:
    """For whom a digest is worded: the channel's zone."""
    zone: tzinfo = UTC
    with suppress(KeyError, ValueError, OSError):
        zone = ZoneInfo(str(channel.values.get("time_zone") or "UTC"))
    return Reader(zone, Form.MESSAGE, now)


def parsed(body: str) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def seconds_of(text: str) -> float | None:
    return float(text[:6]) if text.isascii() and text.isdecimal() else None
