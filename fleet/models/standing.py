"""Rules and no-approval windows as the domain judges and words them."""

from dataclasses import fields
from datetime import datetime

from django.db.models import Q

from fleet.domain.rules import SAID, Standing
from fleet.domain.windows import Window
from fleet.models.rules import NoApprovalWindow, Rule


def standing_of(row: Rule) -> Standing:
    """One rule as it stands."""
    said = {name: getattr(row, name) for name in SAID}
    lists = {name: tuple(value) for name, value in said.items() if isinstance(value, list)}
    return Standing(
        **{**said, **lists},
        enabled=row.enabled,
        deleted=row.deleted_at is not None,
        rule_id=row.pk,
        position=row.position,
    )


def rules_in_force(*, now: datetime) -> dict[int, Rule]:
    """The rules that may decide now, in their order, by their row id. One query."""
    lasting = Q(expires_at__isnull=True) | Q(expires_at__gt=now)
    rows = Rule.objects.filter(lasting, enabled=True, deleted_at__isnull=True).order_by("position", "pk")
    return {row.pk: row for row in rows}


def window_of(row: NoApprovalWindow) -> Window:
    """One no-approval window as it was said."""
    said = {field.name: getattr(row, field.name) for field in fields(Window)}
    return Window(**{**said, "weekdays": tuple(row.weekdays)})
