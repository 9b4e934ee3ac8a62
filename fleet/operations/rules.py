"""Making and changing rules: each change with its entry, what stood before and after, and only by an admin."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, time
from typing import Any

from django.contrib.auth.models import User
from django.db import connection, transaction

from fleet.domain.entries import EntryKind
from fleet.domain.rule_faults import faults
from fleet.domain.rules import SAID, Standing, changed, wording
from fleet.models import Rule
from fleet.models.standing import standing_of
from fleet.operations.entries import entry, write
from fleet.operations.errors import Refused
from fleet.operations.rights import require_administer

# The first key of the advisory lock under which the order of the rules is changed.
ORDER_LOCK = 7_001_171
MOST_RULES = 200


def create(
    *,
    by: User,
    via: str,
    now: datetime,
    fields: Mapping[str, Any],
    enabled: bool = False,
    position: int | None = None,
    token_name: str = "",
    why: str = "",
) -> Rule:
    """A new rule, off unless `enabled`, at a place in the order (1 is the first) or at the end.

    `fields` are those of `fleet.domain.rules.SAID`. Raises Refused: `not-permitted`, `validation` (details `errors`).
    """
    require_administer(by)
    rule = _said(Standing(action="", enabled=enabled), fields)
    with transaction.atomic():
        order = _locked_order()
        if len(order) >= MOST_RULES:
            raise Refused("validation", f"There are {MOST_RULES} rules already: delete one that is no longer needed.")
        _check(rule, order, now=now)
        row = Rule.objects.create(
            **_columns(rule), enabled=enabled, author=by, created_at=now, changed_at=now, position=len(order) + 1
        )
        order.append(row)
        _place(order, row, position)
        state = "switched on" if enabled else "off"
        text = f"{by.get_username()} made the rule “{row.name}” ({state}): {wording(standing_of(row))}"
        _note(EntryKind.RULE_CREATED, text, row, by, via, token_name, why or row.reason, now, None, _told(row))
    return row


def change(
    *,
    rule_id: int,
    by: User,
    via: str,
    now: datetime,
    fields: Mapping[str, Any] | None = None,
    enabled: bool | None = None,
    position: int | None = None,
    token_name: str = "",
    why: str = "",
) -> Rule:
    """Change what a rule says, switch it on or off, move it in the order. What stays as it is writes nothing.

    A rule that nobody made (the ready-made ones) becomes that of the admin who first changes it. Decisions made before
    keep their wording. Raises Refused: `not-permitted`, `not-found`, `validation` (details `errors`).
    """
    require_administer(by)
    with transaction.atomic():
        order = _locked_order()
        row = _of(order, rule_id)
        before = _told(row)
        rule = _said(replace(standing_of(row), enabled=row.enabled if enabled is None else enabled), fields or {})
        _check(rule, order, now=now, was=standing_of(row))
        for name, value in _columns(rule).items():
            setattr(row, name, value)
        row.enabled = rule.enabled
        _place(order, row, position)
        after = _told(row)
        moved = [name for name in after if after[name] != before[name] and name != "wording"]
        if not moved:
            return row
        row.author = row.author or by
        row.changed_at = now
        row.save()
        _note(
            EntryKind.RULE_CHANGED,
            f"{by.get_username()} {_what(moved, row)}",
            row,
            by,
            via,
            token_name,
            why,
            now,
            {name: before[name] for name in (*moved, "wording")},
            {name: after[name] for name in (*moved, "wording")},
        )
    return row


def move(*, rule_id: int, by: User, via: str, now: datetime, steps: int, token_name: str = "") -> Rule:
    """Move a rule up (-1) or down (1) in the order, as far as it goes. Raises Refused as `change` does."""
    require_administer(by)
    with transaction.atomic():
        order = _locked_order()
        place = order.index(_of(order, rule_id)) + 1 + steps
        return change(
            rule_id=rule_id, by=by, via=via, now=now, position=max(1, min(place, len(order))), token_name=token_name
        )


def delete(*, rule_id: int, by: User, via: str, now: datetime, token_name: str = "", why: str = "") -> Rule:
    """Delete a rule. Its decisions stand and keep naming it. Raises Refused: `not-permitted`, `not-found`."""
    require_administer(by)
    with transaction.atomic():
        order = _locked_order()
        row = _of(order, rule_id)
        before = _told(row)
        row.enabled = False
        row.deleted_at = row.changed_at = now
        row.save(update_fields=["enabled", "deleted_at", "changed_at"])
        order.remove(row)
        _number(order)
        text = f"{by.get_username()} deleted the rule “{row.name}”: {before['wording']}"
        _note(EntryKind.RULE_DELETED, text, row, by, via, token_name, why, now, before, None)
    return row


def _locked_order() -> list[Rule]:
    """All rules in their order, while nobody else changes one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [ORDER_LOCK])
    return list(Rule.objects.filter(deleted_at__isnull=True).select_related("author").order_by("position", "pk"))


def _of(order: list[Rule], rule_id: int) -> Rule:
    row = next((row for row in order if row.pk == rule_id), None)
    if row is None:
        raise Refused("not-found", "There is no rule of this id.")
    return row


def _place(order: list[Rule], row: Rule, position: int | None) -> None:
    if position is not None:
        if not 1 <= position <= len(order):
            raise _wrong([("position", f"The position is a number from 1 to {len(order)}.")])
        order.remove(row)
        order.insert(position - 1, row)
    _number(order)


def _number(order: list[Rule]) -> None:
    for number, row in enumerate(order, 1):
        if row.position != number:
            row.position = number
            row.save(update_fields=["position"])


def _said(rule: Standing, fields: Mapping[str, Any]) -> Standing:
    """The rule with what somebody says of it. Raises Refused `validation` for a field that is none."""
    unknown = sorted(set(fields) - set(SAID))
    if unknown:
        raise _wrong([(unknown[0], "A rule has no such field.")])
    return changed(rule, fields)


def _check(rule: Standing, order: list[Rule], *, now: datetime, was: Standing | None = None) -> None:
    """Raises Refused `validation` for what is wrong; an expiry that has passed may stay while the rule is off."""
    found = faults(rule, now=now)
    if was is not None and not rule.enabled and rule.expires_at == was.expires_at:
        found = [(field, sentence) for field, sentence in found if field != "expires_at"]
    if any(row.name.casefold() == rule.name.casefold() and row.pk != rule.rule_id for row in order):
        found.append(("name", "There is a rule of this name already."))
    if found:
        raise _wrong(found)


def _wrong(found: list[tuple[str, str]]) -> Refused:
    return Refused("validation", found[0][1], errors=[{"field": f, "message": s} for f, s in found])


def _columns(rule: Standing) -> dict[str, Any]:
    values = {name: getattr(rule, name) for name in SAID}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _told(row: Rule) -> dict[str, Any]:
    """A rule as JSON values, for what stood before and after."""
    values = {name: getattr(row, name) for name in (*SAID, "enabled", "position")}
    plain = {name: value.isoformat() if isinstance(value, datetime | time) else value for name, value in values.items()}
    return {**plain, "wording": wording(standing_of(row))}


def _what(moved: list[str], row: Rule) -> str:
    name = f"the rule “{row.name}”"
    said = [field for field in moved if field not in ("enabled", "position")]
    parts = []
    if said:
        parts.append(f"changed {name}: {wording(standing_of(row))}")
    if "enabled" in moved:
        parts.append(f"switched {name} {'on' if row.enabled else 'off'}: {wording(standing_of(row))}")
    if "position" in moved:
        parts.append(f"moved {name} to place {row.position}.")
    return " ".join(parts)


def _note(
    kind: EntryKind,
    text: str,
    row: Rule,
    by: User,
    via: str,
    token_name: str,
    why: str,
    now: datetime,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> None:
    write(
        [
            entry(
                kind,
                text,
                at=now,
                actor=by.get_username(),
                via=via,
                token_name=token_name,
                why=why,
                before=before,
                after=after,
                rule_id=row.pk,
            )
        ]
    )
