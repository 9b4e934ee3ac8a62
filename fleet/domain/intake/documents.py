"""Reading one answer of the metadata service. Nothing here raises: what cannot be read is flagged."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from fleet.domain.events.statement import EventStatement
from fleet.domain.events.types import canonical_type
from fleet.domain.reason import Reason
from fleet.domain.texts import tidy
from fleet.domain.times import in_bounds

# What can stand in an address and a file name as it is. Azure's are GUIDs; a document that names its events otherwise
# must not make the pages that link to them fail.
EVENT_ID = r"[A-Za-z0-9{][A-Za-z0-9._:{}-]{0,199}"
UNUSABLE = Reason("event-id-unusable")
# A longer body is kept as far as that, and what is so long counts as cut.
MOST_BYTES = 1024 * 1024
# So many events of one document are read, which is more than all that is ever made of them
# (`fleet.domain.intake.bounds`); of the rest those are read that are asked for.
MOST_READ = 2000
# Read in any case; another status is shown as it is.
STATUSES = {"scheduled": "Scheduled", "started": "Started"}


@dataclass(frozen=True, slots=True)
class Listing(EventStatement):
    """One event as one document lists it.

    `event_id` is upper case, `spelled` as received. `flags` tell what was odd.
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
    """`readable` is False when the body was no document at all; then it says nothing about any event. `rest` are
    elements of `Events` that were not read.
    """

    readable: bool
    incarnation: int | None = None
    listings: tuple[Listing, ...] = ()
    flags: tuple[Reason, ...] = ()
    rest: tuple[Any, ...] = ()

    def with_rest(self, wanted: Callable[[str, Any], bool]) -> "Document":
        """The same with those of the rest read whose EventId and `Resources` are wanted."""
        known = {listing.event_id for listing in self.listings}
        more: dict[str, Listing] = {}
        for item in self.rest:
            if isinstance(item, dict) and wanted(str(item.get("EventId")).strip().upper(), item.get("Resources")):
                listing = read_listing(item)
                if listing is not None and listing.event_id not in known:
                    more.setdefault(listing.event_id, listing)
        return replace(self, listings=(*self.listings, *more.values())) if more else self


def read_time(text: Any) -> datetime | None:
    """RFC 1123 (a wrong weekday is accepted) or ISO 8601, as stated; None when empty or unreadable."""
    if not isinstance(text, str) or not text.strip():
        return None
    text = text.strip()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        # The weekday is not compared with the date: some emitters get it wrong.
        day, comma, rest = text.partition(",")
        try:
            moment = parsedate_to_datetime(rest.strip() if comma else day)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def read_integer(value: Any) -> int | None:
    """An integer, also as digits in a string; None for anything else or beyond 63 bits."""
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


def _text(value: Any, limit: int) -> str:
    if not isinstance(value, str):
        return ""
    # UTF-8 has no half of a surrogate pair.
    whole = value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return tidy(whole)[:limit]


def _clean_name(name: str) -> str:
    # 2017-03-01 put an underscore before the names of machines.
    return name.removeprefix("_")


def _resources(named: Any, flags: list[str]) -> tuple[str, ...]:
    """The names, each once; in `flags` goes what is wrong with the list."""
    if not isinstance(named, list):
        if named is not None:
            flags.append("resources-no-list")
        return ()
    resources: dict[str, str] = {}
    for item in named:
        name = _clean_name(_text(item, 200))
        if name:
            resources.setdefault(name.lower(), name)
    if len(named) > len(resources):
        flags.append("resources-unreadable")
    return tuple(resources.values())


def read_listing(raw: Any) -> Listing | None:
    """One element of `Events`; None when it has no usable EventId."""
    if not isinstance(raw, dict):
        return None
    spelled = _text(raw.get("EventId"), 201)
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
    stated_status = _text(raw.get("EventStatus"), 50)
    status = STATUSES.get(stated_status.lower(), stated_status)
    if status not in STATUSES.values():
        flags.append("status-unknown" if status else "status-missing")
    resource_type = _text(raw.get("ResourceType"), 100)
    if resource_type and resource_type != "VirtualMachine":
        flags.append("resource-type-unknown")
    return Listing(
        event_id=spelled.upper(),
        spelled=spelled,
        status=status,
        event_type=canonical_type(_text(raw.get("EventType"), 50)),
        resource_type=resource_type,
        resources=resources,
        not_before=not_before,
        description=_text(raw.get("Description"), 2000),
        source=_text(raw.get("EventSource"), 50),
        duration_seconds=duration,
        flags=tuple(Reason(code, event=spelled, status=status, resource_type=resource_type) for code in flags),
    )


def read_document(body: bytes) -> Document:
    """Understand one body. An empty one is unreadable: it says nothing, least of all that there are no events."""
    if not body.strip():
        return Document(readable=False, flags=(Reason("body-empty"),))
    if len(body) >= MOST_BYTES:
        # Also where what is left of it could be read: nobody knows what else it said.
        return Document(readable=False, flags=(Reason("body-cut"),))
    try:
        raw = json.loads(body.decode("utf-8-sig", errors="replace"), strict=False)
    except (ValueError, RecursionError):
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
        else:
            listings[listing.event_id] = listing
            flags += listing.flags
    return Document(
        readable=True, incarnation=incarnation, listings=tuple(listings.values()), flags=tuple(flags), rest=rest
    )
