"""Where something lies: sets by name pattern, service or resource group. Scopes, rules and windows match by it."""

import re
from dataclasses import dataclass

PROVISIONAL = "provisional"


@dataclass(frozen=True, slots=True)
class Place:
    """What scopes, rules and windows look at in a set."""

    kind: str
    name: str
    service: str = ""
    resource_group: str = ""


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text is as the pattern says, without case; * is any text, ? any character. An empty pattern
    matches everything.
    """
    if not pattern:
        return True
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    return re.fullmatch("".join(parts), text, re.IGNORECASE | re.DOTALL) is not None


def lies_in(place: Place, *, set_pattern: str, service: str, resource_group: str) -> bool:
    """Whether a place is among those that these three patterns name; empty ones match every place."""
    return (
        matches(set_pattern, place.name)
        and matches(service, place.service)
        and matches(resource_group, place.resource_group)
    )


def in_scopes(place: Place, scopes: tuple[tuple[str, str], ...]) -> bool:
    """Whether somebody with these (kind, pattern) scopes may act there. None at all is everywhere; a set that nobody
    has named yet is no place for people with scopes.
    """
    if not scopes:
        return True
    if place.kind == PROVISIONAL:
        return False
    told = {"name": place.name, "service": place.service, "resource_group": place.resource_group}
    return any(bool(told.get(kind)) and matches(pattern, told[kind]) for kind, pattern in scopes)
