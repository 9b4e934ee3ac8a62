"""Who may change channels and routes: admins those of the installation, and everybody what they have alone."""

from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db.models import Model, QuerySet

from fleet.domain.actor import Actor
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused, or_refuse
from fleet.models import ApiToken
from fleet.operations.people.rights import require_change

M = TypeVar("M", bound=Model)


def owner_for(actor: Actor, *, own: bool, carried: ApiToken | None) -> User | None:
    """Whose something new will be. Raises Refused as `require_over` does."""
    owner: User | None = actor.person if own else None
    if own and owner is None:
        raise Refused("validation", Reason("own-without-person"))
    require_over(actor, owner, carried=carried)
    return owner


def require_over(actor: Actor, owner: User | None, *, carried: ApiToken | None) -> None:
    """Raises Refused `not-permitted` where the actor, or the token that the request came with, may not change what this
    owner (None: the installation) has.
    """
    require_change(actor, own=owner is not None, carried=carried)


def of(rows: QuerySet[M], row_id: int, actor: Actor, *, unknown: Reason, carried: ApiToken | None) -> M:
    """The row of this id, locked, where the actor may change it. Raises Refused: `not-permitted`, and `not-found` also
    for what somebody else has alone.
    """
    found: Any = rows.select_for_update(of=("self",)).filter(pk=row_id, deleted_at=None).first()
    if found is not None and found.owner_id is not None and found.owner_id != getattr(actor.person, "pk", None):
        found = None
    row: Any = or_refuse(found, "not-found", unknown)
    require_over(actor, row.owner, carried=carried)
    return row  # type: ignore[no-any-return]
