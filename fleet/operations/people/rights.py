"""Refusing what a person has no right to. The table of roles is `fleet.domain.people`."""

from django.conf import settings

from fleet.domain.actor import Actor, ActorKind
from fleet.domain.people import Place, Right
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused
from fleet.domain.texts import cleaned
from fleet.models.people import Person, rights_of


def require(who: Actor | Person, right: Right, place: Place | None = None, *, doing: str = "this") -> None:
    """`doing` is a code of `wording.people.DOING`. Raises Refused `not-permitted`, naming what is missing.

    Whoever runs commands on the server may do everything.
    """
    if isinstance(who, Actor) and who.kind is ActorKind.COMMAND:
        return
    missing = rights_of(who.person if isinstance(who, Actor) else who).missing(right, place, doing=doing)
    if missing is not None and settings.SCOPED_READING and missing.code != "right-missing":
        # To somebody who reads by scope, what lies beyond is not there.
        if doing == "drill":
            raise Refused("unknown-set", Reason("drill-of-no-set"))
        raise Refused("unknown-event", Reason("event-unknown"))
    if missing is not None:
        raise Refused("not-permitted", missing)


def acting(actor: Actor, right: Right, *, doing: str) -> Actor:
    """Somebody who may do this anywhere at all, with a reason fit to be kept. Raises Refused: `not-permitted`,
    `validation`.
    """
    require(actor, right, doing=doing)
    return actor.because(cleaned(actor.why))
