"""What people send about rules and no-approval windows."""

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.utils import timezone

from fleet.dashboard.forms import MomentField
from fleet.domain.approvals.guards import ACCEPTABLE
from fleet.domain.event_types import TYPES
from fleet.domain.policy.rules import SOURCES, Action
from fleet.wording.policy import ACCEPT_WORDS, ACTION_WORDS, WEEKDAYS

TEXT = {"class": "form-control", "autocomplete": "off"}
LOCAL_TIME = "%Y-%m-%dT%H:%M"


class UtcField(MomentField):
    """A moment as people write it in UTC, whatever time zone they read pages in."""

    widget = forms.DateTimeInput(attrs={"class": "form-control", "type": "datetime-local"}, format=LOCAL_TIME)

    def prepare_value(self, value: Any) -> Any:
        return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value

    def to_python(self, value: Any) -> datetime | None:
        with timezone.override(UTC):
            return super().to_python(value)


def text(label: str, **kwargs: Any) -> forms.CharField:
    attributes = TEXT | kwargs.pop("attributes", {})
    return forms.CharField(
        label=label, required=False, max_length=10_000, strip=True, widget=forms.TextInput(attributes), **kwargs
    )


def seconds(label: str) -> forms.IntegerField:
    attributes = {"class": "form-control", "inputmode": "numeric", "min": "0"}
    return forms.IntegerField(
        label=label, required=False, max_value=2**62, min_value=-(2**31), widget=forms.NumberInput(attributes)
    )


def boxes(label: str, choices: list[tuple[Any, str]]) -> forms.MultipleChoiceField:
    return forms.MultipleChoiceField(
        label=label, required=False, choices=choices, widget=forms.CheckboxSelectMultiple({"class": "form-check-input"})
    )


def clock(label: str) -> forms.TimeField:
    widget = forms.TimeInput({"class": "form-control", "type": "time"}, format="%H:%M")
    return forms.TimeField(label=label, required=False, widget=widget)


class HoursForm(forms.Form):
    """Where and when: rules and windows say it alike."""

    set_pattern = text("Sets named", attributes={"placeholder": "every set, or web*"})
    service = text("Service", attributes={"placeholder": "every service"})
    resource_group = text("Resource group", attributes={"placeholder": "every resource group"})
    weekdays = boxes("Weekdays", [(number, name) for number, name in enumerate(WEEKDAYS)])
    from_time = clock("From")
    until_time = clock("Until")
    time_zone = text("Time zone", initial="UTC")

    def values(self) -> dict[str, Any]:
        """What operations take: empty words as they are, days as numbers."""
        found = dict(self.cleaned_data)
        found["weekdays"] = [int(day) for day in found["weekdays"]]
        found["time_zone"] = found["time_zone"] or "UTC"
        return found

    def refuse(self, errors: list[dict[str, str]]) -> None:
        """Show what an operation found wrong at the fields that it names."""
        for error in errors:
            known = error["field"] if error["field"] in self.fields else None
            self.add_error(known, error["message"])


class RuleForm(HoursForm):
    name = text("Name", attributes={"maxlength": "200"})
    reason = text("Reason", attributes={"maxlength": "2000", "placeholder": "Why, for those who read its decisions"})
    action = forms.ChoiceField(
        label="What it does",
        choices=[(action.value, ACTION_WORDS[action]) for action in Action],
        widget=forms.RadioSelect({"class": "form-check-input"}),
    )
    event_types = boxes("Types", [(name, name) for name in TYPES])
    other_types = text("Other types", attributes={"placeholder": "exactly as Azure names them, with commas between"})
    sources = boxes("Sources", [(name, name) for name in SOURCES])
    min_duration_seconds = seconds("At least, in seconds")
    max_duration_seconds = seconds("At most, in seconds")
    unknown_duration = forms.BooleanField(
        label="An unknown duration matches, too",
        required=False,
        widget=forms.CheckboxInput({"class": "form-check-input"}),
    )
    min_notice_seconds = seconds("At least, in seconds")
    max_notice_seconds = seconds("At most, in seconds")
    accepts = boxes("Even if", [(code, ACCEPT_WORDS[code]) for code in ACCEPTABLE])
    expires_at = UtcField(label="Expires (UTC)", required=False)

    field_order = ("name", "reason", "action")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        others = [name for name in self.initial.get("event_types") or () if name not in TYPES]
        if others:
            self.initial["other_types"] = ", ".join(others)

    def values(self) -> dict[str, Any]:
        found = super().values()
        others = [name.strip() for name in found.pop("other_types").split(",")]
        found["event_types"] = [*found["event_types"], *filter(None, others)]
        return found


class WindowForm(HoursForm):
    name = text("Name", attributes={"maxlength": "200", "placeholder": "Summer sale"})
    reason = text("Reason", attributes={"maxlength": "2000", "placeholder": "Why nothing should be approved then"})
    starts_at = UtcField(label="Once, from (UTC)", required=False)
    ends_at = UtcField(label="Once, until (UTC)", required=False)
