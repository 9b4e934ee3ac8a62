"""What people send."""

from django import forms


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


class WithdrawalForm(forms.Form):
    comment = forms.CharField(label="Comment", required=False, max_length=2000, strip=True)
