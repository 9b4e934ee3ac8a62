"""One hostile text, as a machine or a person might be called, and what no receiver may be given of it."""

import unicodedata
from typing import Any

SAMPLE = (
    "[log in](https://evil.example/x) <https://evil.example|here> www.evil.example @channel @everyone @here"
    " <!channel> <@U1> `x` **b** __u__ ~s~ ||p|| # h $x$ &lt; \\] ![i](http://evil.example/i.png)"
    "\r\nBcc: all@evil.example\r\n\r\n.\r\nEND:VCALENDAR\u2028new\u2029par"
    "\u202egnp\u2066iso\u200bzero\ufeff\x00\x1b[31m"
    " {{DATE(2017-02-14T06:00:00Z, SHORT)}} {{ 7*7 }} ${7*7} {% now 'Y' %} {0.__class__} %(x)s"
)
# Of what a chat service is given.
MARKUP = ("{{", "@channel", "@everyone", "@here", "<!", "<@", "](", "`", "**", "||", "[log", "[i]", "example|", "&lt;")
LINKS = ("https://evil", "http://evil", "www.evil")
UNSEEN = {"Cc", "Cf", "Zl", "Zp"}


def texts(value: Any) -> list[str]:
    """Every text in a JSON value, names of fields left out."""
    match value:
        case str():
            return [value]
        case dict():
            return [text for item in value.values() for text in texts(item)]
        case list():
            return [text for item in value for text in texts(item)]
    return []


def unseen(text: str) -> list[str]:
    """Controls and signs that are not seen, but for the ends of lines that a message has anyway."""
    return [sign for sign in text.replace("\r\n", "\n") if sign != "\n" and unicodedata.category(sign) in UNSEEN]


def broken_lines(text: str) -> list[str]:
    """Lines that begin as the sample wants them to."""
    return [line for line in text.splitlines() if line.startswith(("Bcc:", "END:VCALENDAR", ".", "new", "par"))]
