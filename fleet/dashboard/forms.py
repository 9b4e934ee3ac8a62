"""What people send."""

from django import forms

from fleet.domain.conditions import When
from fleet.domain.drills import (
    DEFAULT_DURATION_SECONDS,
    DEFAULT_NOTICE_SECONDS,
    DEFAULT_TYPE,
    DURATION_SECONDS,
    KINDS,
    NOTICE_SECONDS,
)
from fleet.domain.sets import KIND_WORDS, NAMED_KINDS

# Those that a page offers.
WAYS = (When.NOW, When.PREPARED, When.TIME)


class ApprovalForm(forms.Form):
    """`expected_version` is the event's version on the page that was looked at. `at` is read in the person's zone."""

    when = forms.ChoiceField(
        choices=[(way.value, way.value) for way in (When.NOW, When.PREPARED, When.TIME)], required=False
    )
    at = forms.DateTimeField(required=False)

    comment = forms.CharField(
        label="Comment",
        required=False,
        max_length=2000,
        strip=True,
        widget=forms.TextInput(
            attrs={"class": "form-control", "autocomplete": "off", "placeholder": "Why, for those who read it later"}
        ),
    )
    expected_version = forms.IntegerField(widget=forms.HiddenInput, required=False)


class SetNameForm(forms.Form):
    name = forms.CharField(label="Name", max_length=200, strip=True)
    kind = forms.ChoiceField(label="Kind", choices=[(kind, KIND_WORDS[kind]) for kind in NAMED_KINDS])
    service = forms.CharField(label="Service", required=False, max_length=200, strip=True)


class DrillForm(forms.Form):
    """What is rehearsed. Which machines the event names is read beside it: it depends on the set."""

    type = forms.ChoiceField(label="Type", choices=[(kind, kind) for kind in KINDS], initial=DEFAULT_TYPE)
    notice_seconds = forms.IntegerField(
        label="Notice in seconds",
        min_value=NOTICE_SECONDS[0],
        max_value=NOTICE_SECONDS[1],
        initial=DEFAULT_NOTICE_SECONDS,
    )
    duration_seconds = forms.IntegerField(
        label="Duration in seconds",
        min_value=DURATION_SECONDS[0],
        max_value=DURATION_SECONDS[1],
        initial=DEFAULT_DURATION_SECONDS,
    )
    comment = forms.CharField(label="Comment", required=False, max_length=2000, strip=True)


class MergeForm(forms.Form):
    into = forms.IntegerField(label="Merge into", min_value=1)


class WithdrawalForm(forms.Form):
    comment = forms.CharField(label="Comment", required=False, max_length=2000, strip=True)


class ChoicesForm(forms.Form):
    time_zone = forms.CharField(required=False, max_length=100, strip=True)
    shortcuts = forms.BooleanField(required=False)


class TokenForm(forms.Form):
    name = forms.CharField(max_length=200, strip=True)
    scopes = forms.MultipleChoiceField(choices=[(scope, scope) for scope in ("read", "approve", "admin")])
    days = forms.IntegerField(min_value=1, max_value=366)


class PersonForm(forms.Form):
    """`scopes` has one a line, as `kind: pattern`."""

    username = forms.CharField(max_length=150, strip=True)
    group = forms.CharField(max_length=20)
    scopes = forms.CharField(required=False, max_length=20_000)
    active = forms.BooleanField(required=False)

    def clean_scopes(self) -> list[tuple[str, str]]:
        pairs = []
        for line in self.cleaned_data["scopes"].splitlines():
            if not line.strip():
                continue
            kind, colon, pattern = line.partition(":")
            if not colon:
                raise forms.ValidationError("Write one scope a line, such as name: web* or service: shop.")
            pairs.append((kind.strip().lower().replace(" ", "_"), pattern.strip()))
        return pairs

    @property
    def sentence(self) -> str:
        """What is wrong, for people."""
        wrong = self.errors.get("scopes")
        return str(wrong[0]) if wrong else "Say a name of up to 150 characters, and a group."


class ClaimForm(WithdrawalForm):
    take_over = forms.BooleanField(required=False)


class HoldForm(forms.Form):
    reason = forms.CharField(label="Reason", max_length=2000, strip=True)


class SecondPersonForm(forms.Form):
    second_person = forms.BooleanField(required=False)


class BeginWaveForm(forms.Form):
    """Where the events of a wave come from, and what is said about it; the events themselves are a list of boxes."""

    service = forms.CharField(required=False, max_length=200, strip=True)
    set = forms.IntegerField(required=False, min_value=1, max_value=2**63 - 1)
    comment = forms.CharField(label="Comment", required=False, max_length=2000, strip=True)
    reason = forms.CharField(label="Reason", required=False, max_length=2000, strip=True)
