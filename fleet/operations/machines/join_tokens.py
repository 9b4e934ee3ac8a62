"""Tokens with which new agents enrol."""

from datetime import datetime, timedelta

from django.db import transaction
from django.utils.crypto import constant_time_compare

from fleet.domain.actor import COMMAND_LINE, Actor
from fleet.domain.people import Right
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused
from fleet.domain.secrets import hash_of, new_secret, prefix_of
from fleet.domain.sets import read_stated
from fleet.domain.timeline import EntryKind
from fleet.models import JoinToken
from fleet.operations.people.rights import require
from fleet.operations.timeline.entries import tell

MAX_TIME = timedelta(days=366)


@transaction.atomic
def create_join_token(
    *,
    comment: str,
    expires_in: timedelta,
    now: datetime,
    actor: Actor = COMMAND_LINE,
    set_name: str = "",
) -> tuple[JoinToken, str]:
    """A token with which agents enrol until it expires. The plain text is returned this once.

    `set_name` is `[kind:]name` for machines that name no set themselves. Raises Refused `validation` or
    `not-permitted`.
    """
    require(actor, Right.ADMINISTER)
    if not timedelta(0) < expires_in <= MAX_TIME:
        raise Refused("validation", Reason("join-token-time", days=MAX_TIME.days))
    read_stated(set_name)
    plain = new_secret("join")
    token = JoinToken.objects.create(
        prefix=prefix_of(plain),
        secret_hash=hash_of(plain),
        comment=comment,
        set_name=set_name.strip(),
        created_by=actor.person,
        created_at=now,
        expires_at=now + expires_in,
    )
    made = {"join_token": token.prefix, "set": token.set_name, "expires_at": token.expires_at}
    why = actor.because(comment or actor.why)
    tell(EntryKind.TOKEN_CREATED, why, at=now, before={"join_token": None}, after=made)
    return token, plain


def valid(plain: str, *, now: datetime) -> JoinToken:
    """The token that this is. Raises Refused `join-token-refused`."""
    token = JoinToken.objects.filter(prefix=prefix_of(plain)).first()
    if token is None or not constant_time_compare(token.secret_hash, hash_of(plain)):
        raise Refused("join-token-refused", Reason("join-token-unknown"))
    if token.revoked_at is not None or token.expires_at <= now:
        raise Refused("join-token-refused", Reason("join-token-over"))
    return token
