"""Words of sessions: in which browser, and how somebody came in."""

from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.sentences import EntryText, Sentence
from fleet.wording.times import Reader

# How somebody came in, by the code that a session keeps.
WAYS = {
    "password": "password",
    "password-factor": "password and second factor",
    "passkey": "passkey",
    "sign-on": "single sign-on",
    "proxy": "a proxy in front",
    "": "before 0.2.0",
}

SENTENCES: dict[str, Sentence] = {
    "session-unknown": "There is no such session, or it has ended.",
}


def new_device(row: TimelineRow, reader: Reader) -> str:
    data = row.data
    where, how = browser(data["browser"], data["system"]), WAYS.get(data["way"], data["way"])
    place = f" from {data['from_address']}" if data["from_address"] else ""
    return f"{data['person']} logged in on a device that was not known: {where}{place}, by {how}."


ENTRIES: dict[EntryKind, EntryText] = {EntryKind.NEW_DEVICE: new_device}


def way(code: str) -> str:
    """How somebody came in; a code of a later release as it is."""
    return WAYS.get(code, code)


def browser(name: str, system: str) -> str:
    """`Firefox on Linux`"""
    return f"{name or 'A browser'} on {system}" if system else name or "An unknown browser"
