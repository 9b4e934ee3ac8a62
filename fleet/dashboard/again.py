"""Logging in again in the middle of something: by the same person, and with what was typed still there."""

from typing import Any

from allauth.account.internal.stagekit import clear_login
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.shortcuts import render
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST
from django_htmx.middleware import HtmxDetails

from fleet.dashboard.login import Login
from fleet.dashboard.people import proof
from fleet.dashboard.people.second_factor import challenge_of, stage_of, throttled
from fleet.dashboard.saved_form import SavedForm, load_form, page_user
from fleet.projections.people.factors import factors_of


class Again(Login):
    """The box on a page (htmx), and the page that a form leads to when the session has ended (plain).

    Nobody else goes on with what somebody typed: another person's password is refused, and nobody is logged in by it.
    Nothing is sent by logging in: whoever is back presses the button once more, and sees what it would send.
    """

    redirect_authenticated_user = False
    http_method_names = ["post", "options"]

    @property
    def kept(self) -> SavedForm | None:
        return load_form(self.request.POST.get("kept", ""))

    @property
    def whose(self) -> str:
        """Who opened the page: it says so itself, or what it sent does."""
        if in_a_box(self.request):
            return page_user(self.request)
        return self.kept.username if self.kept else ""

    def get_template_names(self) -> list[str]:
        return ["again/box.html" if in_a_box(self.request) else "again/page.html"]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs, whose=self.whose, kept=self.kept)

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        answer = super().form_invalid(form)
        if answer.status_code == 200:
            answer.status_code = 401
        return answer

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        if form.get_user().get_username() != self.whose:
            context = self.get_context_data(form=form, other=True)
            return TemplateResponse(self.request, self.get_template_names(), context, status=403)
        kept, done = self.kept, super().form_valid(form)
        if stage_of(self.request) is not None:
            return _asks_factor(self.request, self.whose, kept)
        return _goes_on(self.request, kept, done)


again = never_cache(Again.as_view())


@never_cache
@require_POST
def again_factor(request: HttpRequest) -> HttpResponse:
    """The second factor of somebody who logs in again; where its login is over, the password is asked for anew."""
    kept = load_form(request.POST.get("kept", ""))
    whose = page_user(request) if in_a_box(request) else kept.username if kept else ""
    stage = stage_of(request)
    # Nobody else goes on with what somebody typed.
    if stage is None or stage.login.user.get_username() != whose:
        return _asks_password(request, whose, kept)
    found = proof.factor(request, stage.login.user, challenge=challenge_of(stage))
    if found.right:
        return _goes_on(request, kept, stage.exit())
    if found.over:
        clear_login(request)
        return _asks_password(request, whose, kept, said=found.said)
    return throttled(_asks_factor(request, whose, kept, said=found.said), found)


def _goes_on(request: HttpRequest, kept: SavedForm | None, done: HttpResponse) -> HttpResponse:
    """All the way in: what was typed is shown, and nothing is sent yet."""
    if in_a_box(request):
        answer = render(request, "again/done.html", {"token": get_token(request)})
    elif kept is not None:
        answer = render(request, "again/send.html", {"kept": kept})
    else:
        return done
    answer.cookies.update(done.cookies)
    return answer


def _asks_password(request: HttpRequest, whose: str, kept: SavedForm | None, said: str = "") -> HttpResponse:
    template = "again/box.html" if in_a_box(request) else "again/page.html"
    return render(request, template, {"whose": whose, "kept": kept, "said": said}, status=401)


def _asks_factor(request: HttpRequest, whose: str, kept: SavedForm | None, said: str = "") -> HttpResponse:
    user = stage_of(request).login.user
    context = {
        "factors": factors_of(user_id=user.pk),
        "options": proof.passkey_options(request, proof.Purpose.FACTOR, user),
    }
    template = "again/box.html" if in_a_box(request) else "again/page.html"
    return render(request, template, {"whose": whose, "kept": kept, "said": said, **context}, status=401)


def in_a_box(request: HttpRequest) -> bool:
    htmx: HtmxDetails = request.htmx  # type: ignore[attr-defined]
    return bool(htmx)


def stale(request: HttpRequest) -> HttpResponse | None:
    """The answer to a part of a page that was opened before its person logged in again elsewhere: it gets the new key,
    so that nothing typed is lost. None where it is somebody else's, or a plain form.
    """
    # No other site can send this header: a browser would ask us first, and we would not agree.
    if not in_a_box(request):
        return None
    whose = page_user(request)
    if not request.user.is_authenticated:
        answer = render(request, "again/box.html", {"whose": whose}, status=403)
    elif request.user.get_username() == whose:
        answer = render(request, "again/done.html", {"token": get_token(request)}, status=403)
    else:
        answer = render(request, "again/other.html", {"whose": whose}, status=403)
    answer["HX-Retarget"], answer["HX-Reswap"] = "#again", "innerHTML"
    return answer
