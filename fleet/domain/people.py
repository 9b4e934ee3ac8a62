"""Rights of users: roles from their groups, and scopes that limit a role to certain sets.

A `Place` is what a pattern of a scope, a rule or a no-approval window is compared with.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from fleet.domain.reasons import Reason
from fleet.domain.sets import PROVISIONAL


class Right(StrEnum):
    """Rights: read; approve, claim and hold; be the second person and override blocking guards; administer."""

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
    """A set as scopes, rules and windows match it: kind, name, service and resource group."""

    kind: str
    name: str
    service: str = ""
    resource_group: str = ""


def matches(pattern: str, text: str) -> bool:
    """Return whether the whole text matches the pattern, in any letter case. `*` is any text, `?` any character.

    An empty pattern matches everything.
    """
    if not pattern:
        return True
    return re.fullmatch(pattern_of(pattern), text, re.IGNORECASE | re.DOTALL) is not None


def pattern_of(pattern: str) -> str:
    """Return a pattern with `*` and `?` as a regular expression that Python and Postgres both accept."""
    return "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)


class NamesPlaces(Protocol):
    """An object with three patterns for places: a rule, a no-approval window or a notification route."""

    @property
    def set_pattern(self) -> str: ...
    @property
    def service(self) -> str: ...
    @property
    def resource_group(self) -> str: ...


def lies_in(place: Place, what: NamesPlaces) -> bool:
    """Return whether a place matches all three patterns. An empty pattern matches everything."""
    return (
        matches(what.set_pattern, place.name)
        and matches(what.service, place.service)
        and matches(what.resource_group, place.resource_group)
    )


def speaks_of(what: NamesPlaces, place: Place | None) -> bool:
    """Return whether the patterns of a rule or route match a place. Without patterns every place matches, also None.

    With patterns, a provisional set and a missing place never match.
    """
    if not (what.set_pattern or what.service or what.resource_group):
        return True
    return place is not None and place.kind != PROVISIONAL and lies_in(place, what)


def in_scopes(place: Place, scopes: tuple[tuple[str, str], ...]) -> bool:
    """Return whether a user with these scopes, each (kind, pattern), may act in this place. No scopes mean everywhere.

    A provisional set is outside every scope.
    """
    if not scopes:
        return True
    if place.kind == PROVISIONAL:
        return False
    values = {"name": place.name, "service": place.service, "resource_group": place.resource_group}
    return any(bool(values.get(kind)) and matches(pattern, values[kind]) for kind, pattern in scopes)


@dataclass(frozen=True, slots=True)
class Rights:
    """Rights of a user: `groups` give the actions, `scopes` (each (kind, pattern)) limit them to places.

    Scopes limit reading only if SCOPED_READ_ACCESS is set (`fleet.projections.visibility`).
    """

    groups: frozenset[str] = frozenset()
    scopes: tuple[tuple[str, str], ...] = ()

    @property
    def role(self) -> str:
        """The user's highest group in the order of `ROLES`; empty for a user without a group."""
        return next((group for group in reversed(GROUPS) if group in self.groups), "")

    def may(self, right: Right, place: Place | None = None) -> bool:
        """Return whether the user has this right in this place, or anywhere if `place` is None. Admins act
        everywhere.
        """
        return self.missing(right, place) is None

    def decides(self, place: Place, *, proposed: bool) -> bool:
        """Return whether a pending decision in this place is shown as one for this user.

        A `proposed` decision needs the right of a second person. A user without any right to decide sees all decisions.
        """
        return not self.may(Right.APPROVE) or self.may(Right.OVERRIDE if proposed else Right.APPROVE, place)

    def missing(self, right: Right, place: Place | None = None, *, doing: str = "this") -> Reason | None:
        """Return the missing right or scope as a reason; None if the user has both. `doing` is the action in the
        sentence.
        """
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
    """Access of a caller. `person` is the row id of the account; `scopes` are those of the API token, None for a
    session.
    """

    person: int
    rights: Rights
    scopes: tuple[str, ...] | None = None


# Key in a request's environment for the access of the user who receives a long answer; no header can have this name.
SENT_WITH = "drydock.sent_with"
