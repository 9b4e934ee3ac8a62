"""What people state in a rule or a no-approval window: tidied, and as JSON values."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import time
from typing import Any

from fleet.domain.reason import as_json
from fleet.domain.texts import prose, tidy

# What says nothing of the events that are meant.
LABELS = (
    "name", "reason", "enabled", "deleted", "rule_id", "position",
    "route_id", "version", "owner_id", "channel_id",
)  # fmt: skip


def among(value: str, named: Sequence[str]) -> bool:
    """Whether it is one of these, without case; nothing named is everything."""
    return not named or value.casefold() in {one.casefold() for one in named}


def tidied(value: Any, name: str = "") -> Any:
    """The value of this field as it is kept: texts tidy, lists in one order, each item once. A reason may have several
    lines.
    """
    if isinstance(value, str):
        return prose(value) if name == "reason" else tidy(value)
    if isinstance(value, list | tuple | set):
        return tuple(sorted(set(value)))
    return value


def plain(value: Any) -> Any:
    """The same in JSON values: clock times as `18:00:00`."""
    return value.isoformat() if isinstance(value, time) else as_json(value)


def stated(what: Any) -> dict[str, Any]:
    """What a rule or a window states beside its labels, and what is not as in one that states nothing."""
    nothing = type(what)()
    values = {field.name: getattr(what, field.name) for field in fields(what) if field.name not in LABELS}
    return {name: plain(value) for name, value in values.items() if value != getattr(nothing, name)}
