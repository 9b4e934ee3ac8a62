"""Rules that hold for every table. No caller changes anything without a login, more rights never allow less, and each
kind of login works only where it belongs. Each rule names the cells that break it.
"""

import itertools
from collections.abc import Callable, Iterable

from tests.access.reasons import ABOUT_ONESELF, EVERY_USER, OWN_RULES, PUBLIC

IN = {"yes", "did"}
# Callers that are not persons, and persons whose login is incomplete, blocked or expired.
STRANGERS = (
    *("anonymous", "half", "blocked", "strange-token", "old-token", "ended-token"),
    *("machine", "key", "join-token", "calendar"),
)
# Each may all that the one before may.
LADDER = ("groupless", "viewer", "operator", "approver", "admin", "superuser")
NARROWED = (("elsewhere-narrow", "elsewhere"), ("elsewhere", "here"), ("here", "operator"), ("unproved", "operator"))
OF_A_PERSON = (
    ("viewer-token", "viewer"),
    ("service-token", "operator"),
    ("read-token", "admin"),
    ("approve-token", "admin"),
    ("admin-token", "admin"),
)
READERS = ("viewer", "viewer-token", "read-token")
OTHER_SIGN_IN_METHODS = ("by-provider", "by-proxy")
MACHINES = ("join-token", "machine", "key", "revoked-machine", "revoked-key")
NOT_MACHINES = (
    *("groupless", "blocked", "viewer", "admin", "read-token", "approve-token", "ended-token", "calendar"),
    *("strange-token", "revoked-machine", "revoked-key"),
)

# Area, route, method, and the cells by column.
Line = tuple[str, str, str, dict[str, str]]


def shown(line: Line, *columns: str) -> str:
    area, route, method, cells = line
    return f"{area}: {method} {route}: " + ", ".join(f"{column} {cells[column]}" for column in columns)


def reads(line: Line) -> bool:
    return line[2] in ("GET", "HEAD")


def named(line: Line) -> tuple[str, str]:
    return line[2], line[1]


def is_in(line: Line, column: str) -> bool:
    return line[3].get(column) in IN


def more_than(line: Line, column: str, other: str) -> bool:
    """Return whether `column` is admitted where `other` is not. A column that a table lacks is never admitted."""
    return is_in(line, column) and not is_in(line, other)


def only_listed_routes_are_open_to_anonymous_callers(lines: Iterable[Line]) -> list[str]:
    return [shown(line, "anonymous") for line in lines if is_in(line, "anonymous") and named(line) not in PUBLIC]


def no_stranger_does_anything(lines: Iterable[Line]) -> list[str]:
    return [
        shown(line, one)
        for line in lines
        if not line[1].startswith("/agent/")
        for one in STRANGERS
        if line[3].get(one) == "did" or (more_than(line, one, "anonymous") and (one, *named(line)) not in OWN_RULES)
    ]


def no_reading_does_anything(lines: Iterable[Line]) -> list[str]:
    return [shown(line, one) for line in lines if reads(line) for one, word in line[3].items() if word == "did"]


def readers_change_what_is_their_own_and_nothing_else(lines: Iterable[Line]) -> list[str]:
    return [
        shown(line, one)
        for line in lines
        if not reads(line) and not line[1].startswith("/agent/")
        for one in READERS
        if (is_in(line, one) and named(line) not in (ABOUT_ONESELF | EVERY_USER | PUBLIC))
        or (line[3].get(one) == "did" and named(line) not in ABOUT_ONESELF)
    ]  # fmt: skip


def who_may_more_may_all_that_others_may(lines: Iterable[Line]) -> list[str]:
    return [
        shown(line, less, more)
        for line in lines
        for less, more in itertools.pairwise(LADDER)
        # Where nothing is asked after the access check, there may be a method less.
        if line[3].get(more, "-") != "-" and more_than(line, less, more)
    ]


def scopes_and_missing_proofs_only_take_away(lines: Iterable[Line]) -> list[str]:
    return [shown(line, less, more) for line in lines for less, more in NARROWED if more_than(line, less, more)]


def a_token_may_no_more_than_its_person(lines: Iterable[Line]) -> list[str]:
    return [
        shown(line, token, person)
        for line in lines
        for token, person in OF_A_PERSON
        if person in line[3] and more_than(line, token, person)
    ]


def rights_do_not_depend_on_the_sign_in_method(lines: Iterable[Line]) -> list[str]:
    return [
        shown(line, "operator", other)
        for line in lines
        for other in OTHER_SIGN_IN_METHODS
        if other in line[3] and line[3][other] != line[3]["operator"] and (other, *named(line)) not in OWN_RULES
        # What asks for a proof asks whom a proxy has signed in, too.
        if not (other == "by-proxy" and line[3][other] == "again" == line[3]["unproved"])
    ]


def machines_call_machine_routes_only(lines: Iterable[Line]) -> list[str]:
    return [
        shown(line, one)
        for line in lines
        if not line[1].startswith("/agent/")
        for one in MACHINES
        if more_than(line, one, "anonymous")
    ]


def machine_routes_reject_users_and_revoked_machines(lines: Iterable[Line]) -> list[str]:
    return [
        shown(line, one)
        for line in lines
        if line[1].startswith("/agent/")
        for one in NOT_MACHINES
        if more_than(line, one, "anonymous")
    ]


RULES: tuple[Callable[[Iterable[Line]], list[str]], ...] = (
    only_listed_routes_are_open_to_anonymous_callers,
    no_stranger_does_anything,
    no_reading_does_anything,
    readers_change_what_is_their_own_and_nothing_else,
    who_may_more_may_all_that_others_may,
    scopes_and_missing_proofs_only_take_away,
    a_token_may_no_more_than_its_person,
    rights_do_not_depend_on_the_sign_in_method,
    machines_call_machine_routes_only,
    machine_routes_reject_users_and_revoked_machines,
)
