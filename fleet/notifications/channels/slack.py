"""Slack channel: one card (message) for each event, which is edited in place, and a thread of its changes."""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from fleet.domain.shapes import grouped
from fleet.domain.texts import parse_json
from fleet.notifications.channels import KINDS, TIME_ZONE, ChannelKind, Setting
from fleet.notifications.channels.base import ChannelInUse, Delivery, Item, Outcome, reader_of
from fleet.notifications.formats import for_slack, without_links
from fleet.notifications.grouping import Digest, DigestEvent, only
from fleet.notifications.news import MessageNews
from fleet.notifications.routing import GROUP
from fleet.notifications.sender.jobs import Answer, HttpJob
from fleet.notifications.sender.pool import send as send_job
from fleet.notifications.text import DRILL, OPEN, MessageWords
from fleet.projections.events.rows import EventRow
from fleet.wording.events import named
from fleet.wording.times import Reader, at

KINDS["slack"] = ChannelKind(
    "Slack",
    "A team sees the card, claims the event from there, and the message changes with it.",
    "hash",
    {
        "token": Setting(
            "bot token",
            pattern="xox[a-z]-[0-9A-Za-z-]+",
            wrong="A bot token of Slack begins with “xoxb-”.",
            help_text="Of a Slack app with chat:write, invited to the channel; it begins with xoxb-.",
        ),
        "channel": Setting(
            "Slack channel",
            pattern=r"#?[\w.-]{1,80}",
            wrong="Enter the name or the id of a Slack channel.",
            help_text="Its name or its id, such as #shop-ops.",
        ),
        "signing_secret": Setting(blank=True, help_text="Of the same app; with it “Claim” in Slack works."),
        "time_zone": TIME_ZONE,
    },
    secrets=frozenset({"token", "signing_secret"}),
    follows=True,
)
# Limits of a header, a section, the fallback text and the value of a button.
MOST_HEADER = 150
MOST_SECTION = 3000
MOST_TEXT = 3000
MOST_VALUE = 2000
# The action that Slack reports to Drydock, and the one that only opens a page.
CLAIM_ACTION, OPEN_ACTION = "drydock-claim", "drydock-open"


def blocks_of(words: MessageWords, url: str, *, claims: str) -> list[dict[str, Any]]:
    """Return the Slack blocks of a card. `claims` is the EventId for the button that claims the event, or empty for no
    button.
    """
    header = {"type": "header", "text": plain(words.title)}
    # So few that a message stays below 13,000 characters.
    texts = islice(sections([line for line in words.lines if line != words.title]), 3)
    blocks = ({"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}} for text in texts)
    elements = [{"type": "button", "action_id": OPEN_ACTION, "text": plain(OPEN), "url": url[:MOST_SECTION]}]
    if claims and len(claims) <= MOST_VALUE:
        button = {"type": "button", "action_id": CLAIM_ACTION, "text": plain("Claim"), "value": claims}
        elements.append({**button, "style": "primary"})
    return [header, *blocks, {"type": "actions", "elements": elements}]


def plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": for_slack(text, MOST_HEADER), "emoji": False}


def sections(lines: Sequence[str]) -> Iterator[str]:
    """Yield escaped texts for sections of a card. Each is within Slack's size limit; a longer line is cut."""
    text = ""
    for line in (for_slack(line, MOST_SECTION) for line in lines):
        if text and len(text) + 1 + len(line) > MOST_SECTION:
            yield text
            text = ""
        text = f"{text}\n{line}" if text else line
    if text:
        yield text


# Slack by a bot token: one card for each event, edited in place, with its changes in the thread.

URL = "https://slack.com/api"
# Up to this many new subjects get a card each; more get a digest.
FEW = 5
# Slack accepts about one message a second in a channel, and answers with an error above.
PAUSE_SECONDS = 1.0
RATE_SECONDS = 30.0
MOST_CALLS = 30
LIMIT_SECONDS = 8.0
BUDGET_SECONDS = 25.0
# Lines of a message in a thread, one for each change.
MOST_LINES = 20

# The card was deleted or cannot be edited: a new one is posted.
NO_CARD = {"message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found"}
# Slack rejects this text.
REFUSES_TEXT = {"msg_too_long", "invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "no_text"}


class CallError(Exception):
    """Slack refused a call. `code` is Slack's error code, or empty if there is none."""

    def __init__(self, answer: Answer, code: str) -> None:
        super().__init__(code)
        self.answer = answer
        self.code = code


class OutOfTimeError(Exception):
    """The attempt needs more calls than one attempt may make. The next attempt continues."""


@dataclass(slots=True)
class Conversation:
    """Calls to Slack during one delivery attempt. `references` are the identifiers to store; `last` is Slack's last
    response.
    """

    post: Delivery
    channel: ChannelInUse
    now: datetime
    references: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)
    last: Answer | None = None
    calls: int = 0
    began: float = field(default_factory=time.monotonic)

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method of Slack's API and return the response. Raises CallError or OutOfTimeError."""
        if self.calls >= MOST_CALLS or time.monotonic() - self.began > BUDGET_SECONDS:
            raise OutOfTimeError
        self.calls += 1
        token, body = f"Bearer {self.channel.values['token']}", json.dumps(arguments).encode()
        headers = {"Authorization": token, "Content-Type": "application/json; charset=utf-8"}
        job = HttpJob("POST", f"{URL}/{method}", headers, body, limit_seconds=LIMIT_SECONDS, most_bytes=256 * 1024)
        self.last, answer = send_job(job, now=self.now), None
        with suppress(ValueError):
            answer = parse_json(self.last.body)
        if not isinstance(answer, dict):
            answer = {}
        if not self.last.ok or answer.get("ok") is not True:
            raise CallError(self.last, str(answer.get("error", "")))
        return answer

    def card(self, words: MessageWords, place: Mapping[str, str], *, claims: str = "") -> dict[str, str]:
        """Edit the card at `place` (channel and timestamp), or post a new one if `place` is empty. Return the place of
        the card.
        """
        if place:
            try:
                self.write("chat.update", words, claims=claims, channel=place["channel"], ts=place["ts"])
                return dict(place)
            except CallError as error:
                if error.code not in NO_CARD:
                    raise
        answer = self.write("chat.postMessage", words, claims=claims, channel=self.channel.values["channel"])
        return {"channel": str(answer["channel"]), "ts": str(answer["ts"])}

    def write(self, method: str, words: MessageWords, *, claims: str, **where: str) -> dict[str, Any]:
        url = self.post.url.removesuffix(self.post.words.path) + words.path
        quiet = {} if method == "chat.update" else {"unfurl_links": False, "unfurl_media": False}
        # The text is shown in notifications and to screen readers.
        arguments = {"text": for_slack(without_links(words.title), MOST_TEXT), **quiet, **where}
        try:
            return self.call(method, blocks=blocks_of(words, url, claims=claims), **arguments)
        except CallError as error:
            if error.code not in REFUSES_TEXT:
                raise
        # Plain text is better than no message. Empty blocks remove those of an edited card.
        return self.call(method, blocks=[], **arguments)

    def add(self, place: Mapping[str, str], lines: Sequence[str], *, loud: bool) -> None:
        """Post lines to the thread of a card. With `loud`, they also appear in the channel."""
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
    """Send a delivery: new cards, edited cards, or a digest of many events."""
    conversation = Conversation(post, channel, now)
    refused: CallError | None = None
    try:
        for step in steps(conversation):
            try:
                step()
            except CallError as error:
                if error.code not in REFUSES_TEXT:
                    raise
                # Slack rejects this one permanently, but may accept the others.
                refused = error
    except CallError as error:
        refused = error
    except OutOfTimeError:
        late = Outcome(ok=False, again=True, error="too-many-calls", wait_seconds=RATE_SECONDS)
        return replace(late, references=conversation.references)
    if refused is not None:
        return failure(refused, conversation.references)
    status = conversation.last.status if conversation.last else None
    pause = PAUSE_SECONDS if conversation.calls else None
    return Outcome(ok=True, status=status, answer="ok", wait_seconds=pause, references=conversation.references)


def steps(conversation: Conversation) -> Iterator[Callable[[], object]]:
    """Yield one function for each card to send. Digests come first, because they contain the most events."""
    post = conversation.post
    if not post.items:
        yield partial(conversation.card, post.words, {})
        return
    # Without what an earlier attempt has sent.
    told = {subject for subject, reference in post.references.items() if reference.get("told") == post.id}
    by_subject = grouped((item.news.subject, item) for item in post.items if item.news.subject not in told)
    digests = msgspec.convert(post.references.get(GROUP, {}).get("digests", []), list[Digest])
    of_digest = {subject: digest for digest in digests for subject in digest.events if subject in by_subject}
    fresh = {
        subject: items[-1].news
        for subject, items in by_subject.items()
        if subject not in of_digest and not place_of(post, subject) and items[-1].news.event is not None
    }
    if len(fresh) > FEW:
        of_digest |= dict.fromkeys(fresh, digest_for(fresh.values(), digests, now=conversation.now))
    for digest in digests:
        changed = {subject: items for subject, items in by_subject.items() if of_digest.get(subject) is digest}
        if changed:
            yield partial(send_digest, conversation, digest, changed, digests)
    alone = {subject: items for subject, items in by_subject.items() if subject not in of_digest}
    for subject, items in alone.items():
        yield partial(send_card, conversation, subject, items, brief=len(alone) > FEW)


def place_of(post: Delivery, subject: str) -> dict[str, str]:
    """Return the place (channel and timestamp) of the card of a subject, or an empty dictionary if it has none."""
    reference = post.references.get(subject, {})
    return {name: str(reference[name]) for name in ("channel", "ts") if name in reference}


def send_card(conversation: Conversation, subject: str, items: Sequence[Item], *, brief: bool) -> None:
    """Update the card of one subject and add the changes to the thread. With `brief`, nothing is added to the thread
    unless a change must notify users.
    """
    reference, newest = conversation.post.references.get(subject, {}), items[-1]
    declared = newest.news.moment.declared
    event = None if declared.of_machine else newest.news.event
    over = not event.open if event is not None else declared.ends
    is_new = event is None and (reference.get("over") or declared.endless)
    place = {} if is_new else place_of(conversation.post, subject)
    # Slack reports a press of the button to Drydock, signed.
    claimable = event and event.open and event.claim is None and conversation.channel.values.get("signing_secret")
    new_place = conversation.card(newest.words, place, claims=event.event_id if event and claimable else "")
    loud = any(each.loud or each.wakes for each in (item.news.moment.declared for item in items))
    if new_place == place and (loud or not brief):
        conversation.add(new_place, [item.words.title for item in items], loud=loud)
    conversation.references[subject] = {**new_place, "told": conversation.post.id, "over": over}


def digest_for(fresh: Collection[MessageNews], digests: list[Digest], *, now: datetime) -> Digest:
    """Return the digest to which new subjects are added: an open one, or else a new one."""
    of, drill = only(news.service for news in fresh), all(news.drill for news in fresh)
    for digest in digests:
        if (digest.of, digest.drill) == (of, drill) and digest.takes_in(now=now):
            return digest
    digest = Digest(of, now, drill=drill)
    digests.append(digest)
    return digest


def send_digest(
    conversation: Conversation, digest: Digest, changed: Mapping[str, Sequence[Item]], digests: Sequence[Digest]
) -> None:
    """Update the card of a digest and its thread. Users are notified only if it has become more urgent."""
    before = digest.urgency if digest.place else None
    added = len(changed.keys() - digest.events.keys())
    for subject, items in changed.items():
        event = items[-1].news.event
        if event is not None:
            digest.events[subject] = digest_event(items[-1].news, event)
        if event is None or not event.open:
            digest.over += digest.events.pop(subject, None) is not None
    words = digest_words(digest, reader_of(conversation.channel, conversation.now))
    place = conversation.card(words, digest.place)
    if before is not None and place == digest.place:
        items = [item for several in changed.values() for item in several]
        line = f"{added:,} more. {words.title}" if added else words.title
        conversation.add(place, [items[0].words.title if len(items) == 1 else line], loud=digest.urgency > before)
    digest.place = place
    remaining = [each for each in digests if each.place and (each.events or each is digest)]
    # At a retry of this delivery, a subject gets no card of its own.
    conversation.references |= {subject: {"told": conversation.post.id} for subject in changed}
    conversation.references[GROUP] = {"digests": msgspec.to_builtins(remaining)}


def digest_words(digest: Digest, reader: Reader) -> MessageWords:
    """Return the texts of a digest in its current state."""
    of, drill = f" of {digest.of}" if digest.of else "", DRILL if digest.drill else ""
    counts = ((digest.count("waits"), "to decide"), (digest.count("started"), "under way"), (digest.over, "over"))
    state = ", ".join(f"{count:,} {what}" for count, what in counts if count) or "nothing to decide"
    title = f"{drill}{digest.total:,} event{'' if digest.total == 1 else 's'}{of}: "
    title += state if digest.events else "all over"
    return MessageWords(title, title, (title, *_digest_lines(digest, reader)), title[:160], "/")


def _digest_lines(digest: Digest, reader: Reader) -> Iterator[str]:
    if digest.events:
        types = [f"{count:,} {name or 'of no type'}" for name, count in digest.types[:8]]
        if others := sum(count for _, count in digest.types[8:]):
            types.append(f"{others:,} others")
        yield f"Open: {', '.join(types)}."
    if unclaimed := sum(event.waits and not event.on_it for event in digest.events.values()):
        yield f"Unclaimed: {unclaimed:,}."
    if digest.nearest:
        yield "Next deadlines:"
    for deadline, event in digest.nearest:
        yield f"{event.what}: decide by {at(deadline, reader)}" + (", taken." if event.on_it else ".")


def digest_event(news: MessageNews, event: EventRow) -> DigestEvent:
    """Return the data about an event that a digest stores."""
    return DigestEvent(
        event_type=event.event_type[:64],
        what=f"{named(event.event_type, event.resources)[:120]} in {event.set.name[:64]}",
        severity=news.severity,
        started=event.started_at is not None,
        waits=event.needs_decision,
        on_it=event.claim is not None,
        deadline=(news.card.decide_by if news.card else None) or event.not_before,
    )


def failure(error: CallError, references: Mapping[str, Mapping[str, Any] | None]) -> Outcome:
    """Return the outcome for a call that Slack refused. `references` are stored all the same."""
    answer, code = error.answer, error.code
    wait = answer.retry_after_seconds
    if wait is None and (code in ("ratelimited", "rate_limited") or answer.status == 429):
        wait = RATE_SECONDS
    return Outcome(
        ok=False,
        again=code not in REFUSES_TEXT,
        status=answer.status,
        error=str(answer.error) or "status",
        answer=code or answer.answer,
        wait_seconds=wait,
        references=references,
    )
