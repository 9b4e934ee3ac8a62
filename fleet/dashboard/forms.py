"""What people send."""

from django import forms

from fleet.domain.sets import KIND_WORDS, NAMED_KINDS


class ApprovalForm(forms.Form):
    """`expected_version` is the event's version on the page that was looked at."""

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


class MergeForm(forms.Form):
    into = forms.IntegerField(label="Merge into", min_value=1)


class WithdrawalForm(forms.Form):
    comment = forms.CharField(label="Comment", required=False, max_length=2000, strip=True)
