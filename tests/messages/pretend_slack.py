"""A stand-in of Slack's Web API, held to its documentation: what it refuses, and what people see in the channel.

`chat.postMessage`, `chat.update` and the reference of blocks in Slack's developer documentation: errors are 200 with
`ok: false`; `chat.update` wants the channel's id, and text without blocks removes the blocks; a section has up to 3,000
characters, a header 150, a message 50 blocks and about 13,000 characters in all; 429 with `Retry-After`.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.messages.pretend import Said

TOKEN = "xoxb-" + "1234567890-" * 2 + "abcdefABCDEF"
MOST_BLOCKS, MOST_HEADER, MOST_SECTION, MOST_TEXT, MOST_ALL = 50, 150, 3000, 40_000, 13_000
MOST_BUTTON, MOST_VALUE, MOST_URL = 75, 2000, 3000
# Unescaped characters.
BARE = re.compile(r"[<>]|&(?!(amp|lt|gt);)")


@dataclass
class Card:
    """One message. `edits`: how often it was changed; `thread`: the replies to it."""

    ts: str
    text: str
    blocks: list[dict[str, Any]]
    edits: int = 0
    thread: list[str] = field(default_factory=list)
    broadcast: list[str] = field(default_factory=list)

    @property
    def seen(self) -> str:
        """All that a reader sees of it."""
        texts = [block["text"]["text"] for block in self.blocks if "text" in block]
        return html.unescape("\n".join(texts) if self.blocks else self.text)

    @property
    def buttons(self) -> dict[str, str]:
        """What each button says, and where it leads or what it sends."""
        rows = [block["elements"] for block in self.blocks if block["type"] == "actions"]
        return {one["text"]["text"]: one.get("url") or one["value"] for row in rows for one in row}


@dataclass
class PretendSlack:
    """One workspace with one channel, `#shop-ops`, in which the bot is a `member`. `allowed`: so many calls."""

    cards: list[Card] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    member: bool = True
    allowed: int = 1_000_000
    # Answers that come before anything is looked at.
    instead: list[Said] = field(default_factory=list)
    # What was sent to a `response_url`, as only one person sees it.
    whispers: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def asked(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Said:
        if self.instead:
            return self.instead.pop(0)
        if path.startswith("/actions/"):
            self.whispers.append(json.loads(body))
            return Said(200, b"ok", {"Content-Type": "text/plain"})
        if method != "POST" or path not in ("/api/chat.postMessage", "/api/chat.update"):
            return no("unknown_method")
        if headers.get("content-type") != "application/json; charset=utf-8":
            return no("invalid_post_type")
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self.tokens:
            return no("invalid_auth")
        arguments = json.loads(body)
        name = path.removeprefix("/api/")
        self.calls.append((name, arguments))
        if self.allowed <= 0:
            return Said(429, json.dumps({"ok": False, "error": "ratelimited"}).encode(), {"Retry-After": "7"})
        self.allowed -= 1
        fault = next(faults(arguments), "")
        if fault:
            self.wrong.append(fault)
            return no(fault)
        return self.post(arguments) if name == "chat.postMessage" else self.update(arguments)

    def post(self, arguments: dict[str, Any]) -> Said:
        if arguments["channel"] not in ("C0SHOP", "#shop-ops", "shop-ops"):
            return no("channel_not_found")
        if not self.member:
            return no("not_in_channel")
        ts = f"1700000000.{len(self.calls):06}"
        if "thread_ts" in arguments:
            card = self.at(arguments["thread_ts"])
            if card is None:
                return no("thread_not_found")
            text = html.unescape(arguments["text"])
            card.thread.append(text)
            if arguments.get("reply_broadcast"):
                card.broadcast.append(text)
        else:
            self.cards.append(Card(ts, arguments["text"], arguments.get("blocks", [])))
        return yes(channel="C0SHOP", ts=ts, message={"text": arguments["text"]})

    def update(self, arguments: dict[str, Any]) -> Said:
        # By id only: a name is no channel here.
        if arguments["channel"] != "C0SHOP":
            return no("channel_not_found")
        card = self.at(arguments["ts"])
        if card is None:
            return no("message_not_found")
        # Text alone takes the blocks away.
        card.text, card.blocks = arguments["text"], arguments.get("blocks", [])
        card.edits += 1
        return yes(channel="C0SHOP", ts=card.ts, text=card.text)

    def at(self, ts: str) -> Card | None:
        return next((card for card in self.cards if card.ts == ts), None)


def no(error: str) -> Said:
    return Said(200, json.dumps({"ok": False, "error": error}).encode())


def yes(**known: Any) -> Said:
    return Said(200, json.dumps({"ok": True, **known}).encode())


def size(text: str) -> int:
    """As JavaScript counts."""
    return len(text.encode("utf-16-le")) // 2


def faults(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Slack's own codes for what is wrong."""
    text, blocks = arguments.get("text"), arguments.get("blocks", [])
    if not text:
        yield "no_text"
        return
    if size(text) > MOST_TEXT:
        yield "msg_too_long"
    if BARE.search(text):
        yield "bare_control_character"
    # The text of a thread is shown without blocks: it must neither be read as markup nor unfold links.
    if "thread_ts" in arguments and (arguments.get("mrkdwn"), arguments.get("unfurl_links")) != (False, False):
        yield "markup_in_thread"
    if len(blocks) > MOST_BLOCKS:
        yield "invalid_blocks"
    if sum(size(str(block.get("text", {}).get("text", ""))) for block in blocks) > MOST_ALL:
        yield "msg_blocks_too_long"
    for block in blocks:
        yield from block_faults(block)


def block_faults(block: Mapping[str, Any]) -> Iterator[str]:
    limits = {"header": MOST_HEADER, "section": MOST_SECTION}
    match block.get("type"):
        case "header" | "section" as kind:
            told = block["text"]
            if kind == "header" and told["type"] != "plain_text":
                yield "invalid_blocks"
            if not 0 < size(told["text"]) <= limits[kind]:
                yield "invalid_blocks"
            if BARE.search(told["text"]):
                yield "bare_control_character"
        case "actions":
            ids = [one["action_id"] for one in block["elements"]]
            if not 0 < len(ids) <= 25 or len(set(ids)) != len(ids):
                yield "invalid_blocks"
            for one in block["elements"]:
                sizes = (size(one["text"]["text"]), size(one.get("value", "")), size(one.get("url", "")))
                if one["type"] != "button" or any(
                    found > most for found, most in zip(sizes, (MOST_BUTTON, MOST_VALUE, MOST_URL), strict=True)
                ):
                    yield "invalid_blocks"
        case _:
            yield "invalid_blocks"
