"""Form fields and classes that all pages share."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from fleet.domain.actor import Actor
from fleet.domain.approvals.guards import TAKE_REASONS
from fleet.domain.reasons import Refused
from fleet.operations.audited import AuditedForm

Answer = Callable[..., HttpResponseBase]


def line(most: int = 2000, *, required: bool = False) -> forms.CharField:
    """Return a form field for one line of text of at most `most` characters."""
    return forms.CharField(required=required, max_length=most, strip=True)


def of_guards(what: str, request: HttpRequest) -> dict[str, str]:
    """Return the submitted fields of guards by guard code. `what` is `reason` for the reasons, or `shown` for the
    digests of what the page has shown.
    """
    return {code: request.POST[f"{what}-{code}"] for code in TAKE_REASONS if f"{what}-{code}" in request.POST}


class Sent(forms.Form):
    """Form whose fields are written in a template by hand. `wrong` is the error message, which describes valid
    values.
    """

    wrong = ""

    def said(self) -> str:
        """Return the error message of the form for users."""
        return self.wrong or " ".join(str(one[0]) for one in self.errors.values())

    @property
    def values(self) -> dict[str, Any]:
        """Return the validated values of the form. Raises Refused `validation`."""
        if not self.is_valid():
            raise Refused("validation", self.said())
        return self.cleaned_data


def refused_form(answer: Answer, form_of: Callable[[Any], AuditedForm], name: str = "form") -> Answer:
    """Return a version of `answer` for a refused form. It shows the form again under the context name `name`, with the
    errors at its fields.
    """

    def shown(request: Any, /, *args: Any, refusal: dict[str, Any], **context: Any) -> HttpResponseBase:
        form = form_of(request.POST)
        form.show(refusal)
        if any(field in form.errors for field in form.fields):
            refusal = refusal | {"sentence": "Nothing was saved: see the fields that are marked."}
        return answer(request, *args, refusal=refusal, **context, **{name: form})

    return shown


class CommentForm(Sent):
    wrong = "The comment may have up to 2,000 characters."
    comment = line()


def commented(request: Any) -> Actor:
    """Return the acting user, with the form's comment as the reason."""
    actor: Actor = request.actor.because(CommentForm(request.POST).values["comment"])
    return actor
