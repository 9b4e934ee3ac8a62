"""Cleaning of texts from users and machines, so that Postgres can store them (it does not store NUL in text)."""

import json
from collections.abc import Mapping
from typing import Any
from unicodedata import category

from fleet.domain.reasons import Reason, Refused

MAX_TEXT = 2000
# Categories: controls, invisible formatting, line and paragraph separators, surrogates, private use.
UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs", "Co"})


def is_seen(text: str) -> bool:
    """Return whether the text is one line without control characters and invisible characters."""
    return (text.isascii() and text.isprintable()) or not any(category(sign) in UNSEEN for sign in text)


def tidy(text: str) -> str:
    """Return the text as one line without surrounding spaces. Line breaks, control and invisible characters become
    spaces.
    """
    if is_seen(text):
        return text.strip()
    return " ".join("".join(" " if category(sign) in UNSEEN else sign for sign in text).split())


def tidy_value(value: Any, limit: int) -> str:
    """Return a value of a JSON document as one line of at most `limit` characters; empty if the value is not a text."""
    if not isinstance(value, str):
        return ""
    # UTF-8 has no half of a surrogate pair.
    whole = value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return tidy(whole)[:limit]


def prose(text: str) -> str:
    """Return a text of several lines, cleaned as `tidy` does, but with the line breaks and tabs."""
    if text.isascii() and text.isprintable():
        return text.strip()
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(" " if sign not in "\n\t" and category(sign) in UNSEEN else sign for sign in lines).strip()


def readable(text: str) -> str:
    """Return a machine's text with each NUL replaced by the replacement character, because Postgres does not
    store NUL.
    """
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Parse JSON from outside. `options` are those of `json.loads`. Raises ValueError also for text that is nested too
    deeply, where the standard library raises RecursionError.
    """
    try:
        return json.loads(text, **options)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def storable(value: Any) -> Any:
    """Return a JSON value with each character replaced that Postgres cannot store: NUL and halves of surrogate
    pairs.
    """
    if isinstance(value, str):
        text = value.replace("\x00", "\N{REPLACEMENT CHARACTER}")
        return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item) for item in value]
    return value


def cleaned(text: str, *, what: str = "comment") -> str:
    """Return a user's text cleaned by `prose`. `what` names the text in the error. Raises Refused `validation` if it is
    too long.
    """
    text = prose(text)
    if len(text) > MAX_TEXT:
        raise Refused("validation", Reason("text-too-long", what=what, most=MAX_TEXT))
    return text


def cleaned_reasons(reasons: Mapping[str, str] | None) -> dict[str, str]:
    """Return a user's reasons, by guard code, each cleaned by `prose`. Raises Refused `validation` if one is
    too long.
    """
    return {code: cleaned(reason, what="reason") for code, reason in (reasons or {}).items()}
