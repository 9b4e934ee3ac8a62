"""Names for pseudonyms: entries of the timeline say who by the number of an account, and pages say it by name.

Who was forgotten is a pseudonym, also in entries of before 0.2.0, which hold the name itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User

from fleet.domain.actor import ACTOR_KIND, ActorKind, kind_as_told
from fleet.domain.pseudonyms import could_be_name, former, hash_of_name, number_of, pseudonym, rename
from fleet.models import Entry, FormerName
from fleet.projections.sight import seen

# As long as a name can be; a full stop at its end is that of a sentence.
EMPTY: Mapping[str, str] = {}
WORD = re.compile(r"[\w@+-]+(?:\.+[\w@+-]+)*")


@dataclass(frozen=True, slots=True)
class EntryNames:
    """What an entry names, by the names of people as they are known now."""

    actor: str
    actor_kind: ActorKind | None
    # Who answers for the service account that acted; empty where nobody does, and for everybody else.
    actor_owner: str
    before: Any
    after: Any
    data: Any
    text: str


def named(entries: Sequence[Entry]) -> list[EntryNames]:
    """Of each entry what it names. One query for all names, none where nobody is named, and one more where entries of
    before 0.2.0 are among them.
    """
    texts: set[str] = set()
    for entry in entries:
        _of(entry, lambda text: texts.add(text) or text)  # type: ignore[func-returns-value]
        texts.update(WORD.findall(entry.text))
    known, owners = _known(texts)
    return [_of(entry, lambda text: known.get(text, text), owners) for entry in entries]


def keys_of(name: str) -> list[str]:
    """As which actor entries have somebody whom people call so: a person by pseudonym, and by the name before 0.2.0; a
    rule by its name; who was forgotten by what is shown of them. At most two queries.
    """
    numbers = {number for number in [number_of(name.removeprefix("former "))] if number and name == former(number)}
    if not could_be_name(name):
        return [pseudonym(number) for number in numbers] or [name]
    numbers |= set(seen(User).filter(username=name).values_list("pk", flat=True))
    forgotten = seen(FormerName).filter(hash=hash_of_name(name)).exists()
    return [*(pseudonym(number) for number in numbers), *([] if forgotten else [name])]


def called(text: str, most: int = 100) -> list[str]:
    """The pseudonyms of people in whose names this text is, so many at most. One query."""
    rows = seen(User).filter(username__icontains=text).order_by("pk").values_list("pk", flat=True)
    return [pseudonym(number) for number in rows[:most]]


def _of(entry: Entry, name: Callable[[str], str], owners: Mapping[str, str] = EMPTY) -> EntryNames:
    kind = kind_as_told(entry.actor, entry.via, entry.data.get(ACTOR_KIND, ""))
    return EntryNames(
        # A machine calls itself what it likes.
        actor=name(entry.actor) if kind in (ActorKind.PERSON, ActorKind.SERVICE) else entry.actor,
        actor_owner=owners.get(entry.actor, "") if kind is ActorKind.SERVICE else "",
        actor_kind=kind,
        before=rename(entry.kind, entry.before, name),
        after=rename(entry.kind, entry.after, name),
        data=rename(entry.kind, entry.data, name),
        # A sentence of before 0.2.0.
        text=WORD.sub(lambda word: name(word[0]), entry.text) if entry.text else "",
    )


def _known(texts: set[str]) -> tuple[dict[str, str], dict[str, str]]:
    numbers = {number: text for text in texts if (number := number_of(text)) is not None}
    known = {text: former(number) for number, text in numbers.items()}
    owners: dict[str, str] = {}
    if numbers:
        owner = ("service_account__owner__username", "service_account__owner__is_active")
        rows = list(seen(User).filter(pk__in=list(numbers)).values_list("pk", "username", *owner))
        known |= {numbers[number]: name for number, name, *_ in rows}
        owners = {numbers[number]: whose for number, _, whose, may in rows if may}
    hashes = {hash_of_name(text): text for text in texts if could_be_name(text)}
    if hashes:
        found = seen(FormerName).filter(hash__in=list(hashes)).values_list("hash", "number")
        known |= {hashes[one]: former(number) for one, number in found}
    return known, owners
