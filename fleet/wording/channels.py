"""Words of channels and routes: what a route says, what is wrong with one, and what the timeline tells of them."""

from collections.abc import Iterator, Mapping
from typing import Any

from fleet.domain.messages.moments import Moment
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.policy import conditions, one_of
from fleet.wording.reader import Reader
from fleet.wording.sentences import EntryText, Sentence, listed

Values = Mapping[str, Any]

# What a moment is called where routes name it.
MOMENT_LABELS: dict[Moment, str] = {
    Moment.FIRST_SEEN: "first seen",
    Moment.CHANGED: "changed",
    Moment.CLAIMED: "claimed",
    Moment.UNCLAIMED: "nobody is on it",
    Moment.UNDECIDED: "nobody has decided",
    Moment.PROPOSED: "proposed",
    Moment.DECIDED: "decided",
    Moment.WITHDRAWN: "withdrawn",
    Moment.OVERDUE: "overdue",
    Moment.REFUSED: "refused or lapsed",
    Moment.STARTED: "started",
    Moment.ENDED: "ended",
    Moment.SOURCE_QUIET: "a source went quiet",
    Moment.SET_UNWATCHED: "a set lost its watchers",
    Moment.COVERAGE_OPENED: "a blind spot opened",
    Moment.COVERAGE_CLOSED: "a blind spot closed",
    Moment.MAINTENANCE_ANNOUNCED: "cache maintenance announced",
    Moment.MAINTENANCE_ENDED: "cache maintenance over",
    Moment.AUDIT_FAILED: "audit verification failed",
    Moment.STORAGE_TROUBLE: "disk or retention trouble",
    Moment.CHANNEL_FAILING: "a channel fails",
    Moment.CHANNEL_WORKS: "a channel works again",
}
ALL_CHANNELS = "every channel of the installation"


def moment_label(moment: str) -> str:
    """What a moment is called; one that another release made up is its code."""
    try:
        return MOMENT_LABELS[Moment(moment)]
    except ValueError:
        return moment


def route(values: Values, reader: Reader) -> str:
    """The whole route in one sentence."""
    return f"To {values.get('channel') or ALL_CHANNELS}: {'; '.join([_when(values), *_of_what(values)])}."


def _when(values: Values) -> str:
    if "unclaimed_after_seconds" in values:
        after = times.duration(values["unclaimed_after_seconds"])
        return f"{after} after the first sighting, while nobody is on it"
    if "before_decide_by_seconds" in values:
        before = times.duration(values["before_decide_by_seconds"])
        return f"{before} before the time to decide by, while nobody has decided"
    moments = values.get("moments")
    return listed(map(moment_label, _in_order(moments))) if moments else "everything"


def _in_order(moments: list[str]) -> list[str]:
    """As things happen, and not by their letters."""
    order = [moment.value for moment in Moment]
    return sorted(moments, key=lambda moment: order.index(moment) if moment in order else len(order))


def _of_what(values: Values) -> Iterator[str]:
    types, severities = values.get("event_types"), values.get("severities")
    found = [f"{one_of(types)} events"] if types else []
    found += conditions(values)
    if severities:
        found.append(f"where it is {one_of(severities)}")
    if found:
        yield ", ".join(found)


SENTENCES: dict[str, Sentence] = {
    "route": route,
}
# Why a channel did not take something, by our own codes; a receiver's own answer stands beside it.
ERRORS: dict[str, str] = {
    "status": "it answered with an error",
    "redirect": "it sent us elsewhere, and redirects are not followed",
    "refused": "it refused the message",
    "refused_address": "its address is one that messages may not reach",
    "bad_url": "its URL cannot be used",
    "bad_job": "something in the message cannot be sent",
    "too_large": "the message is too large",
    "dns": "its name could not be resolved",
    "connect": "it could not be reached",
    "tls": "no safe connection: its certificate could not be verified, or it offers no TLS",
    "no_answer": "it ended the connection without an answer",
    "timeout": "it did not answer in time",
    "died": "the sender was ended while it waited",
    "busy": "too much was being sent at once",
    "no_mail_server": "no mail server is set (`EMAIL_HOST`)",
    "some_refused": "not every recipient was taken",
    "unknown": "nobody knows: whoever sent it did not live to say",
    "own-failure": "something went wrong in Drydock: its log says what",
}
# What it was about an address or a URL, after a colon.
ABOUT: dict[str, str] = {
    "azure": "Azure's own",
    "unspecified": "no address",
    "loopback": "this machine",
    "link_local": "link-local",
    "private": "a private network",
    "shared": "a shared network",
    "unique_local": "a private network",
    "multicast": "multicast",
    "broadcast": "broadcast",
    "documentation": "reserved for documentation",
    "reserved": "reserved",
    "tunnel": "a tunnel",
    "port": "a port that is none of the web or of mail",
    "not_literal": "no address",
    "beside_proxy": "not by the proxy",
    "schema": "a service that is not allowed",
    "parameter": "a parameter that is not allowed",
    "unknown_service": "no service is known by it",
    "incomplete": "something is missing in it",
}


def error_words(code: str) -> str:
    """What went wrong, in a few words; a code of another release stays one."""
    error, _, about = code.partition(":")
    words = ERRORS.get(error, error)
    return f"{words} ({ABOUT.get(about, about)})" if about else words


def _failing(row: TimelineRow, reader: Reader) -> str:
    if row.data.get("gone"):
        return f"The channel {row.data['name']} says that it is gone, and is switched off."
    return f"The channel {row.data['name']} takes nothing: {error_words(row.data['error'])}."


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.CHANNEL_FAILING: _failing,
    EntryKind.CHANNEL_WORKS: lambda row, reader: f"The channel {row.data['name']} works again.",
}
