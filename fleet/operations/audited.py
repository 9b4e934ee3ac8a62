"""Saving of forms and serializers: checks permission, version and validity, and writes a timeline entry.

Lengths, choices, labels and help texts are declared on the model. The module that writes the model declares:

    class RuleForm(AuditedForm):                  # for pages
        class Meta(AuditedForm.Meta):
            model, fields = Rule, ("name", "reason")

    class RuleSerializer(AuditedSerializer):      # for the API and direct callers: RuleSerializer(data={...})
        class Meta:
            model, fields = Rule, ("name", "reason")

    RULES = Audit(("name", "reason"), created=EntryKind.RULE_CREATED, ...)

    def create_rule(sent, *, actor, now):
        return save_audited(sent, actor, RULES, row=Rule(created_at=now), now=now, check=faults)

Pages and API views do not use models directly: a page passes a bound form, an API view the serializer `self.wanted`,
not validated yet. Both are validated here, after the permission check and against the locked row.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models, transaction
from rest_framework import serializers

from fleet.domain.actor import Actor
from fleet.domain.people import Right
from fleet.domain.policy.hours import json_value
from fleet.domain.policy.rules import Fault, refuse
from fleet.domain.reasons import require_version
from fleet.domain.timeline import EntryKind, differing
from fleet.models.fields import ListOf
from fleet.operations.inputs import ClockTime, RequestSerializer, Time, UtcField, flat_errors
from fleet.operations.rights import require
from fleet.operations.timeline.entries import tell

M = TypeVar("M", bound=models.Model)
Faults = Iterable[Fault]
Values = dict[str, Any]


def page_field(field: Any, **kwargs: Any) -> forms.Field | None:
    """Return the form field for a model field, as pages show it."""
    if isinstance(field, models.DateTimeField):
        kwargs["form_class"] = UtcField
    elif isinstance(field, models.TimeField):
        kwargs["widget"] = forms.TimeInput({"type": "time"}, format="%H:%M")
    elif field.choices:
        # A choice that has to be made offers no empty one.
        kwargs["initial"] = None
    made: forms.Field | None = field.formfield(**kwargs)
    return made


class AuditedForm(forms.ModelForm):  # type: ignore[type-arg]
    """Form for some fields of a model, for pages."""

    use_required_attribute = False

    class Meta:
        formfield_callback = page_field

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            ticks = isinstance(field.widget, forms.CheckboxInput | forms.CheckboxSelectMultiple | forms.RadioSelect)
            choice = "form-select" if isinstance(field.widget, forms.Select) else "form-control"
            field.widget.attrs.setdefault("class", "form-check-input" if ticks else choice)
            field.widget.attrs.setdefault("autocomplete", "off")

    def apply(self, row: models.Model, optional: Iterable[str] = ()) -> Faults:
        """Write the submitted values to `row`, without saving it, and return the faults. `optional` fields may be
        empty.
        """
        self.instance = row
        for name in optional:
            self.fields[name].required = False
        faults = [(name, str(text)) for name, texts in self.errors.items() for text in texts]
        for name in self.cleaned_data.keys() - {field.name for field in row._meta.get_fields()}:
            setattr(row, name, self.cleaned_data[name])
        return faults

    def show(self, refusal: Mapping[str, Any]) -> None:
        """Show the errors of a refusal next to the form fields that they name."""
        for error in refusal.get("errors") or [{"field": "", "message": refusal["sentence"]}]:
            field = error["field"] if error["field"] in self.fields else None
            if error["message"] not in self.errors.get(field or NON_FIELD_ERRORS, ()):
                self.add_error(field, error["message"])


class ValueList(serializers.ListField):
    """List field whose errors name the list, not a single value in it."""

    def run_child_validation(self, data: Any) -> Any:
        try:
            return super().run_child_validation(data)
        except serializers.ValidationError as error:
            texts = [found["message"] for found in flat_errors(error.detail)]
            raise serializers.ValidationError(texts) from error


class AuditedSerializer(RequestSerializer, serializers.ModelSerializer[Any]):
    """Serializer for some fields of a model, as API clients send them."""

    serializer_field_mapping = {
        **serializers.ModelSerializer.serializer_field_mapping,
        models.DateTimeField: Time,
        models.TimeField: ClockTime,
    }

    def build_standard_field(self, field_name: str, model_field: Any) -> Any:
        if isinstance(model_field, ListOf):
            each, of_each = self.build_standard_field(field_name, model_field.each)
            child, text = each(**of_each), model_field.help_text
            return ValueList, {"child": child, "required": False, "max_length": 50, "help_text": text}
        kind, kwargs = super().build_standard_field(field_name, model_field)
        # Labels are for pages.
        kwargs.pop("label", None)
        return kind, kwargs

    def apply(self, row: models.Model, optional: Iterable[str] = ()) -> Faults:
        """Write the sent values to `row`, without saving it, and return the faults. `optional` fields may be empty.

        Fields that are not sent remain unchanged.
        """
        self.instance, self.partial = row, row.pk is not None
        if not self.is_valid():
            return [(error["field"], error["message"]) for error in flat_errors(self.errors)]
        for name, value in self.validated_data.items():
            setattr(row, name, value)
        try:
            row.clean_fields({field.name for field in row._meta.fields} - self.fields.keys() | set(optional))
        except ValidationError as error:
            return [(name, text) for name, texts in error.message_dict.items() for text in texts]
        return []


Sent = AuditedForm | AuditedSerializer


@dataclass(frozen=True, slots=True)
class Audit:
    """How changes of one model are recorded on the timeline.

    `fields` are compared. `created`, `changed` and `deleted` are the kinds of entries; `data` returns further values
    for an entry. `version` is the column with the version: a number, or the time of the last change. `right` is the
    required right; None if the operation checks permissions itself.
    """

    fields: Collection[str]
    created: EntryKind
    deleted: EntryKind
    data: Callable[[Any], Mapping[str, Any]]
    changed: EntryKind | None = None
    version: str = ""
    right: Right | None = Right.ADMINISTER

    def require(self, actor: Actor) -> None:
        """Raise Refused `not-permitted` if the actor does not have the required right."""
        if self.right is not None:
            require(actor, self.right)

    def values(self, row: models.Model) -> Values:
        """Return the recorded fields of a row as JSON values."""
        return {name: json_value(getattr(row, name)) for name in self.fields}

    def recorded(self, row: models.Model, before: Values | None, after: Values | None) -> tuple[Any, Any]:
        """Return what an entry stores as before and after: for a change only the values that differ."""
        return (before, after) if before is None or after is None else differing(before, after)

    def touch(self, row: models.Model, now: Any) -> None:
        """Set the row's next version."""
        if self.version:
            old = getattr(row, self.version)
            setattr(row, self.version, old + 1 if isinstance(old, int) else now)


@transaction.atomic
def save_audited(
    sent: Sent,
    actor: Actor,
    audit: Audit,
    *,
    row: M,
    now: Any,
    expected: Collection[str] | None = None,
    check: Callable[[M], Faults] = lambda row: (),
) -> M:
    """Write what was sent to `row`, which is new or locked, and record the change. Without a difference nothing is
    written.

    `check` returns the faults of the whole row. `expected` are accepted versions of the row. Raises Refused:
    `not-permitted`, `precondition-failed`, `validation` (details `errors`).
    """
    audit.require(actor)
    old = None if row.pk is None else _before(row, audit, expected)
    refuse([*sent.apply(row)] or [*check(row)])
    before, after = audit.recorded(row, old, audit.values(row))
    if old is None:
        kind, actor = audit.created, actor.because(actor.why or getattr(row, "reason", ""))
    else:
        kind = audit.changed or audit.created
        if not after:
            return row
        audit.touch(row, now)
    row.save()
    tell(kind, actor, at=now, before=before, after=after, **audit.data(row))
    return row


@transaction.atomic
def delete_audited(
    row: models.Model, actor: Actor, audit: Audit, *, now: Any, expected: Collection[str] | None = None, **marks: Any
) -> None:
    """Delete a locked row and record it. With `marks`, set these columns instead of deleting the row.

    Raises Refused: `not-permitted`, `precondition-failed`.
    """
    audit.require(actor)
    before, _ = audit.recorded(row, _before(row, audit, expected), None)
    audit.touch(row, now)
    for name, value in marks.items():
        setattr(row, name, value)
    tell(audit.deleted, actor, at=now, before=before, after=None, **audit.data(row))
    if marks:
        row.save()
    else:
        row.delete()


def _before(row: models.Model, audit: Audit, expected: Collection[str] | None) -> Values:
    if audit.version:
        require_version(getattr(row, audit.version), expected)
    return audit.values(row)
