"""Rights and places: roles by the groups of a person, and scopes over the places of sets.

A place is matched by the patterns of a scope, a rule or a no-approval window.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from fleet.domain.reasons import Reason
from fleet.domain.sets import PROVISIONAL


class Right(StrEnum):
    """A right: read; approve, claim and hold; be the second person and override blocking guards; administer."""

    READ = "read"
    APPROVE = "approve"
    OVERRIDE = "override"
    ADMINISTER = "administer"


VIEWER, OPERATOR, APPROVER, ADMIN = "viewer", "operator", "approver", "admin"
# Each group may do what those before it may, and this.
ROLES: dict[str, Right] = {
    VIEWER: Right.READ,
    OPERATOR: Right.APPROVE,
    APPROVER: Right.OVERRIDE,
    ADMIN: Right.ADMINISTER,
}
GROUPS = tuple(ROLES)
# Stands for the time zone of whichever browser a page is read in.
BROWSER = "browser"
# The scopes of tokens, with the right that the user needs for each.
TOKEN_SCOPES = {"read": Right.READ, "approve": Right.APPROVE, "admin": Right.ADMINISTER}


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a set, as scopes, rules and windows match it."""

    kind: str
    name: str
    service: str = ""
    resource_group: str = ""


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches the pattern, without case; * is any text, ? any character. An empty pattern
    matches everything.
    """
    if not pattern:
        return True
    return re.fullmatch(pattern_of(pattern), text, re.IGNORECASE | re.DOTALL) is not None


def pattern_of(pattern: str) -> str:
    """Return the pattern as a regular expression, for Python and Postgres alike."""
    return "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)


def lies_in(place: Place, *, set_pattern: str, service: str, resource_group: str) -> bool:
    """Whether a place is among those that these three patterns name; empty ones match every place."""
    return (
        matches(set_pattern, place.name)
        and matches(service, place.service)
        and matches(resource_group, place.resource_group)
    )


class NamesPlaces(Protocol):
    """Objects that name places by three patterns: rules and routes."""

    @property
    def set_pattern(self) -> str: ...
    @property
    def service(self) -> str: ...
    @property
    def resource_group(self) -> str: ...


def speaks_of(what: NamesPlaces, place: Place | None) -> bool:
    """Whether a place is among the named ones. A filter that names places never matches a provisional set or a missing
    place.
    """
    if not (what.set_pattern or what.service or what.resource_group):
        return True
    return (
        place is not None
        and place.kind != PROVISIONAL
        and lies_in(place, set_pattern=what.set_pattern, service=what.service, resource_group=what.resource_group)
    )


def in_scopes(place: Place, scopes: tuple[tuple[str, str], ...]) -> bool:
    """Whether a user with these (kind, pattern) scopes may act there. No scopes means everywhere; a provisional set is
    outside of every scope.
    """
    if not scopes:
        return True
    if place.kind == PROVISIONAL:
        return False
    values = {"name": place.name, "service": place.service, "resource_group": place.resource_group}
    return any(bool(values.get(kind)) and matches(pattern, values[kind]) for kind, pattern in scopes)


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of a person: `groups` state the actions, `scopes` ((kind, pattern) each) the places. Reading is
    narrowed to them only with SCOPED_READ_ACCESS (`fleet.projections.visibility`).
    """

    groups: frozenset[str] = frozenset()
    scopes: tuple[tuple[str, str], ...] = ()

    @property
    def role(self) -> str:
        """The group that counts, which is the last in `ROLES`; empty for a user without a group."""
        return next((group for group in reversed(GROUPS) if group in self.groups), "")

    def may(self, right: Right, place: Place | None = None) -> bool:
        """Anywhere at all, or in this place. Admins act everywhere."""
        return self.missing(right, place) is None

    def decides(self, place: Place, *, proposed: bool) -> bool:
        """Whether a decision in this place is for this user; one that is `proposed` is for a second person. A user
        without any right to decide sees everything.
        """
        return not self.may(Right.APPROVE) or self.may(Right.OVERRIDE if proposed else Right.APPROVE, place)

    def missing(self, right: Right, place: Place | None = None, *, doing: str = "this") -> Reason | None:
        """Return the missing right or scope; None where nothing is missing. `doing` is the intended action."""
        ladder = list(ROLES.values())
        if not any(ROLES[group] in ladder[ladder.index(right) :] for group in self.groups if group in ROLES):
            return Reason("right-missing", right=right.value, doing=doing)
        if place is None or ADMIN in self.groups or in_scopes(place, self.scopes):
            return None
        if place.kind == PROVISIONAL:
            return Reason("scope-unnamed-set")
        return Reason("scope-ends-before", set=place.name, scopes=[list(scope) for scope in self.scopes])


@dataclass(frozen=True, slots=True)
class Access:
    """The access of a caller: the row id of the account, its rights, and the scopes of the call's token; None for a
    session.
    """

    person: int
    rights: Rights
    scopes: tuple[str, ...] | None = None


# Key in a request's environment for the access of the user who receives a long answer; no header can have this name.
SENT_WITH = "drydock.sent_with"
