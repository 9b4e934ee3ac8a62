"""What receivers tell us of the things that a channel keeps with them: apart from what we told them, since both are
written at any time.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from fleet.domain.messages.moments import GROUP
from fleet.models import Reference


def of_key(name: str) -> str:
    """Under which subject stands what a pager told of the key of this name."""
    return f"there:{name}"


def told(channel_id: int, names: Collection[str]) -> dict[str, str]:
    """How these keys stand at the pager, as far as it said anything, by name. One query."""
    subjects = {of_key(name): name for name in names}
    rows = Reference.objects.filter(channel=channel_id, subject__in=list(subjects))
    return {subjects[subject]: value["state"] for subject, value in rows.values_list("subject", "value")}


def note_told(channel_id: int, name: str, *, state: str, at: datetime, now: datetime) -> None:
    """The pager says that a key stands so since then; what it says later than something newer is history."""
    known = Reference.objects.filter(channel=channel_id, subject=of_key(name)).values_list("value", flat=True).first()
    if known is None or datetime.fromisoformat(known["at"]) <= at:
        Reference.objects.update_or_create(
            channel_id=channel_id,
            subject=of_key(name),
            defaults={"value": {"state": state, "at": at.isoformat()}, "changed_at": now},
        )


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key that a channel holds: what it is about, as far as that is not over; `storm` where it was made for many."""

    left: tuple[str, ...]
    storm: bool


def held_key(channel_id: int, name: str) -> HeldKey | None:
    """The key of this name; None where the channel holds none such. One query over what it holds."""
    rows = Reference.objects.filter(channel=channel_id, value__contains={"keys": [{"name": name}]})
    for subject, value in rows.values_list("subject", "value"):
        for key in value["keys"]:
            if key["name"] == name:
                return HeldKey(tuple(key["left"]), storm=subject == GROUP)
    return None
