"""Tokens with which new agents enrol."""

from datetime import datetime, timedelta

from django.db import transaction
from django.utils.crypto import constant_time_compare

from fleet.domain.actor import COMMAND_LINE, Actor
from fleet.domain.people import Right
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused, or_refuse
from fleet.domain.secrets import hash_of, new_secret, prefix_of
from fleet.domain.sets import read_stated
from fleet.domain.timeline import EntryKind
from fleet.models import JoinToken
from fleet.operations.people.rights import require
from fleet.operations.timeline.entries import tell

MAX_TIME = timedelta(days=366)
MOST_USES = 100_000


@transaction.atomic
def create_join_token(
    *,
    comment: str,
    expires_in: timedelta,
    now: datetime,
    actor: Actor = COMMAND_LINE,
    set_name: str = "",
    max_uses: int | None = None,
) -> tuple[JoinToken, str]:
    """A token with which agents enrol until it expires. The plain text is returned this once.

    `set_name` is `[kind:]name` for machines that name no set themselves. Raises Refused `validation` or
    `not-permitted`.
    """
    require(actor, Right.ADMINISTER)
    if not timedelta(0) < expires_in <= MAX_TIME:
        raise Refused("validation", Reason("join-token-time", days=MAX_TIME.days))
    if max_uses is not None and not 0 < max_uses <= MOST_USES:
        raise Refused("validation", Reason("join-token-uses", most=MOST_USES))
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
        max_uses=max_uses,
    )
    made = {"join_token": token.prefix, "set": token.set_name, "expires_at": token.expires_at}
    why = actor.because(comment or actor.why)
    tell(EntryKind.TOKEN_CREATED, why, at=now, before={"join_token": None}, after=made)
    return token, plain


def valid(plain: str, *, now: datetime) -> JoinToken:
    """The token that this is, locked until the transaction ends: its uses are counted one by one. Raises Refused
    `join-token-refused`.
    """
    token = JoinToken.objects.select_for_update().filter(prefix=prefix_of(plain)).first()
    if token is None or not constant_time_compare(token.secret_hash, hash_of(plain)):
        raise Refused("join-token-refused", Reason("join-token-unknown"))
    if token.revoked_at is not None or token.expires_at <= now:
        raise Refused("join-token-refused", Reason("join-token-over"))
    if token.max_uses is not None and token.uses >= token.max_uses:
        raise Refused("join-token-refused", Reason("join-token-used-up", count=token.max_uses))
    return token


@transaction.atomic
def end_join_token(*, prefix: str, now: datetime, actor: Actor = COMMAND_LINE) -> JoinToken:
    """Admit nobody more by this token; who enrolled by it stays. One that has ended stays so. Raises Refused
    `not-permitted`, `not-found`.
    """
    require(actor, Right.ADMINISTER)
    found = JoinToken.objects.select_for_update().filter(prefix=prefix.strip()).first()
    token = or_refuse(found, "not-found", Reason("join-token-none"))
    if token.revoked_at is None:
        token.revoked_at = now
        token.save(update_fields=["revoked_at"])
        before, after = {"ended_at": None}, {"ended_at": now}
        tell(EntryKind.JOIN_TOKEN_ENDED, actor, at=now, before=before, after=after, prefix=token.prefix)
    return token
