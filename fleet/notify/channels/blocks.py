"""Slack's blocks: a card within Slack's limits, in plain text, so that no name of a machine is a link or a mention."""

from collections.abc import Iterator, Sequence
from typing import Any

from fleet.wording.digests import CLAIM, OPEN
from fleet.wording.formats import for_slack as escaped
from fleet.wording.formats import without_links
from fleet.wording.messages import MessageWords

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
