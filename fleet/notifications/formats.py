"""Escaping for the formats of receivers, so that texts from machines and users appear literally.

All escaping for messages happens here. Each function takes plain text and returns it for one format:

- `for_chat`: any chat service, for all dialects of Markdown and HTML, also if a library escapes the text again.
- `for_slack`: Slack's texts, with its three entities.
- `without_links`: plain text in which programs find no links.
- `html.escape`: HTML of mails.

A mail header or a calendar entry is one line: `fleet.wording.times.one_line`.
"""

import re

# Characters that chat services read as markup, mention or link, each with a similar character without a meaning.
# Backslashes do not work: services differ in what they escape, and none escapes a mention.
LOOKALIKES = str.maketrans({
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
    # Cards of Teams compute `{{DATE(…)}}` and `${…}`.
    "{": "\N{FULLWIDTH LEFT CURLY BRACKET}",
    "}": "\N{FULLWIDTH RIGHT CURLY BRACKET}",
})  # fmt: skip
# Within a word, underscores are no markup.
EMPHASIS = re.compile(r"(?<![^\W_])_+|_+(?![^\W_])")
SCHEME = re.compile(r":(?=//)|(?<=\bwww)\.", re.IGNORECASE)
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def without_links(text: str) -> str:
    """Change addresses in the text so that programs do not turn them into links."""
    return SCHEME.sub(lambda match: "\N{FULLWIDTH COLON}" if match[0] == ":" else "\N{ONE DOT LEADER}", text)


def for_chat(text: str) -> str:
    """Escape the text for any chat service. It looks the same, but works as no markup, mention or link."""
    normalised = without_links(text).translate(LOOKALIKES)
    return EMPHASIS.sub(lambda match: "\N{FULLWIDTH LOW LINE}" * len(match[0]), normalised)


def for_slack(text: str, most: int) -> str:
    """Escape the text for Slack and cut it to `most` characters, never inside an entity. Empty text becomes a dash,
    because Slack rejects it.
    """
    parts: list[str] = []
    size = 0
    tidy = "".join(c if c.isprintable() or c in "\n\t" else " " for c in text).strip()
    for c in tidy:
        part = ENTITIES.get(c, c)
        # Slack counts UTF-16 units, as JavaScript does: characters beyond the first plane count twice.
        size += len(part) + (c > "\uffff")
        if size > most - 1:
            return "".join(parts) + "…"
        parts.append(part)
    return "".join(parts) or "-"
