"""Texts by people and machines, fit to be kept: Postgres keeps no NUL in text."""

from collections.abc import Mapping
from typing import Any
from unicodedata import category

from fleet.domain.reasons import Reason, Refused

MAX_TEXT = 2000
# Categories: controls, invisible formatting, line and paragraph separators, surrogates, private use.
UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co"})


def is_seen(text: str) -> bool:
    """Whether a text is one line without controls and signs that are not seen."""
    return (text.isascii() and text.isprintable()) or not any(category(sign) in UNSEEN for sign in text)


def tidy(text: str) -> str:
    """Return a one-line text without surrounding space. Line breaks, control characters and invisible signs (zero
    width, writing direction) become spaces.
    """
    if is_seen(text):
        return text.strip()
    return " ".join("".join(" " if category(sign) in UNSEEN else sign for sign in text).split())


def tidy_value(value: Any, limit: int) -> str:
    """Return a value of a JSON document as a tidy text of at most `limit` characters; empty where it is no text."""
    if not isinstance(value, str):
        return ""
    # UTF-8 has no half of a surrogate pair.
    whole = value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return tidy(whole)[:limit]


def tidy_values(document: Mapping[str, Any], limits: Mapping[str, int]) -> list[str]:
    """Return `tidy_value` of each of these keys, with its limit."""
    return [tidy_value(document.get(key), limit) for key, limit in limits.items()]


def prose(text: str) -> str:
    """Return a text of several lines as `tidy` does, but keep its lines and tabs."""
    if text.isascii() and text.isprintable():
        return text.strip()
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(" " if sign not in "\n\t" and category(sign) in UNSEEN else sign for sign in lines).strip()


def readable(text: str) -> str:
    """Return a machine's text, with a replacement character for each NUL."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def storable(value: Any) -> Any:
    """Return a JSON value with what Postgres cannot store in a text (NUL, halves of surrogate pairs) replaced."""
    if isinstance(value, str):
        text = value.replace("\x00", "\N{REPLACEMENT CHARACTER}")
        return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item) for item in value]
    return value


def cleaned(text: str, *, what: str = "comment") -> str:
    """A comment by a person, tidy. Raises Refused `validation` when it is too long."""
    text = prose(text)
    if len(text) > MAX_TEXT:
        raise Refused("validation", Reason("text-too-long", what=what, most=MAX_TEXT))
    return text


def cleaned_reasons(reasons: Mapping[str, str] | None) -> dict[str, str]:
    """Reasons by guard code, tidy. Raises Refused `validation`."""
    return {code: cleaned(reason, what="reason") for code, reason in (reasons or {}).items()}
