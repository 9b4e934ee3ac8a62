"""Actors: who or what performs an operation, from the incoming request to the timeline entry."""

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
    """Kinds of actors.

    `person`: a user, by page, API or command line; `service`: a service account, by a token; `rule`: a rule that
    decides automatically; `machine`: an agent; `azure`; `command`: the server's command line without a user name;
    `drydock`: the backend.
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
    """The actor of an operation: name, kind, interface and reason.

    `person` is the user account or service account (None for every other kind). `rule` is the row of the rule, with its
    `wording`. `via` is `page`, `api`, `slack`, `pagerduty`, `rule`, `command`, `agent` or `relay`. `token` is the row
    of the API token (None for a session), `token_name` the name of the token or notification channel. `request_id` and
    `address` identify the request.
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
        """The actor's name for a timeline entry: the pseudonym of a person, the name of every other actor."""
        return pseudonym(self.person.pk) if self.person is not None else self.name

    def because(self, why: str) -> "Actor":
        """Return a copy of the actor with the reason `why`."""
        return replace(self, why=why)


DRYDOCK = Actor(ActorKind.DRYDOCK, "Drydock", "relay")
AZURE = Actor(ActorKind.AZURE, "Azure", "agent")
COMMAND_LINE = Actor(ActorKind.COMMAND, "the command line", "command")


def machine(name: str) -> Actor:
    """Return the actor for the agent of the machine with this resource name."""
    return Actor(ActorKind.MACHINE, name, "agent")


def person(account: Any, via: str, **known: Any) -> Actor:
    """Return the actor for a user account. `via` is the interface (see `Actor`), `known` are further fields of the
    actor.
    """
    return Actor(ActorKind.PERSON, account.get_username(), via, person=account, **known)


def service(account: Any, via: str, **known: Any) -> Actor:
    """Return the actor for a service account. `via` is the interface (see `Actor`), `known` are further fields of the
    actor.
    """
    return Actor(ActorKind.SERVICE, account.get_username(), via, person=account, **known)


def rule(row: Any, wording: Reason | str) -> Actor:
    """Return the actor for a rule. `row` is the row of the rule; `wording` is the whole rule as text."""
    return Actor(ActorKind.RULE, f"rule: {row.name}", "rule", rule=row, wording=wording)


# Through what only one kind acts; and who else speaks through agents, in what machines report.
_BY_VIA = {
    **dict.fromkeys(("page", "api", "slack", "pagerduty"), ActorKind.PERSON),
    "rule": ActorKind.RULE,
    "agent": ActorKind.MACHINE,
    "relay": ActorKind.DRYDOCK,
}
_BY_NAME = {("agent", AZURE.name): AZURE.kind, ("agent", DRYDOCK.name): DRYDOCK.kind}


def recorded_kind(name: str, via: str, stated: object = "") -> ActorKind | None:
    """Return the kind of the actor of a timeline entry: `stated` if the entry has it, else derived from name and
    interface.

    Return None for a kind that only a later release knows.
    """
    if stated:
        known: Any = ActorKind._value2member_map_
        return known.get(stated) if isinstance(stated, str) else None
    if via == "command":
        # No person's name has a blank.
        return ActorKind.COMMAND if name == COMMAND_LINE.name else ActorKind.PERSON
    return _BY_NAME.get((via, name)) or _BY_VIA.get(via)


def kind_data(actor: Actor) -> dict[str, str]:
    """Return the actor's kind as data for a timeline entry, or an empty dict if name and interface imply the kind."""
    return {} if recorded_kind(actor.name, actor.via) is actor.kind else {ACTOR_KIND: actor.kind.value}
