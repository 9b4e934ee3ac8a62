"""Changes of rules and no-approval windows, and the stop of all approvals."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Model

from fleet.domain.actor import Actor
from fleet.domain.people import Right
from fleet.domain.policy.hours import plain, tidied
from fleet.domain.policy.rules import APPROVES, SAID, StandingRule, changed, faults, refuse, wording
from fleet.domain.policy.windows import Window, window_faults, window_wording
from fleet.domain.reasons import Reason, Refused, or_refuse, refuse_other
from fleet.domain.timeline import EntryKind, differing
from fleet.models import NoApprovalWindow, Rule, Stop
from fleet.models.policy import rule_of, stop_in_force, window_of
from fleet.operations.locks import Lock, take
from fleet.operations.rights import acting, require
from fleet.operations.timeline.entries import tell


def refuse_unknown(values: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises Refused `validation` for a field that is none."""
    unknown = sorted(set(values) - set(known))
    refuse([(unknown[0], Reason("field-unknown"))] if unknown else [])


def values_of(row: Model, names: Iterable[str]) -> dict[str, Any]:
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


# Making and changing rules: each change with its entry, what stood before and after, and only by an admin.


MOST_RULES = 200
# What entries tell of a rule.
TOLD = (*SAID, "enabled", "position")


def create_rule(
    *, actor: Actor, now: datetime, fields: Mapping[str, Any], enabled: bool = False, position: int | None = None
) -> Rule:
    """A new rule, off unless `enabled`, at a place in the order (1 is the first) or at the end.

    `fields` are those of `fleet.domain.policy.rules.SAID`. Raises Refused: `not-permitted`, `validation` (details
    `errors`).
    """
    require(actor, Right.ADMINISTER)
    rule = _said(StandingRule(action="", enabled=enabled), fields)
    _within_token(rule, actor)
    with transaction.atomic():
        order = _locked_order()
        if len(order) >= MOST_RULES:
            raise Refused("validation", Reason("rules-too-many", most=MOST_RULES))
        _check(rule, order, now=now)
        row = Rule.objects.create(
            **_columns(rule),
            enabled=enabled,
            author=actor.person,
            created_at=now,
            changed_at=now,
            position=len(order) + 1,
        )
        order.append(row)
        _place(order, row, position)
        actor = actor.because(actor.why or row.reason)
        note(EntryKind.RULE_CREATED, row, actor, wording(rule), now=now, before=None, after=values_of(row, TOLD))
    return row


def change_rule(
    *,
    rule_id: int,
    actor: Actor,
    now: datetime,
    fields: Mapping[str, Any] | None = None,
    enabled: bool | None = None,
    position: int | None = None,
    expected: Collection[str] | None = None,
) -> Rule:
    """Change what a rule says, switch it on or off, move it in the order. What stays as it is writes nothing.

    A rule that nobody made (the ready-made ones) becomes that of the admin who first changes it. Decisions made before
    keep their wording. `expected`: times of its last change that was looked at. Raises Refused: `not-permitted`,
    `not-found`, `precondition-failed`, `validation` (details `errors`).
    """
    require(actor, Right.ADMINISTER)
    with transaction.atomic():
        order = _locked_order()
        row = _of(order, rule_id)
        refuse_other(row.changed_at, expected)
        was, before = rule_of(row), values_of(row, TOLD)
        rule = _said(replace(was, enabled=row.enabled if enabled is None else enabled), fields or {})
        _check(rule, order, now=now, was=was)
        _within_token(rule, actor)
        for name, value in _columns(rule).items():
            setattr(row, name, value)
        row.enabled = rule.enabled
        _place(order, row, position)
        before, after = differing(before, values_of(row, TOLD))
        if not after:
            return row
        row.author = row.author or actor.person
        row.changed_at = now
        row.save()
        note(EntryKind.RULE_CHANGED, row, actor, wording(rule), now=now, before=before, after=after)
    return row


def move(*, rule_id: int, actor: Actor, now: datetime, steps: int, expected: Collection[str] | None = None) -> Rule:
    """Move a rule up (-1) or down (1) in the order, as far as it goes. Raises Refused as `change` does."""
    require(actor, Right.ADMINISTER)
    with transaction.atomic():
        order = _locked_order()
        place = order.index(_of(order, rule_id)) + 1 + steps
        position = max(1, min(place, len(order)))
        return change_rule(rule_id=rule_id, actor=actor, now=now, position=position, expected=expected)


def delete_rule(*, rule_id: int, actor: Actor, now: datetime, expected: Collection[str] | None = None) -> Rule:
    """Delete a rule. Its decisions stand and keep naming it. Raises Refused as `change` does."""
    require(actor, Right.ADMINISTER)
    with transaction.atomic():
        order = _locked_order()
        row = _of(order, rule_id)
        refuse_other(row.changed_at, expected)
        before = values_of(row, TOLD)
        row.enabled = False
        row.deleted_at = row.changed_at = now
        row.save(update_fields=["enabled", "deleted_at", "changed_at"])
        order.remove(row)
        _number(order)
        note(EntryKind.RULE_DELETED, row, actor, wording(rule_of(row)), now=now, before=before, after=None)
    return row


def _locked_order() -> list[Rule]:
    """All rules in their order, while nobody else changes one."""
    take(Lock.RULES)
    return list(Rule.objects.filter(deleted_at__isnull=True).select_related("author").order_by("position", "pk"))


def _of(order: list[Rule], rule_id: int) -> Rule:
    return or_refuse(next((row for row in order if row.pk == rule_id), None), "not-found", Reason("rule-unknown"))


def _place(order: list[Rule], row: Rule, position: int | None) -> None:
    if position is not None:
        if not 1 <= position <= len(order):
            refuse([("position", Reason("position-unknown", most=len(order)))])
        order.remove(row)
        order.insert(position - 1, row)
    _number(order)


def _number(order: list[Rule]) -> None:
    for number, row in enumerate(order, 1):
        if row.position != number:
            row.position = number
            row.save(update_fields=["position"])


def _said(rule: StandingRule, fields: Mapping[str, Any]) -> StandingRule:
    """The rule with what somebody says of it. Raises Refused `validation` for a field that is none."""
    refuse_unknown(fields, SAID)
    return changed(rule, fields)


def _check(rule: StandingRule, order: list[Rule], *, now: datetime, was: StandingRule | None = None) -> None:
    """Raises Refused `validation` for what is wrong; an expiry that has passed may stay while the rule is off."""
    found = faults(rule, now=now)
    if was is not None and not rule.enabled and rule.expires_at == was.expires_at:
        found = [fault for fault in found if fault[0] != "expires_at"]
    if any(row.name.casefold() == rule.name.casefold() and row.pk != rule.rule_id for row in order):
        found.append(("name", Reason("rule-name-taken")))
    refuse(found)


def _within_token(rule: StandingRule, actor: Actor) -> None:
    """Raises Refused `not-permitted` where a token that may not approve would have a rule approve for it."""
    approves = rule.action in {action.value for action in APPROVES}
    if approves and actor.token is not None and "approve" not in actor.token.scopes:
        raise Refused("not-permitted", Reason("token-without-scope", scope="approve"))


def _columns(rule: StandingRule) -> dict[str, Any]:
    values = {name: getattr(rule, name) for name in SAID}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


# The switch for the worst hour: one row in Postgres stops every rule, wave, approval and order, in every process.


def stop_all(*, actor: Actor, now: datetime) -> Stop:
    """Stop all approvals, until somebody lifts it. What Azure was asked already goes on.

    Approvers and admins may, wherever their scopes end. Raises Refused: `not-permitted`, `validation` (no reason),
    `stopped` (it is stopped already).
    """
    actor = acting(actor, Right.OVERRIDE, doing="stop-all")
    if not actor.why:
        raise Refused("validation", Reason("stop-without-why"))
    try:
        with transaction.atomic():
            row = Stop.objects.create(stopped_at=now, stopped_by=actor.name, why=actor.why)
            before, after = {"approvals": "possible"}, {"approvals": "stopped"}
            tell(EntryKind.APPROVALS_STOPPED, actor, at=now, before=before, after=after)
    except IntegrityError as error:
        first = stop_in_force()
        if first is None:
            raise
        raise Refused("stopped", Reason("stopped-already", by=first.by, at=first.at)) from error
    return row


@transaction.atomic
def lift(*, actor: Actor, now: datetime, expected: Collection[str] | None = None) -> Stop:
    """Let approvals go on: what was decided before the stop goes its way, as far as NotBefore is not past. `expected`:
    times of the stop that was looked at.

    Raises Refused: `not-permitted`, `validation`, `not-stopped`, `precondition-failed`.
    """
    actor = acting(actor, Right.ADMINISTER, doing="lift-stop")
    found = Stop.objects.select_for_update().filter(lifted_at__isnull=True).first()
    row = or_refuse(found, "not-stopped", Reason("not-stopped"))
    refuse_other(row.stopped_at, expected)
    row.lifted_at, row.lifted_by, row.lifted_why = now, actor.name, actor.why
    row.save(update_fields=["lifted_at", "lifted_by", "lifted_why"])
    before, after = {"approvals": "stopped"}, {"approvals": "possible"}
    tell(EntryKind.STOP_LIFTED, actor, at=now, before=before, after=after, by=row.stopped_by)
    return row


# No-approval windows: hours in which nothing is approved without a reason. Admins make and delete them.


STATED = tuple(field.name for field in fields(Window))


@transaction.atomic
def create_window(*, actor: Actor, now: datetime, values: Mapping[str, Any]) -> NoApprovalWindow:
    """A new window; `values` are the fields of `Window`. Raises Refused: `not-permitted`, `validation` (details
    `errors`).
    """
    require(actor, Right.ADMINISTER)
    refuse_unknown(values, STATED)
    window = Window(**{name: tidied(value, name) for name, value in values.items()})
    refuse(list(window_faults(window, now=now)))
    columns = {name: getattr(window, name) for name in STATED} | {"weekdays": list(window.weekdays)}
    row = NoApprovalWindow.objects.create(**columns, author=actor.person, created_at=now)
    actor = actor.because(actor.why or row.reason)
    wording = window_wording(window)
    note(EntryKind.WINDOW_CREATED, row, actor, wording, now=now, before=None, after=values_of(row, STATED))
    return row


@transaction.atomic
def delete_window(*, window_id: int, actor: Actor, now: datetime) -> NoApprovalWindow:
    """End a window for good. Raises Refused: `not-permitted`, `not-found`."""
    require(actor, Right.ADMINISTER)
    found = NoApprovalWindow.objects.select_for_update().filter(pk=window_id, deleted_at__isnull=True).first()
    row = or_refuse(found, "not-found", Reason("window-unknown"))
    row.deleted_at = now
    row.save(update_fields=["deleted_at"])
    wording = window_wording(window_of(row))
    note(EntryKind.WINDOW_DELETED, row, actor, wording, now=now, before=values_of(row, STATED), after=None)
    return row
