"""What changing rules and changing no-approval windows have in common."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from fleet.domain.actor import Actor
from fleet.domain.policy.faults import refuse
from fleet.domain.policy.values import plain
from fleet.domain.reason import Reason
from fleet.domain.timeline import EntryKind
from fleet.models import NoApprovalWindow, Route, Rule
from fleet.operations.timeline.entries import tell


def refuse_unknown(values: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises Refused `validation` for a field that is none."""
    unknown = sorted(set(values) - set(known))
    refuse([(unknown[0], Reason("field-unknown"))] if unknown else [])


def values_of(row: Rule | NoApprovalWindow | Route, names: Iterable[str]) -> dict[str, Any]:
    """Columns as JSON values, for what stood before and after."""
    return {name: plain(getattr(row, name)) for name in names}


def note(
    kind: EntryKind,
    row: Rule | NoApprovalWindow,
    actor: Actor,
    wording: Reason,
    *,
    now: datetime,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> None:
    """Write the entry of a change."""
    what: dict[str, Any] = {"rule_id" if isinstance(row, Rule) else "window_id": row.pk}
    tell(kind, actor, at=now, before=before, after=after, name=row.name, wording=wording, **what)
