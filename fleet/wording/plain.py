"""Lines for messages: whatever somebody calls a machine or writes as a reason, it is one line, of a bounded length."""

import unicodedata

from fleet.domain.texts import UNSEEN

# Line and paragraph separators, what turns the direction of a text around, and what no reader knows yet.
BREAKING = UNSEEN | {"Cn"}
MORE = "..."


def one_line(text: str, most: int) -> str:
    """This text in one line of at most so many characters, without what no reader shows."""
    # A longer text is cut before it is looked at: it may be of any length.
    kept = "".join(" " if unicodedata.category(sign) in BREAKING else sign for sign in text[: 4 * most + 16])
    return clipped(" ".join(kept.split()), most)


def clipped(text: str, most: int) -> str:
    """Cut to so many characters, with a sign that it was."""
    return text if len(text) <= most else text[: max(0, most - len(MORE))].rstrip() + MORE[:most]


def beside(texts: tuple[str, str], most: int) -> tuple[str, str]:
    """Two texts that share so many characters: what one does not need is left to the other, and the first gets more."""
    first, second = texts
    share = most * 3 // 5
    room = max(share, most - len(second))
    first = clipped(first, room)
    return first, clipped(second, most - len(first))
