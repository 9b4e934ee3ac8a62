"""Everybody, for admins: who is here, what they may, what they did."""

from datetime import timedelta
from functools import partial
from typing import Any

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.debug import sensitive_post_parameters

from fleet.dashboard.forms import Sent, line
from fleet.dashboard.pages import Asked, Panel, acts, done, known, listed, loaded, page, refused, shown
from fleet.dashboard.people.you import DAYS, TokenForm
from fleet.domain.people import GROUPS, Right
from fleet.domain.reasons import Refused
from fleet.operations.people import accounts, factors, service_accounts, tokens
from fleet.operations.people import forget as forgetting
from fleet.projections import people
from fleet.projections.people.sessions import sessions
from fleet.wording.people import all_roles, counted_part

# So many of a person are shown.
MOST_SESSIONS = 100
NOBODY = "Nobody has this name."


def scopes_of(text: str) -> list[tuple[str, str]]:
    """Scopes as people write them, one a line. Raises ValidationError."""
    pairs = []
    for each in text.splitlines():
        kind, colon, pattern = each.partition(":")
        if colon:
            pairs.append((kind.strip().lower().replace(" ", "_"), pattern.strip()))
        elif each.strip():
            raise forms.ValidationError("Write one scope a line, such as name: web* or service: shop.")
    return pairs


class PersonForm(Sent):
    """`scopes` has one a line, as `kind: pattern`."""

    username = line(150, required=True)
    group = forms.CharField(max_length=20)
    scopes = forms.CharField(required=False, max_length=20_000)
    active = forms.BooleanField(required=False)

    def clean_scopes(self) -> list[tuple[str, str]]:
        return scopes_of(self.cleaned_data["scopes"])

    def said(self) -> str:
        found = self.errors.get("scopes")
        return str(found[0]) if found else "Enter a name of up to 150 characters, and choose a group."


def admins_only(request: Asked) -> HttpResponse:
    """The answer to everybody else."""
    return render(request, "403.html", {"reason": "Managing people needs the right of an admin."}, status=403)


class ServiceForm(PersonForm):
    wrong = "Enter a name, choose a group, and say who answers for it and what it is for."
    owner = line(150, required=True)
    purpose = line(200, required=True)


class OwnerForm(Sent):
    wrong = "Say who answers for it and what it is for."
    owner = line(150, required=True)
    purpose = line(200, required=True)


def people_answer(request: Asked, /, **context: Any) -> HttpResponse:
    if not request.rights.may(Right.ADMINISTER):
        return admins_only(request)
    wanted = request.GET.get("q", "").replace("\x00", "")
    return listed(
        request,
        "people/list.html",
        "people/person_rows.html",
        partial(people.listing, q=wanted),
        groups=GROUPS,
        roles=all_roles(),
        **context,
    )


people_page = shown(people_answer)


# Of annexes, at the end of a person's page; each loads what it shows for the person.
PANELS: list[Panel] = []


def person_answer(request: Asked, /, username: str, **context: Any) -> HttpResponse:
    if not request.rights.may(Right.ADMINISTER):
        return admins_only(request)
    found = known(people.detail(username=username), NOBODY)
    return page(
        request,
        "people/person.html",
        found=found,
        scopes="\n".join(f"{scope.kind}: {scope.pattern}" for scope in found.scopes),
        tokens=people.tokens(username=username),
        sessions=sessions(
            username=username, session_key=str(request.session.session_key), now=request.now, size=MOST_SESSIONS
        ).results,
        groups=GROUPS,
        roles=all_roles(),
        days=DAYS,
        allowed=tokens.SCOPES,
        panels=loaded(PANELS, found),
        **context,
    )


person_page = shown(person_answer)


@sensitive_post_parameters()
@acts(people_answer)
def make_person(request: Asked) -> HttpResponse:
    values = PersonForm(request.POST).values
    made, plain = accounts.make_person(
        username=values["username"],
        group=values["group"],
        scopes=values["scopes"],
        actor=request.actor,
        now=request.now,
    )
    return person_answer(request, made.get_username(), new_password=plain)


@acts(person_answer)
def change_person(request: Asked, username: str) -> HttpResponse:
    values = PersonForm({**request.POST.dict(), "username": username}).values
    accounts.change_person(**values, actor=request.actor, now=request.now)
    return done(request, "Saved. It counts from the next request on.", "person", username=username)


@sensitive_post_parameters()
@acts(person_answer)
def reset_password(request: Asked, username: str) -> HttpResponse:
    plain = accounts.reset_password(username=username, actor=request.actor, now=request.now)
    return person_answer(request, username, new_password=plain)


def forget_answer(request: Asked, /, username: str, **context: Any) -> HttpResponse:
    if not request.rights.may(Right.ADMINISTER):
        return admins_only(request)
    known(people.detail(username=username), NOBODY)
    plan = None
    try:
        plan = forgetting.preview(username=username, actor=request.actor)
    except Refused as error:
        context = {**refused(error), **context}
    return page(
        request,
        "people/forget.html",
        plan=plan,
        username=username,
        goes=[counted_part(part.what, part.count) for part in plan.goes] if plan else [],
        stays=[counted_part(part.what, part.count, more=part.most) for part in plan.stays] if plan else [],
        **context,
    )


forget_page = shown(forget_answer)


@acts(forget_answer)
def forget_person(request: Asked, username: str) -> HttpResponse:
    found = forgetting.forget(
        username=username, confirmed=request.POST.get("confirmed", ""), actor=request.actor, now=request.now
    )
    return done(request, f"The name was erased: who had it is {found.former} from now on.", "people")


@acts(person_answer)
def reset_factors(request: Asked, username: str) -> HttpResponse:
    gone = factors.remove_all(username=username, actor=request.actor, now=request.now)
    said = "Their password alone lets them in until they add another one." if gone else "There was none to remove."
    return done(request, said, "person", username=username)


@acts(people_answer)
def make_service(request: Asked) -> HttpResponse:
    values = ServiceForm(request.POST).values
    values.pop("active")
    row = service_accounts.make(actor=request.actor, now=request.now, **values)
    return done(request, "It is there. Make it a token.", "person", username=row.user.get_username())


@acts(person_answer)
def change_service(request: Asked, username: str) -> HttpResponse:
    values = OwnerForm(request.POST).values
    service_accounts.change(username=username, actor=request.actor, now=request.now, **values)
    return done(request, "Saved.", "person", username=username)


@sensitive_post_parameters()
@acts(person_answer)
def make_service_token(request: Asked, username: str) -> HttpResponse:
    values = TokenForm(request.POST).values
    _, plain = service_accounts.make_token(
        username=username,
        name=values["name"],
        scopes=values["scopes"],
        expires_in=timedelta(days=values["days"]),
        allowed_from=values["allowed_from"].splitlines(),
        actor=request.actor,
        now=request.now,
    )
    return person_answer(request, username, new_token=plain)
