"""Parsing of metadata documents, limits on what one machine may report, presence, and preparation by hooks."""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from itertools import accumulate
from typing import Any

from fleet.domain.event_types import canonical_type
from fleet.domain.events import EventStatement
from fleet.domain.reasons import Reason
from fleet.domain.states import Presence
from fleet.domain.texts import parse_json, tidy_value
from fleet.domain.times import in_bounds

# Limits on what one machine may report: real machines stay far below, and a hostile one costs the others little.

# Events of one document that do not name its machine: this many, and one for each machine of its set, as when a whole
# scale set is deleted. Azure lists a few.
EVENTS = 100
# This many events that a machine has not listed before are processed at once; the rest by the next ticks.
PORTION = 25
PERIOD = timedelta(hours=1)
# Within the period: caches that no report has named before, and statements of another name, set or `compute`.
NEW_CACHES = 50
NEW_STATEMENTS = 20


@dataclass(frozen=True, slots=True)
class Listed:
    """One event of a document. `own`: the event names the reporting machine; `known`: the machine has listed
    it before.
    """

    event_id: str
    own: bool
    known: bool


@dataclass(slots=True)
class ListedEvents:
    """EventIds of a document: those to process now, those to process later, and those to quarantine."""

    now: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)
    quarantined: set[str] = field(default_factory=set)


def limit_listed_events(listed: Iterable[Listed], *, machines: int, room: int) -> ListedEvents:
    """Divide the events of one document into those to process now, later, or to quarantine.

    `machines` is the number of machines of the set, `room` the number of new events that may be processed now. Known
    events are always processed, because otherwise they would seem gone. Then come events that name the machine, then
    the rest in the order of the document.
    """
    found, others = ListedEvents(), EVENTS + machines
    for one in sorted(listed, key=lambda one: (not one.known, not one.own)):
        if not one.own:
            others -= 1
        if one.known:
            found.now.add(one.event_id)
        elif not one.own and others < 0:
            found.quarantined.add(one.event_id)
        elif room > 0:
            room -= 1
            found.now.add(one.event_id)
        else:
            found.later.add(one.event_id)
    return found


def names(resources: Iterable[str], own: Collection[str]) -> bool:
    """Return whether an event's `Resources` name the machine. `own` are the names of the machine in lower case."""
    return any(name.lower() in own for name in resources)


# Reading one answer of the metadata service. Nothing here raises: what cannot be read is flagged.

# Characters that need no escaping in an address or file name. Azure's are GUIDs; a document that names its events
# otherwise must not make the pages that link to them fail.
EVENT_ID = r"[A-Za-z0-9{][A-Za-z0-9._:{}-]{0,199}"
UNUSABLE = Reason("event-id-unusable")
# A longer body is stored up to this size and counts as cut.
MOST_BYTES = 1024 * 1024
# This many events of one document are read, which is more than are ever used (`fleet.domain.intake`); further ones are
# read on request.
MOST_READ = 2000
# The texts of an event, each with how many characters are kept of it.
TEXTS = {
    "EventId": 201,
    "EventStatus": 50,
    "ResourceType": 100,
    "EventType": 50,
    "Description": 2000,
    "EventSource": 50,
}
# Read in any case; another status is shown as it is.
STATUSES = {"scheduled": "Scheduled", "started": "Started"}
SOURCES = {"platform": "Platform", "user": "User"}


@dataclass(frozen=True, slots=True)
class Listing(EventStatement):
    """One event as one document lists it.

    `event_id` is in upper case, `spelled` is as received. `flags` are the faults in it.
    """

    event_id: str
    spelled: str
    status: str = ""
    flags: tuple[Reason, ...] = ()

    @property
    def started(self) -> bool:
        return self.status == "Started"


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed metadata document.

    `readable` is False if the body was not a document; then it proves nothing about any event. `flags` are the faults
    in it. `rest` are the elements of `Events` beyond the limit, not parsed.
    """

    readable: bool
    incarnation: int | None = None
    listings: tuple[Listing, ...] = ()
    flags: tuple[Reason, ...] = ()
    rest: tuple[Any, ...] = ()

    def with_rest(self, wanted: Callable[[str, Any], bool]) -> "Document":
        """Return the document with those elements of `rest` for which `wanted(event_id, resources)` is true, parsed."""
        known = {listing.event_id for listing in self.listings}
        more: dict[str, Listing] = {}
        for item in self.rest:
            if isinstance(item, dict) and wanted(str(item.get("EventId")).strip().upper(), item.get("Resources")):
                listing = read_listing(item)
                if listing is not None and listing.event_id not in known:
                    more.setdefault(listing.event_id, listing)
        return replace(self, listings=(*self.listings, *more.values())) if more else self


EARLY_YEAR = re.compile(r"\b0\d{3}\b")


def read_time(text: Any) -> datetime | None:
    """Parse a time in RFC 1123 (also with a wrong weekday) or ISO 8601; UTC if it has no zone. None if empty or
    unreadable.
    """
    if not isinstance(text, str) or not text.strip():
        return None
    text = text.strip()
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        # The weekday is not compared with the date: some emitters get it wrong.
        day, comma, rest = text.partition(",")
        if EARLY_YEAR.search(text):
            # The library reads such a year, a sender's word for no time, as one of this century.
            return None
        try:
            at = parsedate_to_datetime(rest.strip() if comma else day)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def read_integer(value: Any) -> int | None:
    """Return an integer, also from digits in a string; None for any other value, or beyond 64 bits."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip()
        if not text.isascii() or not text.lstrip("-").isdigit() or len(text) > 19:
            return None
        value = int(text) if text.count("-") <= 1 else None
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    return None


def _resources(named: Any, flags: list[str]) -> tuple[str, ...]:
    """Return the machine names in `Resources` without duplicates, and append faults of the list to `flags`."""
    if not isinstance(named, list):
        if named is not None:
            flags.append("resources-no-list")
        # Some tools write a list of one name as the name.
        named = [named] if isinstance(named, str) else []
    resources: dict[str, str] = {}
    for item in named:
        # 2017-03-01 put an underscore before the names of machines.
        name = tidy_value(item, 200).removeprefix("_")
        if name:
            resources.setdefault(name.lower(), name)
    if len(named) > len(resources):
        flags.append("resources-unreadable")
    return tuple(resources.values())


def read_listing(raw: Any) -> Listing | None:
    """Parse one element of `Events`; None if it has no usable EventId."""
    if not isinstance(raw, dict):
        return None
    texts = (tidy_value(raw.get(name), limit) for name, limit in TEXTS.items())
    spelled, stated_status, resource_type, event_type, description, source = texts
    if not re.fullmatch(EVENT_ID, spelled):
        return None
    flags: list[str] = []
    resources = _resources(raw.get("Resources"), flags)
    stated = read_time(raw.get("NotBefore"))
    not_before = in_bounds(stated) if stated is not None else None
    if not_before is None and raw.get("NotBefore"):
        flags.append("not-before-unreadable" if stated is None else "not-before-out-of-bounds")
    duration = read_integer(raw.get("DurationInSeconds"))
    if duration is None and raw.get("DurationInSeconds") is not None:
        flags.append("duration-unreadable")
    if duration is not None and abs(duration) >= 2**31:
        flags.append("duration-out-of-range")
        duration = None
    status = STATUSES.get(stated_status.lower(), stated_status)
    if status not in STATUSES.values():
        flags.append("status-unknown" if status else "status-missing")
    if resource_type and resource_type != "VirtualMachine":
        flags.append("resource-type-unknown")
    return Listing(
        event_id=spelled.upper(),
        spelled=spelled,
        status=status,
        event_type=canonical_type(event_type),
        resource_type=resource_type,
        resources=resources,
        not_before=not_before,
        description=description,
        source=SOURCES.get(source.lower(), source),
        duration_seconds=duration,
        flags=tuple(Reason(code, event=spelled, status=status, resource_type=resource_type) for code in flags),
    )


def read_document(body: bytes) -> Document:
    """Parse the body of a metadata document. An empty body is unreadable: it does not show that there are no events."""
    if not body.strip():
        return Document(readable=False, flags=(Reason("body-empty"),))
    if len(body) >= MOST_BYTES:
        # Also where the remaining part could be read: the missing part is unknown.
        return Document(readable=False, flags=(Reason("body-cut"),))
    try:
        raw = parse_json(body.decode("utf-8-sig", errors="replace"), strict=False)
    except ValueError:
        return Document(readable=False, flags=(Reason("body-no-json"),))
    if not isinstance(raw, dict) or not isinstance(raw.get("Events"), list):
        return Document(readable=False, flags=(Reason("body-no-events"),))
    flags: list[Reason] = []
    incarnation = read_integer(raw.get("DocumentIncarnation"))
    if incarnation is None:
        flags.append(Reason("incarnation-unreadable"))
    listings: dict[str, Listing] = {}
    rest = tuple(raw["Events"][MOST_READ:])
    if rest:
        flags.append(Reason("events-not-read", count=len(rest)))
    for item in raw["Events"][:MOST_READ]:
        listing = read_listing(item)
        if listing is None:
            flags.append(UNUSABLE)
        elif listing.event_id in listings:
            flags.append(Reason("event-listed-twice", event=listing.spelled))
            if listing.started and not listings[listing.event_id].started:
                listings[listing.event_id] = listing
        else:
            listings[listing.event_id] = listing
            flags += listing.flags
    return Document(
        readable=True, incarnation=incarnation, listings=tuple(listings.values()), flags=tuple(flags), rest=rest
    )


# How much is stored of unreadable data: this many bytes an hour of each machine, and of the rest only its size.

BYTES = 8 * 1024 * 1024
ODDITIE_PERIOD = timedelta(hours=1)
# A small one costs its rows.
LEAST = 4096


def cost(size: int) -> int:
    """Return how many bytes one stored body of this size counts against the hourly limit: at least `LEAST`."""
    return max(size, LEAST)


def fits_hourly_limit(before: int, sizes: Iterable[int]) -> list[bool]:
    """Return for each body size whether the body fits into the hourly limit. `before`: bytes already stored in this
    hour.
    """
    return [before + total <= BYTES for total in accumulate(cost(size) for size in sizes)]


# Preparation of a machine for an event, from its hooks' reports.


class Prepared(StrEnum):
    """Preparation of a machine for an event. `planned`: its hooks begin later, or as soon as the start is decided.
    `nothing`: the machine has no prepare hooks and counts as prepared while live.
    """

    UNKNOWN = "unknown"
    PLANNED = "planned"
    PREPARING = "preparing"
    PREPARED = "prepared"
    NOTHING = "nothing"
    FAILED = "failed"
    RECOVERING = "recovering"
    RECOVERED = "recovered"
    RECOVER_FAILED = "recover_failed"


BAD_OUTCOMES = ("failed", "timed-out")


def prepared_of(progress: Any, *, plans: bool = True) -> Prepared:
    """Return the preparation of a machine for an event from the progress of its hooks (the row of it; None: no report).
    `plans`: the plan to prepare later still counts.

    Once the recover phase has an outcome, only that one counts.
    """
    if progress is None:
        return Prepared.UNKNOWN
    recovered = {"running": Prepared.RECOVERING, "succeeded": Prepared.RECOVERED}
    prepared = {"running": Prepared.PREPARING, "succeeded": Prepared.PREPARED, "nothing": Prepared.NOTHING}
    recovered |= dict.fromkeys(BAD_OUTCOMES, Prepared.RECOVER_FAILED)
    prepared |= dict.fromkeys(BAD_OUTCOMES, Prepared.FAILED)
    if plans and progress.prepare_planned_at is not None:
        prepared[""] = Prepared.PLANNED
    return recovered.get(progress.recover_outcome) or prepared.get(progress.prepare_outcome, Prepared.UNKNOWN)


# How present a machine is, from the two times that count.


@dataclass(frozen=True, slots=True)
class Limits:
    """Ages in seconds: below `live` a machine is live, below `late` it is late, up to `gone` it is silent, beyond it is
    gone.
    """

    live: float = 60
    late: float = 600
    gone: float = 86400


# Polls that are farther apart do not prove that there were others between; the trigger of `PollGap` uses the same
# limit.
LEAP = timedelta(minutes=16)

# As it is kept in a narrow row.
NUMBERS = {state: number for number, state in enumerate(Presence)}


def presence_of(
    last_heard_at: datetime | None, last_poll_at: datetime | None, *, revoked: bool, now: datetime, limits: Limits
) -> Presence:
    """Return the presence of a machine from the older of two times: the last report, and the last successful poll of
    Azure.

    A machine that never reported is `expected`. A machine that reported but never polled successfully is `silent`.
    """
    if revoked:
        return Presence.GONE
    if last_heard_at is None:
        return Presence.EXPECTED
    heard = (now - last_heard_at).total_seconds()
    if heard > limits.gone:
        return Presence.GONE
    if last_poll_at is None:
        return Presence.SILENT
    age = max(heard, (now - last_poll_at).total_seconds())
    if age < limits.live:
        return Presence.LIVE
    if age < limits.late:
        return Presence.LATE
    if age <= limits.gone:
        return Presence.SILENT
    return Presence.GONE


# Limits on how often a machine's agent may begin a new spool on the backend's request.

# Two agents that use one identity would otherwise make each other restart without end.
SETTLES = timedelta(seconds=60)
MOST_A_DAY = 24
# This many within a day are unusual, and shown.
MANY_A_DAY = 5


def may_restart_spool(*, begun: int, since: timedelta) -> bool:
    """Return whether a machine's agent may begin a new spool now. `begun`: spools that it began in the last day;
    `since`: time since the newest of them began.
    """
    return since >= SETTLES and begun < MOST_A_DAY
