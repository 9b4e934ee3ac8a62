"""Whether a machine is prepared for an event, out of what its hooks said."""

from enum import StrEnum


class Prepared(StrEnum):
    """`nothing` means that the machine has no prepare hooks: being live, it counts as prepared."""

    UNKNOWN = "unknown"
    PREPARING = "preparing"
    PREPARED = "prepared"
    NOTHING = "nothing"
    FAILED = "failed"
    RECOVERING = "recovering"
    RECOVERED = "recovered"
    RECOVER_FAILED = "recover_failed"


BAD_OUTCOMES = ("failed", "timed-out")


def prepared_of(*, prepare_outcome: str, recover_outcome: str) -> Prepared:
    """The one value for a machine and an event: the recover phase speaks once it has begun."""
    if recover_outcome == "running":
        return Prepared.RECOVERING
    if recover_outcome in BAD_OUTCOMES:
        return Prepared.RECOVER_FAILED
    if recover_outcome == "succeeded":
        return Prepared.RECOVERED
    if prepare_outcome == "running":
        return Prepared.PREPARING
    if prepare_outcome in BAD_OUTCOMES:
        return Prepared.FAILED
    if prepare_outcome == "succeeded":
        return Prepared.PREPARED
    if prepare_outcome == "nothing":
        return Prepared.NOTHING
    return Prepared.UNKNOWN
