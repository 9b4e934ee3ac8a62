"""Second factors of users: an authenticator app, passkeys and recovery codes. Each change writes a timeline entry.

The rows are django-allauth's; their secrets are encrypted with the installation's SECRET_KEY.
"""

import base64
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

import structlog
from allauth.mfa.models import Authenticator
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.hotp import HOTP
from django.contrib.auth.models import User
from django.db import transaction
from django.utils.crypto import constant_time_compare

from fleet.accounts.sessions import record_change
from fleet.domain.actor import Actor
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.texts import tidy
from fleet.models.cipher import Cipher
from fleet.operations.rights import require_administrator, require_reach, user_named

CIPHER = Cipher("drydock second factors")
APP, PASSKEY, CODES = "totp", "webauthn", "recovery_codes"
# Key of the secret in the data of a row.
SECRETS = {APP: "secret", CODES: "seed"}
# Context that all rows shared at first. Such secrets are readable, and are encrypted for their row at the next use.
OF_ANY_ROW = "factor"
MOST_PASSKEYS = 10
MAX_PASSKEY_NAME = 100
# Lifetime of an app's code in seconds. Because clocks differ, the codes before and after it are valid, too.
STEP = 30

log = structlog.get_logger(__name__)


# The row whose secret is encrypted or decrypted: django-allauth passes only the text.
_row: ContextVar[str] = ContextVar("row")


class UnreadableFactorError(Exception):
    """The secret of a second factor cannot be decrypted: its SECRET_KEY is no longer configured, or the secret was
    copied from the row of another user or kind of factor.
    """


@contextmanager
def _of_row(user_id: int, kind: str) -> Iterator[None]:
    """Select the row of this user and kind of factor, for which `sealed` and `opened` then encrypt and decrypt."""
    token = _row.set(f"factor:{user_id}:{kind}")
    try:
        yield
    finally:
        _row.reset(token)


def sealed(secret: str) -> str:
    """Encrypt a secret for the row selected by `_of_row`. It cannot be decrypted for any other row."""
    return CIPHER.encrypt(secret.encode(), of=_row.get())


def opened(text: str) -> str:
    """Decrypt a secret of the row selected by `_of_row`. Raises UnreadableFactorError."""
    plain = CIPHER.decrypt(text, of=_row.get()) or CIPHER.decrypt(text, of=OF_ANY_ROW)
    if plain is None:
        advice = "Add the old SECRET_KEY to SECRET_KEY_FALLBACKS. If it is there, rows were moved in the database."
        log.error("factors.unreadable", factor=_row.get(), advice=advice)
        raise UnreadableFactorError
    return plain.decode()


def _seal_again(row: Any) -> None:
    """Encrypt a secret again for its own row, if it was encrypted without a row."""
    text = row.data[SECRETS[row.type]]
    if CIPHER.decrypt(text, of=_row.get()) is None:
        row.data[SECRETS[row.type]] = sealed(opened(text))
        row.save(update_fields=["data"])


def new_secret() -> str:
    """Return a new random secret for an authenticator app, in base 32."""
    return base64.b32encode(secrets.token_bytes(20)).decode()


def code_at(secret: str, step: int) -> str:
    """Return the six digits that an app with this secret shows in the time step `step` (RFC 6238; a step is 30
    seconds).
    """
    # Every app uses SHA-1 here; its known weakness does not affect HMAC.
    return HOTP(base64.b32decode(secret), 6, SHA1()).generate(step).decode()  # noqa: S303


def step_of(secret: str, code: str, *, now: datetime) -> int | None:
    """Return the 30-second time step for which this code is right: the current, the previous or the next one. Return
    None if the code is wrong or there is no secret.
    """
    if not secret:
        return None
    digits, step = "".join(code.split()), int(now.timestamp()) // STEP
    near = (step, step - 1, step + 1)
    return next((each for each in near if constant_time_compare(code_at(secret, each), digits)), None)


@transaction.atomic
def add_app(*, actor: Actor, secret: str, code: str, now: datetime) -> list[str]:
    """Add an authenticator app with this secret to the actor's account, if `code` is right. Return new recovery codes
    if the actor had none. Raises Refused `validation` if the code is wrong or the actor already has an app.
    """
    _lock(actor.person)
    if _of(actor.person, APP).exists():
        raise Refused("validation", Reason("factor-app-there"))
    step = step_of(secret, code, now=now)
    if step is None:
        raise Refused("validation", Reason("factor-code-wrong"))
    with _of_row(actor.person.pk, APP):
        return _added(actor, APP, {"secret": sealed(secret), "step": step}, now)


@transaction.atomic
def add_passkey(*, actor: Actor, name: str, credential: Mapping[str, Any], now: datetime) -> list[str]:
    """Add a passkey to the actor's account. The caller must have verified `credential` against the challenge. Return
    new recovery codes if the actor had none. Raises Refused `validation` if the actor has too many passkeys.
    """
    _lock(actor.person)
    if _of(actor.person, PASSKEY).count() >= MOST_PASSKEYS:
        raise Refused("validation", Reason("factor-too-many", most=MOST_PASSKEYS))
    name = tidy(name)[:MAX_PASSKEY_NAME] or "Passkey"
    return _added(actor, PASSKEY, {"name": name, "credential": dict(credential)}, now)


@transaction.atomic
def remove(*, actor: Actor, factor_id: int, now: datetime) -> Any:
    """Remove one second factor of the actor. If it was the last one, also remove the recovery codes. Raises Refused
    `validation` if the factor is unknown.
    """
    _lock(actor.person)
    known = _real(actor.person)
    row = require_found(known.filter(pk=factor_id).first(), "validation", Reason("factor-unknown"))
    row.delete()
    if not known.exists():
        Authenticator.objects.filter(user=actor.person).delete()
    before, after = {"factor": row.type}, {"factor": None}
    record_change("factor-removed", actor.person, actor, now, before=before, after=after, name=_name(row))
    return row


@transaction.atomic
def remove_all(*, username: str, actor: Actor, now: datetime) -> int:
    """Remove all second factors of a user who lost them. Only administrators may do this. Return the number of removed
    factors. Raises Refused.
    """
    require_administrator(actor)
    person = user_named(username, User.objects.select_for_update())
    require_reach(actor, person)
    gone: int = _real(person).count()
    Authenticator.objects.filter(user=person).delete()
    if gone:
        record_change("factors-reset", person, actor, now, before={"factors": gone}, after={"factors": 0}, name="")
    return gone


@transaction.atomic
def new_codes(*, actor: Actor, now: datetime) -> list[str]:
    """Create new recovery codes for the actor and return them; they cannot be shown again. The old codes become
    invalid. Raises Refused `validation` if the actor has no second factor.
    """
    _lock(actor.person)
    if not _real(actor.person).exists():
        raise Refused("validation", Reason("factor-none"))
    _of(actor.person, CODES).delete()
    codes = _made_codes(actor.person)
    record_change("codes-made", actor.person, actor, now, before={"codes": "old"}, after={"codes": "new"}, name="")
    return codes


@transaction.atomic
def check_code(*, actor: Actor, code: str, now: datetime) -> Any:
    """Return the second factor (app or recovery codes) for which this code is right, or None. Each code is accepted
    once.

    A factor that cannot be decrypted accepts no code. Raises UnreadableFactorError if there is one and no other factor
    accepts the code.
    """
    unreadable: UnreadableFactorError | None = None
    for row in Authenticator.objects.select_for_update().filter(user=actor.person).exclude(type=PASSKEY).order_by("pk"):
        try:
            with _of_row(row.user_id, row.type):
                if _accepts(row, code, actor=actor, now=now):
                    return row
        except UnreadableFactorError as error:
            unreadable = error
    if unreadable is not None:
        raise unreadable
    return None


def _accepts(row: Any, code: str, *, actor: Actor, now: datetime) -> bool:
    """Return whether this code of the app or recovery code is right, and record its use."""
    if row.type == APP:
        step = step_of(opened(row.data["secret"]), code, now=now)
        # A code that was intercepted or repeated is not accepted again, in any process.
        if step is None or step <= row.data.get("step", -1):
            return False
        row.data["step"] = step
        row.save(update_fields=["data"])
    else:
        codes = row.wrap()
        if not codes.validate_code("".join(code.split())):
            return False
        left = len(codes.get_unused_codes())
        before, after = {"codes": left + 1}, {"codes": left}
        record_change("code-used", actor.person, actor, now, before=before, after=after, name="")
        # The check has read the row again.
        row = codes.instance
    _seal_again(row)
    return True


def _made_codes(person: User) -> list[str]:
    with _of_row(person.pk, CODES):
        data = {"seed": sealed(secrets.token_hex(40)), "used_mask": 0}
        codes: list[str] = Authenticator.objects.create(user=person, type=CODES, data=data).wrap().generate_codes()
    return codes


def _lock(person: User) -> None:
    """Lock the second factors of this user against concurrent changes."""
    User.objects.select_for_update().get(pk=person.pk)


def _real(person: User) -> Any:
    """Return the second factors of a user without the recovery codes, which only replace one."""
    return Authenticator.objects.filter(user=person).exclude(type=CODES)


def _of(person: User, kind: str) -> Any:
    return Authenticator.objects.filter(user=person, type=kind)


def _added(actor: Actor, kind: str, data: dict[str, Any], now: datetime) -> list[str]:
    row = Authenticator.objects.create(user=actor.person, type=kind, data=data)
    before, after = {"factor": None}, {"factor": kind}
    record_change("factor-added", actor.person, actor, now, before=before, after=after, name=_name(row))
    if _of(actor.person, CODES).exists():
        return []
    codes = _made_codes(actor.person)
    given = {"codes": len(codes)}
    record_change("codes-first", actor.person, actor, now, before={"codes": None}, after=given, name="")
    return codes


def _name(row: Any) -> str:
    return str(row.data.get("name", "")) if row.type == PASSKEY else ""
