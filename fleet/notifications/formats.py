"""Texts by machines and people in the formats of receivers: they are shown as they are, whatever the format marks up.

This is the one place that escapes for messages. Each function takes plain text and returns what the format shows as
that text:

- `for_chat`: any chat service, whichever dialect of Markdown or HTML it reads, and however often a library escapes it.
- `for_slack`: Slack's texts, with its three entities.
- `without_links`: plain text of which programs make links.
- `for_html`: HTML of mails.

A mail header and a date of a calendar are one line: `fleet.wording.times.one_line`.
"""

import re
from html import escape

# Signs that chat services take as markup, a mention, or a link, each with one that looks alike and means nothing. A
# backslash would not do: services differ in what it escapes, and none of them escapes a mention with it.
ALIKE = str.maketrans({
    "@": "\N{FULLWIDTH COMMERCIAL AT}",
    "<": "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}",
    ">": "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}",
    "[": "\N{FULLWIDTH LEFT SQUARE BRACKET}",
    "]": "\N{FULLWIDTH RIGHT SQUARE BRACKET}",
    "`": "\N{MODIFIER LETTER GRAVE ACCENT}",
    "*": "\N{ASTERISK OPERATOR}",
    "~": "\N{TILDE OPERATOR}",
    "|": "\N{DIVIDES}",
    "#": "\N{FULLWIDTH NUMBER SIGN}",
    "\\": "\N{FULLWIDTH REVERSE SOLIDUS}",
    "&": "\N{FULLWIDTH AMPERSAND}",
    "$": "\N{FULLWIDTH DOLLAR SIGN}",
})  # fmt: skip
# Inside of a word it marks nothing up.
EMPHASIS = re.compile(r"(?<![^\W_])_+|_+(?![^\W_])")
SCHEME = re.compile(r":(?=//)|(?<=\bwww)\.", re.IGNORECASE)
NO_SCHEME = {":": "\N{FULLWIDTH COLON}", ".": "\N{ONE DOT LEADER}"}
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def without_links(text: str) -> str:
    """The text without addresses that a program would turn into links by itself."""
    return SCHEME.sub(lambda found: NO_SCHEME[found[0]], text)


def for_chat(text: str) -> str:
    """The text for a chat service: the same to look at, and neither markup nor mention nor link to any of them."""
    alike = without_links(text).translate(ALIKE)
    return EMPHASIS.sub(lambda found: "\N{FULLWIDTH LOW LINE}" * len(found[0]), alike)


def for_slack(text: str, most: int) -> str:
    """With Slack's three entities and never cut inside of one; a dash where nothing is left, as Slack wants a text."""
    parts: list[str] = []
    size = 0
    tidy = "".join(c if c.isprintable() or c in "\n\t" else " " for c in text).strip()
    for c in tidy:
        part = ENTITIES.get(c, c)
        # Slack counts as JavaScript does: what lies beyond the first plane counts twice.
        size += len(part) + (c > "\uffff")
        if size > most - 1:
            return "".join(parts) + "…"
        parts.append(part)
    return "".join(parts) or "-"


def for_html(text: str) -> str:
    """With entities, fit for an element and for an attribute in quotation marks."""
    return escape(text)


# Answers to *Claim* in a chat, shown to that person only. Only our own link stays a link.


def claimed(person: str) -> str:
    """It is theirs."""
    return f"You are on it, as {without_links(person)}. Whether to approve it, you decide on its page."


def refused(sentence: str) -> str:
    """Why nothing was claimed."""
    return f"Nothing was claimed. {without_links(sentence)}"


def stranger(account: str, address: str) -> str:
    """Whose account nobody has said."""
    return (
        "Nothing was claimed: Drydock does not know who you are. Open this within 10 minutes, log in, and say that this"
        f" account is yours; the link is for you alone: {address} An admin can do it as well: your member id is"
        f" {without_links(account)}."
    )
