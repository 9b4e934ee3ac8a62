"""Actors: one value through every operation, from the edge to the timeline."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from fleet.domain.pseudonyms import pseudonym
from fleet.domain.reasons import Reason

# Where an entry's data state the kind of actor, if name and way of access do not imply it: a machine that is named
# Azure.
ACTOR_KIND = "actor_kind"
# Where the META of a request keeps its id, for the actor that edges make of it.
REQUEST_ID = "drydock.request_id"


class ActorKind(StrEnum):
    """The kind of an actor.

    `person`: by page, API or command line with a name; `service`: a service account by its token; `rule`: a standing
    decision; `machine`: an agent; `azure`; `command`: a user of the server's command line; `drydock`: the backend
    itself.
    """

    PERSON = "person"
    SERVICE = "service"
    RULE = "rule"
    MACHINE = "machine"
    AZURE = "azure"
    COMMAND = "command"
    DRYDOCK = "drydock"


@dataclass(frozen=True, slots=True)
class Actor:
    """An actor: name, kind, way of access, and reason.

    `person` is the account behind an act of a person or a service account (None for every other kind), `rule` the
    rule's row with its `wording`. `via` is `page`, `api`, `slack`, `pagerduty`, `rule`, `command`, `agent` or `relay`.
    `token_name` names the token that the call carried, or the channel that it came through, `token` is that token's row
    (None for a session), `request_id` and `address` identify the request.
    """

    kind: ActorKind
    name: str
    via: str
    person: Any = None
    rule: Any = None
    wording: Reason | str = ""
    token_name: str = ""
    why: str = ""
    request_id: str = ""
    address: str = ""
    # Whether the user has recently verified their identity in this session.
    proved: bool = False
    token: Any = None

    @property
    def kept_as(self) -> str:
        """The name in a timeline entry: of a person the pseudonym, of every other actor the name."""
        return pseudonym(self.person.pk) if self.person is not None else self.name

    def because(self, why: str) -> "Actor":
        """Return the actor with this reason."""
        return replace(self, why=why)


DRYDOCK = Actor(ActorKind.DRYDOCK, "Drydock", "relay")
AZURE = Actor(ActorKind.AZURE, "Azure", "agent")
COMMAND_LINE = Actor(ActorKind.COMMAND, "the command line", "command")


def machine(name: str) -> Actor:
    """The agent of the machine of this resource name."""
    return Actor(ActorKind.MACHINE, name, "agent")


def person(account: Any, via: str, **known: Any) -> Actor:
    """Return a person as actor, by the account behind the page, the call or the command; `known` are further fields."""
    return Actor(ActorKind.PERSON, account.get_username(), via, person=account, **known)


def service(account: Any, via: str, **known: Any) -> Actor:
    """A service account, by its account."""
    return Actor(ActorKind.SERVICE, account.get_username(), via, person=account, **known)


def rule(row: Any, wording: Reason | str) -> Actor:
    """A rule, by its row."""
    return Actor(ActorKind.RULE, f"rule: {row.name}", "rule", rule=row, wording=wording)


# Through what only one kind acts; and who else speaks through agents, in what machines report.
_BY_VIA = {
    "page": ActorKind.PERSON,
    "api": ActorKind.PERSON,
    "slack": ActorKind.PERSON,
    "pagerduty": ActorKind.PERSON,
    "rule": ActorKind.RULE,
    "agent": ActorKind.MACHINE,
    "relay": ActorKind.DRYDOCK,
}
_BY_NAME = {("agent", AZURE.name): AZURE.kind, ("agent", DRYDOCK.name): DRYDOCK.kind}


def recorded_kind(name: str, via: str, stated: object = "") -> ActorKind | None:
    """Return the kind of actor in an entry: as `stated` there, else derived from name and way of access.

    None for a kind of a later release.
    """
    if stated:
        known: Any = ActorKind._value2member_map_
        return known.get(stated) if isinstance(stated, str) else None
    if via == "command":
        # No person's name has a blank.
        return ActorKind.COMMAND if name == COMMAND_LINE.name else ActorKind.PERSON
    return _BY_NAME.get((via, name)) or _BY_VIA.get(via)


def kind_data(actor: Actor) -> dict[str, str]:
    """Return the data of an entry that state the actor's kind: empty where name and way of access imply it."""
    return {} if recorded_kind(actor.name, actor.via) is actor.kind else {ACTOR_KIND: actor.kind.value}
