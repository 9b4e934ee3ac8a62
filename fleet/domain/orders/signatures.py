"""Whether an agent checks the signatures of orders, by the keys that it says it trusts."""

from collections.abc import Collection
from enum import StrEnum


class SignatureCheck(StrEnum):
    """What an agent does about signatures. `NO_KEY`: it checks nothing, or refuses every order, by its settings.
    `STRANGE_KEYS`: it trusts none of the backend's keys, and refuses every order.
    """

    CHECKED = "checked"
    NONE = "none"
    NO_KEY = "no-key"
    STRANGE_KEYS = "strange-keys"


def check_of(trusted: Collection[str] | None, known: Collection[str]) -> SignatureCheck:
    """`trusted` are the ids of keys as an agent names them, None where it checks nothing; `known` the backend's own."""
    if trusted is None:
        return SignatureCheck.NONE
    if not trusted:
        return SignatureCheck.NO_KEY
    return SignatureCheck.CHECKED if set(trusted) & set(known) else SignatureCheck.STRANGE_KEYS
