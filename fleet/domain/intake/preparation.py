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
    recovered = {"running": Prepared.RECOVERING, "succeeded": Prepared.RECOVERED}
    prepared = {"running": Prepared.PREPARING, "succeeded": Prepared.PREPARED, "nothing": Prepared.NOTHING}
    recovered |= dict.fromkeys(BAD_OUTCOMES, Prepared.RECOVER_FAILED)
    prepared |= dict.fromkeys(BAD_OUTCOMES, Prepared.FAILED)
    return recovered.get(recover_outcome) or prepared.get(prepare_outcome, Prepared.UNKNOWN)
