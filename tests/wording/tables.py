"""The tables of `fleet.wording` as lines: every label, and every sentence with example values."""

import pkgutil
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from typing import Any

from fleet import wording
from fleet.domain import event_types
from fleet.notifications import text
from fleet.notifications.notification_types import NotificationType
from fleet.wording import say
from fleet.wording.sentences import fill
from fleet.wording.times import API
from tests.wording.examples import EXAMPLES, ROW, SPECIAL

# Sentences have a part of their own, and the others are no texts of ours.
ELSEWHERE = {"_BY_NAME", "STATE_BADGES", "STATES", "SENTENCES", "ENTRIES", "COLUMNS", "ENTITIES", "PATHS"}
NO_TEXT = {"icon", "tone", "severity"}
# Templates of which an example shows more than the template itself.
DEPENDS = re.compile(r":(\?|[A-Z]|event}|within|sentences}|commas}|some |[^:}]*/)")


class Probe(dict[str, Any]):
    """Example values, each taken over when it is read for the first time."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.examples: dict[str, tuple[Any, ...]] = {**EXAMPLES, **SPECIAL.get(code, {})}

    def __missing__(self, name: str) -> Any:
        if name not in self.examples:
            raise LookupError(f"add an example of {name!r} to tests/wording/examples.py")
        self[name] = self.examples[name][0]
        return self[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self.examples else default


def variants(code: str, text: Callable[[dict[str, Any]], str]) -> list[str]:
    """Return the sentences with the first example of each value, and with each other example of one of them."""

    def worded(values: Probe) -> str:
        while True:
            try:
                return text(values)
            except KeyError as missing:
                # A part of the sentence reads its values out of a copy.
                if missing.args[0] in values or missing.args[0] not in values.examples:
                    raise
                values[missing.args[0]] = values.examples[missing.args[0]][0]

    if "given" in SPECIAL.get(code, {}):
        return [text(values) for values in SPECIAL[code]["given"]]
    first = Probe(code)
    found = [worded(first)]
    for name in list(first):
        for other in first.examples[name][1:]:
            values = Probe(code)
            values.update({**first, name: other})
            found.append(worded(values))
    return found


def lines(code: str, texts: list[str]) -> Iterator[str]:
    yield from (f"{code}: {text}" for text in dict.fromkeys(texts))


def sentences() -> Iterator[str]:
    for code, sentence in sorted(say.SENTENCES.items()):
        if not isinstance(sentence, str):
            yield from lines(code, variants(code, lambda values, words=sentence: words(values, API)))
        elif DEPENDS.search(sentence):
            yield from lines(code, variants(code, lambda values, words=sentence: fill(words, values, API)))
        else:
            yield from lines(code, [sentence])


def entries() -> Iterator[str]:
    for kind, entry in sorted(say.ENTRIES.items()):
        if isinstance(entry, str) and not DEPENDS.search(entry):
            yield from lines(kind.value, [entry])
            continue
        rows = SPECIAL.get(f"entry {kind.value}", {}).get("rows", ({},))
        found: list[str] = []
        for row in rows:

            def text(values: dict[str, Any], words: Any = entry, row: Any = row, kind: Any = kind) -> str:
                made = replace(ROW, kind=kind, data=values, **row)
                if not isinstance(words, str):
                    return str(words(made, API))
                more = {"why": made.why, "before": made.before, "after": made.after, "event_id": made.event_id}
                return fill(words, ChainMap({**more, "actor": made.actor}, values), API)

            found += variants(f"entry {kind.value}", text)
        yield from lines(kind.value, found)


def leaves(name: str, value: Any) -> Iterator[str]:
    """The texts in a constant, each after the way that leads to it."""
    if isinstance(value, str):
        yield f"{name}: {value}"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            shown = " ".join(key) if isinstance(key, tuple) else getattr(key, "value", getattr(key, "__name__", key))
            yield from leaves(f"{name} {shown}", item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in (field for field in fields(value) if field.name not in NO_TEXT):
            yield from leaves(f"{name} {field.name}", getattr(value, field.name))
    elif isinstance(value, tuple | list):
        for number, item in enumerate(value):
            yield from leaves(f"{name} {number}", item)


def tables() -> Iterator[str]:
    core = (import_module(module.name) for module in pkgutil.walk_packages(wording.__path__, "fleet.wording."))
    found: set[str] = set()
    for room in (*core, *say.ROOMS, text, event_types):
        for name, value in vars(room).items():
            if not name.isupper() or name in ELSEWHERE:
                continue
            if isinstance(value, Mapping) and value.items() <= say.SENTENCES.items():
                continue
            found.update(leaves(name, value))
    for each in NotificationType:
        found.update(leaves(f"NotificationType {each.value}", (each.declared.label, each.declared.headline)))
    # In alphabetical order, whichever module defines them.
    yield from sorted(found)
