"""Texts by people and machines, fit to be kept: Postgres keeps no NUL in text."""

from collections.abc import Mapping

from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused

MAX_TEXT = 2000


def tidy(text: str) -> str:
    """What somebody wrote, without a NUL and without space around it."""
    return text.replace("\x00", "").strip()


def readable(text: str) -> str:
    """What a machine said, with a sign in the place of each NUL."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def cleaned(text: str, *, what: str = "comment") -> str:
    """A comment by a person, tidy. Raises Refused `validation` when it is too long."""
    text = tidy(text)
    if len(text) > MAX_TEXT:
        raise Refused("validation", Reason("text-too-long", what=what, most=MAX_TEXT))
    return text


def cleaned_reasons(reasons: Mapping[str, str] | None) -> dict[str, str]:
    """Reasons by guard code, tidy. Raises Refused `validation`."""
    return {code: cleaned(reason, what="reason") for code, reason in (reasons or {}).items()}
