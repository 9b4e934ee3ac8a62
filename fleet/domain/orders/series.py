"""Grouping of repeated timeline entries into one line, and whether an agent verifies the signatures of orders."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from fleet.domain.orders.next_step import is_busy
from fleet.domain.reasons import Reason
from fleet.domain.timeline import EntryKind
from fleet.domain.times import close_together

OF_ORDERS = (EntryKind.ORDER_OFFERED, EntryKind.ORDER_DELIVERED, EntryKind.ORDER_ANSWERED)
# One answer is no series.
LEAST = 2


class Line(Protocol):
    """The attributes of a timeline entry that are needed to group entries."""

    @property
    def id(self) -> int: ...
    @property
    def at(self) -> datetime: ...
    @property
    def kind(self) -> EntryKind: ...
    @property
    def actor(self) -> str: ...
    @property
    def approval_id(self) -> int | None: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Series:
    """Several timeline entries that are shown as one line.

    `id` is the id of the entry that is listed first. `count` is the number of Azure's answers, or of entries.
    """

    id: int
    count: int
    first_at: datetime
    last_at: datetime
    text: Reason

    @property
    def key(self) -> str:
        """A key that stays the same when more entries are added to the group."""
        return f"{self.text.code}-{self.first_at.timestamp():.3f}-{self.text.values.get('host', '')}"


def series_of(lines: Sequence[Line]) -> dict[int, Series]:
    """Group the entries about orders while Azure answered "try again later", one group for each approval.

    Return the group of each such entry, by the entry's id.
    """
    answered: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        if line.approval_id is not None and _is_busy(line):
            answered[line.approval_id].append(line)
    approvals = {
        str(line.data["order"]): approval_id
        for approval_id, found in answered.items()
        if len(found) >= LEAST
        for line in found
    }
    begun: dict[int, Series] = {}
    series: dict[int, Series] = {}
    for line in lines if approvals else ():
        approval_id = approvals.get(str(line.data.get("order"))) if line.kind in OF_ORDERS else None
        if approval_id is not None:
            begun[approval_id] = begun.get(approval_id) or _series(line.id, answered[approval_id])
            series[line.id] = begun[approval_id]
    return series


def _is_busy(line: Line) -> bool:
    if line.kind is not EntryKind.ORDER_ANSWERED or "order" not in line.data:
        return False
    status = line.data.get("azure_status")
    # Another release may have written it.
    return isinstance(status, int) and is_busy(line.data.get("outcome", ""), status)


def _series(line_id: int, answered: Sequence[Line]) -> Series:
    in_turn = sorted(answered, key=lambda line: line.at)
    first, last = in_turn[0].at, in_turn[-1].at
    statuses = Counter(line.data["azure_status"] for line in in_turn)
    machines = list(dict.fromkeys(str(line.data.get("machine", "")) for line in in_turn))
    answers = [list(pair) for pair in statuses.items()]
    text = Reason("azure-was-busy", answers=answers, first=first, last=last, machines=machines)
    return Series(id=line_id, count=len(answered), first_at=first, last_at=last, text=text)


def groups_of(
    lines: Sequence[Line], *, text_of: Callable[[Sequence[Line]], Reason | None], within: timedelta
) -> dict[int, Series]:
    """Group entries, each at most `within` later than the one before. Return the group of each entry, by the entry's
    id.

    `text_of` returns the sentence of a group, or None if its entries are shown separately.
    """
    found: dict[int, Series] = {}
    for group in close_together(lines, at=lambda line: line.at, within=within):
        text = text_of(group)
        if text is not None:
            members = {line.id for line in group}
            # The first of the group as the lines are listed begins the series.
            first = next(line.id for line in lines if line.id in members)
            series = Series(id=first, count=len(group), first_at=group[0].at, last_at=group[-1].at, text=text)
            found |= dict.fromkeys(members, series)
    return found


# Whether an agent checks the signatures of orders, by its stated trusted keys.


class SignatureCheck(StrEnum):
    """Whether an agent verifies the signatures of orders.

    `NO_KEY`: by its settings it verifies nothing, or refuses every order. `STRANGE_KEYS`: it trusts none of the
    backend's keys, and so refuses every order.
    """

    CHECKED = "checked"
    NONE = "none"
    NO_KEY = "no-key"
    STRANGE_KEYS = "strange-keys"


def check_of(trusted: Collection[str] | None, known: Collection[str]) -> SignatureCheck:
    """Return whether an agent verifies signatures. `trusted`: key ids that the agent trusts (None: it does not verify).

    `known`: ids of the backend's keys.
    """
    if trusted is None:
        return SignatureCheck.NONE
    if not trusted:
        return SignatureCheck.NO_KEY
    return SignatureCheck.CHECKED if set(trusted) & set(known) else SignatureCheck.STRANGE_KEYS
