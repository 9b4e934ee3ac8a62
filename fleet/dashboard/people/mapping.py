"""The mapping of single sign-on, for admins: its lines, who would be what, and whose the accounts there are."""

from typing import Any

from django import forms
from django.conf import settings
from django.http import HttpResponse
from django.urls import reverse

from fleet.dashboard.forms import Sent, line
from fleet.dashboard.pages import Asked, acts, done, page, shown
from fleet.dashboard.pages import known as found
from fleet.dashboard.people.members import admins_only, scopes_of
from fleet.domain.people import GROUPS, Right
from fleet.domain.sign_on import LONGEST_SUBJECT, LONGEST_VALUE, Grant
from fleet.operations.people import mapping, sign_on
from fleet.projections import sign_on as known
from fleet.wording.people import all_roles


class LineForm(Sent):
    """`scopes` has one a line, as `kind: pattern`."""

    wrong = f"Enter a role or group of up to {LONGEST_VALUE} characters, choose a group, and write one scope a line."
    value = line(LONGEST_VALUE)
    group = forms.CharField(max_length=20)
    scopes = forms.CharField(required=False, max_length=20_000)

    def clean_scopes(self) -> list[tuple[str, str]]:
        return scopes_of(self.cleaned_data["scopes"])


class LinkForm(Sent):
    wrong = f"Enter a person's name, and the object id of the account with up to {LONGEST_SUBJECT} characters."
    username = line(150, required=True)
    subject = line(LONGEST_SUBJECT, required=True)


class TryForm(Sent):
    wrong = "Those are more claims than a token holds."
    claims = forms.CharField(required=False, max_length=known.MOST_PASTED)


def mapping_answer(request: Asked, /, **context: Any) -> HttpResponse:
    if not request.rights.may(Right.ADMINISTER):
        return admins_only(request)
    # The line that a form was about stays open where it was refused or tried.
    wanted = str(context.pop("grant_id", "") or context.pop("line", "") or request.GET.get("line", ""))
    context.pop("sign_on_id", None)
    lines = known.mapping()
    return page(
        request,
        "people/mapping.html",
        lines=lines,
        chosen_line=next((one for one in lines if str(one.id) == wanted), None),
        accounts=known.accounts(),
        groups=GROUPS,
        roles=all_roles(),
        issuer=settings.OIDC_ISSUER,
        claim=settings.OIDC_CLAIM,
        back=f"{settings.BASE_URL}{reverse('sign-on-back')}",
        grace=settings.OIDC_GRACE_SECONDS,
        passwords=settings.LOCAL_PASSWORDS,
        break_glass=settings.BREAK_GLASS,
        **context,
    )


mapping_page = shown(mapping_answer)


@acts(mapping_answer)
def try_mapping(request: Asked) -> HttpResponse:
    """Who would be what, by the lines that stand there, and by the claims that were pasted. Nothing is changed."""
    if not request.rights.may(Right.ADMINISTER):
        return admins_only(request)
    return mapping_answer(
        request, tried=known.dry_run(pasted=TryForm(request.POST).values["claims"]), sent=request.POST
    )


def _tried(request: Asked, instead: Grant, *, line: str = "") -> HttpResponse:
    """The same, as if one line were another."""
    if not request.rights.may(Right.ADMINISTER):
        return admins_only(request)
    lines = [one for one in mapping.grants() if one.value != instead.value]
    tried = known.dry_run([*lines, instead])
    return mapping_answer(request, tried=tried, trying=instead.value, line=line, sent=request.POST)


@acts(mapping_answer)
def make_line(request: Asked) -> HttpResponse:
    values = LineForm(request.POST).values
    if "try" in request.POST:
        return _tried(request, Grant(values["value"], values["group"], tuple(values["scopes"])))
    row = mapping.create(actor=request.actor, now=request.now, **values)
    return done(request, f"“{row.value}” is mapped. It counts from the next request on.", "mapping")


@acts(mapping_answer)
def change_line(request: Asked, grant_id: int) -> HttpResponse:
    values = LineForm(request.POST).values
    if "try" in request.POST:
        stands = found(known.grant(grant_id), "There is no such line.")
        return _tried(request, Grant(stands.value, values["group"], tuple(values["scopes"])), line=str(grant_id))
    wanted = {"group": values["group"], "scopes": values["scopes"]}
    row = mapping.change(actor=request.actor, grant_id=grant_id, now=request.now, **wanted)
    return done(request, f"“{row.value}” is changed. It counts from the next request on.", "mapping")


@acts(mapping_answer)
def delete_line(request: Asked, grant_id: int) -> HttpResponse:
    row = mapping.delete(actor=request.actor, grant_id=grant_id, now=request.now)
    return done(request, f"“{row.value}” gives nobody anything any more.", "mapping")


@acts(mapping_answer)
def link_account(request: Asked) -> HttpResponse:
    row = sign_on.link(actor=request.actor, now=request.now, **LinkForm(request.POST).values)
    person = row.user.get_username() if row.user else ""
    return done(request, f"Whoever comes with this account is {person}.", "mapping")


@acts(mapping_answer)
def unlink_account(request: Asked, sign_on_id: int) -> HttpResponse:
    sign_on.unlink(actor=request.actor, sign_on_id=sign_on_id, now=request.now)
    return done(request, "This account is nobody's any more, and its sessions have ended.", "mapping")
