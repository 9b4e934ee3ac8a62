"""What messages out are about, by name."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.domain.shapes import like
from fleet.models import AvailabilitySet, Cache, Channel, Machine, Maintenance, Message
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.sight import seen


@dataclass(frozen=True, slots=True)
class EventNamed:
    """Enough of an event to name it and lead to it."""

    event_id: str
    event_type: str
    resources: tuple[str, ...]
    set: SetRef
    drill: bool


@dataclass(frozen=True, slots=True)
class Subject:
    """What a message is about. `kind` is `event`, `maintenance`, `cache`, `machine`, `set`, `channel`, or `fleet`;
    `name` is empty for what is not there any more, or out of sight.
    """

    kind: str
    id: int | None = None
    name: str = ""
    event: EventNamed | None = None


def subject(row: Message, names: Mapping[str, str]) -> Subject:
    """What this message (with its event loaded) is about, by the `names` of all that are shown with it."""
    kind, _, number = row.subject.partition(":")
    row_id = int(number) if number.isdecimal() else None
    if row.event is None:
        return Subject(kind, row_id, names.get(row.subject, ""))
    event = like(EventNamed, row.event, set=set_ref(row.event.availability_set))
    return Subject("event", row.event_id, event=event)


# What each kind of subject is called by, and the table that knows.
CALLED: Mapping[str, tuple[Any, str]] = {
    "maintenance": (Maintenance, "cache__host"),
    "cache": (Cache, "host"),
    "machine": (Machine, "resource_name"),
    "set": (AvailabilitySet, "name"),
    "channel": (Channel, "name"),
}


def names(subjects: Iterable[str]) -> dict[str, str]:
    """What each of these is called, as far as it is there and in sight. One query for each kind."""
    wanted: dict[str, set[int]] = defaultdict(set)
    for subject in subjects:
        kind, _, number = subject.partition(":")
        if kind in CALLED and number.isdecimal():
            wanted[kind].add(int(number))
    found = {}
    for kind, ids in wanted.items():
        model, column = CALLED[kind]
        for pk, name in seen(model).filter(pk__in=ids).values_list("pk", column):
            found[f"{kind}:{pk}"] = name
    return found
