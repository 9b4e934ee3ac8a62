"""Changes of rules and no-approval windows, and the stop of all approvals."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django import forms
from django.db import IntegrityError, transaction

from fleet.domain.actor import Actor
from fleet.domain.event_types import TYPES
from fleet.domain.people import Right
from fleet.domain.policy.rules import APPROVES, SAID, Fault, StandingRule, faults, refuse, wording
from fleet.domain.policy.windows import Window, window_faults, window_wording
from fleet.domain.reasons import Reason, Refused, require_found, require_version
from fleet.domain.shapes import names_of
from fleet.domain.timeline import EntryKind
from fleet.models import NoApprovalWindow, Rule, Stop
from fleet.models.policy import rule_of, stop_in_force, window_of
from fleet.operations.audited import Audit, AuditedForm, AuditedSerializer, Sent, delete_audited, save_audited
from fleet.operations.locks import Lock, take
from fleet.operations.rights import acting, require
from fleet.operations.timeline.entries import tell

MOST_RULES = 200
# Fields that may be missing in a rule that is only tried.
MAY_LACK = ("name", "reason")


class RuleForm(AuditedForm):
    other_types = forms.CharField(
        required=False,
        max_length=10_000,
        widget=forms.TextInput({"placeholder": "exactly as Azure names them, with commas between"}),
    )

    class Meta(AuditedForm.Meta):
        model, fields = Rule, SAID
        widgets = {"action": forms.RadioSelect}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        others = [name for name in self.initial.get("event_types") or () if name not in TYPES]
        self.initial.setdefault("other_types", ", ".join(others))

    def clean(self) -> dict[str, Any]:
        sent = self.cleaned_data
        others = [name.strip() for name in sent.get("other_types", "").split(",")]
        return {**sent, "event_types": [*sent.get("event_types", ()), *filter(None, others)]}


class RuleFieldsSerializer(AuditedSerializer):
    """Fields of a rule. In a change, an omitted field remains as it is; in a new rule, it matches everything."""

    class Meta:
        model, fields = Rule, SAID
        extra_kwargs = {
            **{name: {"required": False, "allow_blank": True} for name in MAY_LACK},
            "action": {"required": False},
        }


class RuleRequestSerializer(RuleFieldsSerializer):
    class Meta(RuleFieldsSerializer.Meta):
        fields = (*SAID, "enabled", "position")


class WindowForm(AuditedForm):
    class Meta(AuditedForm.Meta):
        model, fields = NoApprovalWindow, names_of(Window)


class WindowRequestSerializer(AuditedSerializer):
    class Meta:
        model, fields = NoApprovalWindow, names_of(Window)


RULES = Audit(
    RuleRequestSerializer.Meta.fields,
    created=EntryKind.RULE_CREATED,
    changed=EntryKind.RULE_CHANGED,
    deleted=EntryKind.RULE_DELETED,
    data=lambda row: {"rule_id": row.pk, "name": row.name, "wording": wording(rule_of(row))},
    version="changed_at",
)
WINDOWS = Audit(
    WindowForm.Meta.fields,
    created=EntryKind.WINDOW_CREATED,
    deleted=EntryKind.WINDOW_DELETED,
    data=lambda row: {"window_id": row.pk, "name": row.name, "wording": window_wording(window_of(row))},
)


def create_rule(sent: Sent, *, actor: Actor, now: datetime) -> Rule:
    """Create a rule. By default it is disabled and last in the order. Raises Refused as `save_audited` does."""
    with _locked_order(actor) as order:
        if len(order) >= MOST_RULES:
            raise Refused("validation", Reason("rules-too-many", most=MOST_RULES))
        row = Rule(author=actor.person, created_at=now, changed_at=now, position=len(order) + 1)
        return _save(sent, row, [*order, row], actor=actor, now=now)


def change_rule(
    sent: Sent, *, rule_id: int, actor: Actor, now: datetime, expected: Collection[str] | None = None
) -> Rule:
    """Change the fields of a rule, enable or disable it, or move it. Earlier decisions retain their wording.

    A rule without an author (a ready-made one) gets the administrator who first changes it as author. Raises Refused:
    `not-found`, and as `save_audited` does.
    """
    with _locked_order(actor) as order:
        row = _of(order, rule_id)
        row.author = row.author or actor.person
        return _save(sent, row, order, actor=actor, now=now, expected=expected)


def move(*, rule_id: int, actor: Actor, now: datetime, steps: int, expected: Collection[str] | None = None) -> Rule:
    """Move a rule up (-1) or down (1) in the order, at most to the end. Raises Refused as `change_rule` does."""
    with _locked_order(actor) as order:
        position = max(1, min(_of(order, rule_id).position + steps, len(order)))
        sent = RuleRequestSerializer(data={"position": position})
        return change_rule(sent, rule_id=rule_id, actor=actor, now=now, expected=expected)


def delete_rule(*, rule_id: int, actor: Actor, now: datetime, expected: Collection[str] | None = None) -> Rule:
    """Mark a rule as deleted. Its decisions remain valid and refer to it. Raises Refused as `change_rule` does."""
    with _locked_order(actor) as order:
        row = _of(order, rule_id)
        delete_audited(row, actor, RULES, now=now, expected=expected, enabled=False, deleted_at=now)
        order.remove(row)
        _number(order)
    return row


def tried_rule(sent: Sent, *, now: datetime, rule_id: int | None = None, inside: str = "") -> StandingRule:
    """Return the rule that was sent, or a stored one with the sent changes, without saving it, for a simulation.

    It may have no name and be expired. `inside` is a prefix for the field names in errors. Raises Refused: `not-found`,
    `validation`.
    """
    row = Rule()
    if rule_id is not None:
        found = Rule.objects.filter(pk=rule_id, deleted_at__isnull=True).first()
        row = require_found(found, "not-found", Reason("rule-unknown"))
    rest = (fault for fault in faults(rule_of(row), now=now) if fault[0] != "expires_at")
    refuse([*sent.apply(row, MAY_LACK)] or [*rest], inside=inside)
    return rule_of(row)


def _save(
    sent: Sent, row: Rule, order: list[Rule], *, actor: Actor, now: datetime, expected: Collection[str] | None = None
) -> Rule:
    expiry = row.expires_at

    def check(row: Rule) -> list[Fault]:
        rule = rule_of(row)
        # An expiry that has passed may stay while the rule is off.
        may_stay = row.pk is not None and not row.enabled and row.expires_at == expiry
        found = [fault for fault in faults(rule, now=now) if fault[0] != "expires_at" or not may_stay]
        if any(other.name.casefold() == row.name.casefold() for other in order if other is not row):
            found.append(("name", Reason("rule-name-taken")))
        if row.position > len(order):
            found.append(("position", Reason("position-unknown", most=len(order))))
        if not found and rule.action in APPROVES and actor.token is not None and "approve" not in actor.token.scopes:
            # A token that may not approve has no rule approve for it.
            raise Refused("not-permitted", Reason("token-without-scope", scope="approve"))
        return found

    save_audited(sent, actor, RULES, row=row, now=now, expected=expected, check=check)
    order.remove(row)
    order.insert(row.position - 1, row)
    _number(order)
    return row


@contextmanager
def _locked_order(actor: Actor) -> Iterator[list[Rule]]:
    """Open a transaction with all rules in their order, locked, so that no other process changes one."""
    require(actor, Right.ADMINISTER)
    with transaction.atomic():
        take(Lock.RULES)
        yield list(Rule.objects.filter(deleted_at__isnull=True).select_related("author").order_by("position", "pk"))


def _of(order: list[Rule], rule_id: int) -> Rule:
    return require_found(next((row for row in order if row.pk == rule_id), None), "not-found", Reason("rule-unknown"))


def _number(order: list[Rule]) -> None:
    for number, row in enumerate(order, 1):
        if row.position != number:
            row.position = number
            row.save(update_fields=["position"])


# The switch for the worst hour: one row in Postgres stops every rule, wave, approval and order, in every process.


def stop_all(*, actor: Actor, now: datetime) -> Stop:
    """Stop all approvals until an administrator lifts the stop. Orders that Azure has already received continue.

    Approvers and administrators may do this, independent of their scopes. Raises Refused: `not-permitted`, `validation`
    (no reason), `stopped` (already stopped).
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
    """Lift the stop of all approvals. Earlier approvals then continue, unless NotBefore has passed.

    `expected` are accepted start times of the stop. Raises Refused: `not-permitted`, `validation`, `not-stopped`,
    `precondition-failed`.
    """
    actor = acting(actor, Right.ADMINISTER, doing="lift-stop")
    found = Stop.objects.select_for_update().filter(lifted_at__isnull=True).first()
    row = require_found(found, "not-stopped", Reason("not-stopped"))
    require_version(row.stopped_at, expected)
    row.lifted_at, row.lifted_by, row.lifted_why = now, actor.name, actor.why
    row.save(update_fields=["lifted_at", "lifted_by", "lifted_why"])
    before, after = {"approvals": "stopped"}, {"approvals": "possible"}
    tell(EntryKind.STOP_LIFTED, actor, at=now, before=before, after=after, by=row.stopped_by)
    return row


def create_window(sent: Sent, *, actor: Actor, now: datetime) -> NoApprovalWindow:
    """Create a no-approval window. Raises Refused as `save_audited` does."""
    row = NoApprovalWindow(author=actor.person, created_at=now)
    return save_audited(
        sent, actor, WINDOWS, row=row, now=now, check=lambda row: window_faults(window_of(row), now=now)
    )


@transaction.atomic
def delete_window(*, window_id: int, actor: Actor, now: datetime) -> NoApprovalWindow:
    """End a no-approval window permanently. Raises Refused: `not-permitted`, `not-found`."""
    require(actor, Right.ADMINISTER)
    found = NoApprovalWindow.objects.select_for_update().filter(pk=window_id, deleted_at__isnull=True).first()
    row = require_found(found, "not-found", Reason("window-unknown"))
    delete_audited(row, actor, WINDOWS, now=now, deleted_at=now)
    return row
