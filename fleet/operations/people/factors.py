"""Second factors of people: their secrets, encrypted with the installation's SECRET_KEY."""

import structlog

from fleet.models.cipher import Cipher

CIPHER = Cipher("drydock second factors")

log = structlog.get_logger(__name__)


class UnreadableFactorError(Exception):
    """It was encrypted with a SECRET_KEY that is no longer here."""


def sealed(secret: str) -> str:
    """This secret as a column keeps it."""
    return CIPHER.encrypt(secret.encode(), of="factor")


def opened(text: str) -> str:
    """The secret that was sealed. Raises UnreadableFactorError."""
    plain = CIPHER.decrypt(text, of="factor")
    if plain is None:
        log.error("factors.unreadable", advice="Add the old SECRET_KEY to SECRET_KEY_FALLBACKS.")
        raise UnreadableFactorError
    return plain.decode()
