"""What people send about channels and routes: fields of a channel come from its kind."""

from collections.abc import Collection, Mapping
from typing import Any

from django import forms

from fleet.dashboard.policy.forms import HoursForm, boxes, seconds, text
from fleet.domain.events.types import ADVICE_TYPES, TYPES
from fleet.domain.messages.kinds import KINDS, ChannelField
from fleet.domain.messages.moments import PERSONAL, Moment
from fleet.domain.messages.severity import Severity
from fleet.domain.policy.faults import SOURCES
from fleet.projections.messages.channels import ChannelRow
from fleet.wording.channels import ALL_CHANNELS, moment_label
from fleet.wording.kinds import field_words
from fleet.wording.looks import SEVERITY_LOOKS

BOX = {"class": "form-control", "autocomplete": "off"}
MOST_LETTERS = 10_000
# These are what steps of escalation tell: no route names them.
BY_CLOCK = (Moment.UNCLAIMED, Moment.UNDECIDED)


class ChannelForm(forms.Form):
    """Its name, and a field for each setting that its kind takes from people. A secret that is `kept` is not shown, and
    left empty it stays.
    """

    def __init__(self, *args: Any, kind: str, kept: Collection[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kind, self.kept = kind, frozenset(kept)
        self.fields["name"] = text("Name", attributes={"maxlength": "200"}, help_text="As messages and logs call it.")
        for one in KINDS[kind].fields:
            if not one.made:
                self.fields[one.name] = self._field(one)

    def _field(self, one: ChannelField) -> forms.Field:
        words = field_words(self.kind, one.name)
        if one.input == "switch":
            box = forms.CheckboxInput({"class": "form-check-input"})
            return forms.BooleanField(label=words.label, required=False, help_text=words.help, widget=box)
        said, attributes = words.help, {**BOX, "placeholder": words.example}
        widget: forms.Widget = forms.TextInput(attributes)
        if one.input == "lines":
            widget = forms.Textarea({**attributes, "rows": "3"})
        elif one.secret:
            if one.name in self.kept:
                said, attributes["placeholder"] = "Set: write a new one to replace it.", ""
            widget = forms.PasswordInput({**attributes, "autocomplete": "new-password"})
        label = words.label if one.required else f"{words.label} (optional)"
        return forms.CharField(label=label, required=False, max_length=MOST_LETTERS, help_text=said, widget=widget)

    def values(self) -> dict[str, Any]:
        """What operations take besides the name: a setting that was emptied is None, a secret that was not touched is
        left out.
        """
        sent = {name: value for name, value in self.cleaned_data.items() if name != "name"}
        untouched = {name for name in KINDS[self.kind].secrets if not sent.get(name)}
        return {name: value or None for name, value in sent.items() if name not in untouched}

    def refuse(self, errors: list[dict[str, str]]) -> None:
        """Show what an operation found wrong at the fields that it names."""
        for error in errors:
            self.add_error(error["field"] if error["field"] in self.fields else None, error["message"])


def shown_settings(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Settings as the form shows them: lists line by line."""
    lines = {key: "\n".join(value) if isinstance(value, list) else value for key, value in settings.items()}
    return {"name": name, **lines}


class RouteForm(HoursForm):
    """What `fleet.operations.messages.routes` takes. `channels` are those to which it may lead; `own`: one has to be
    chosen.
    """

    name = text("Name", attributes={"maxlength": "200"})
    channel_id = forms.TypedChoiceField(
        label="Through",
        required=False,
        coerce=int,
        empty_value=None,
        widget=forms.Select({"class": "form-select"}),
    )
    moments = boxes("Moments", [(one.value, moment_label(one)) for one in Moment if one not in {*BY_CLOCK, *PERSONAL}])
    event_types = boxes("Types", [(name, name) for name in (*TYPES, *ADVICE_TYPES)])
    sources = boxes("Sources", [(name, name) for name in SOURCES])
    severities = boxes("How bad", [(one.value, SEVERITY_LOOKS[one].label) for one in Severity])
    unclaimed_after_seconds = seconds("While nobody is on it, after so many seconds")
    before_decide_by_seconds = seconds("While nobody has decided, so many seconds before “decide by”")

    field_order = ("name", "channel_id", "moments")

    def __init__(self, *args: Any, channels: Collection[ChannelRow], own: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        first = ("", "choose one" if own else ALL_CHANNELS)
        through: Any = self.fields["channel_id"]
        through.choices = [first, *((one.id, one.name) for one in channels)]

    def refuse(self, errors: list[dict[str, str]]) -> None:
        named = {"channel": "channel_id"}
        super().refuse([{**error, "field": named.get(error["field"], error["field"])} for error in errors])
