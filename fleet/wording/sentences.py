"""Formatting of reasons and entries as sentences from the templates of all modules."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any

from fleet.domain.reasons import Reason
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.badges import BY_KIND
from fleet.wording.times import Reader

# A template in the form of `str.format`, or a function where a sentence depends on its values.
Sentence = str | Callable[[Mapping[str, Any], Reader], str]
# The same for an entry; a template may use any value of the entry's data, and `actor`.
EntryText = str | Callable[[TimelineRow, Reader], str]
# Errors raised by wording if values are missing or of another kind.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
PLAIN = re.compile(r"[\w.:/+-]+")
_STRAIGHT = str.maketrans("“”", '""')
log = logging.getLogger(__name__)


class _Words(Formatter):
    """Formatter of templates with these format specifications:

    `{at:time}` is a time for the reader, `{seconds:span}` a duration, `{names:list}` is `a, b and c`, `{names:commas}`
    is `a, b, c`, `{reasons:sentences}` one sentence after the other, `{names:some}` is `a, b and 3 more` (`some 2`: at
    most two names), `{names:are}` is `a, b are`, `{event:event}` is `Reboot of vm1`, `{why:quoted}` a comment at the
    end of a sentence, `{word:spoken}` text that a machine reported, `{why:in brackets}` the same as ` (why)` unless it
    is empty, `{count:agent is|agents are}` is `1 agent is` (for a list, its length), `{names:has/have}` only the text
    that fits the number, `{ready:?yes|no}` is one of two texts (without `|`, the second is empty), `{name:or none}` is
    a text for an empty value, `{state:WaveState}` the label of a state of that enum. Each text for one case is a
    template.
    """

    def __init__(self, values: Mapping[str, Any], reader: Reader) -> None:
        self.values, self.reader = values, reader

    def parse(self, format_string: Any) -> Any:
        # A text for one case is filled once the case is known: a value in it may contain any character.
        for text, name, spec, conversion in super().parse(format_string):
            yield text, name, spec and spec.replace("{", "{{").replace("}", "}}"), conversion

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("?"):
            yes, *no = re.split(r"\|(?![^{]*\})", format_spec[1:], maxsplit=1)
            return self.vformat(yes if value else "".join(no), (), self.values)
        if "|" in format_spec or "/" in format_spec:
            count = value if isinstance(value, int) else len(value)
            one, sign, many = re.split(r"([|/])", format_spec, maxsplit=1)
            text = counted(count, one, many) if sign == "|" else one if count == 1 else many
            return self.vformat(text, (), self.values)
        if format_spec.startswith("or "):
            return str(value or format_spec.removeprefix("or "))
        if format_spec.startswith("some "):
            return some(value, int(format_spec.removeprefix("some ")))
        if format_spec == "time":
            return times.at(value, self.reader)
        if format_spec in STATES:
            return STATES[format_spec][value].label
        return FORMATS[format_spec](value) if format_spec in FORMATS else str(super().format_field(value, format_spec))


def fill(template: str, values: Mapping[str, Any], reader: Reader) -> str:
    """Return the template filled with these values; times are formatted for this reader."""
    return _Words(values, reader).vformat(template, (), values)


def listed(names: Any) -> str:
    """Return names joined with commas and `and`: `a`, `a and b`, or `a, b and c`."""
    *rest, last = [str(name) for name in names] or [""]
    return f"{', '.join(rest)} and {last}" if rest else last


def quoted(comment: str) -> str:
    """Return a comment in quotation marks, to be added to the end of a sentence; empty without a comment."""
    return f" “{comment}”" if comment else ""


def machine_named(name: str) -> str:
    """Return a machine's name for a sentence, with the word "machine". A machine chooses its own name, which may be
    that of a user.
    """
    return f"machine {name}"


def spoken(text: str) -> str:
    """Return text that a machine reported: in quotation marks, unless it is one plain word."""
    text = " ".join(text.split())
    return text if not text or PLAIN.fullmatch(text) else within_quotes(text)


def within_quotes(text: str) -> str:
    """Return the text in quotation marks, with quotation marks inside it replaced."""
    return f"“{text.translate(_STRAIGHT)}”"


def some(names: Sequence[str], limit: int = 5) -> str:
    """Return the first `limit` names and the number of the others, such as `vm1, vm2 and 3 more`."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def are(names: Sequence[str]) -> str:
    """Return names with the matching verb: `vm1 is`, or `vm1, vm2 are`."""
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 machine`, `3 machines`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def event_named(event: Mapping[str, Any]) -> str:
    """Return the name of an event, such as `Reboot of vm1 and vm2`."""
    return f"{event['type'] or 'event'} of {listed(event['resources']) or 'no named machine'}"


STATES = {kind.__name__: badges for kind, badges in BY_KIND.items()}
FORMATS: dict[str, Callable[[Any], str]] = {
    "span": times.duration,
    "list": listed,
    "commas": ", ".join,
    "sentences": " ".join,
    "some": some,
    "are": are,
    "event": event_named,
    "quoted": quoted,
    "spoken": spoken,
    "within quotes": within_quotes,
    "in brackets": lambda text: f" ({spoken(text)})" if text else "",
}


def say(reason: Reason | str, reader: Reader, tables: Mapping[str, Sentence]) -> str:
    """Return a reason as a sentence, including reasons that it contains. A stored sentence is returned unchanged.

    A reason whose code has no text here (from another release, or forged) is returned as the code.
    """
    if isinstance(reason, str):
        return reason
    try:
        values = worded(reason.values, reader, tables)
        sentence = tables[reason.code]
        return fill(sentence, values, reader) if isinstance(sentence, str) else sentence(values, reader)
    except UNREADABLE:
        log.warning("no words for the reason %s", reason.code, exc_info=True)
        return reason.code


def worded(value: Any, reader: Reader, tables: Mapping[str, Sentence]) -> Any:
    """Return the same value with every reason in it replaced by its sentence."""
    match value:
        case Reason():
            return say(value, reader, tables)
        case Mapping():
            return {name: worded(item, reader, tables) for name, item in value.items()}
        case list() | tuple():
            return [worded(item, reader, tables) for item in value]
    return value
