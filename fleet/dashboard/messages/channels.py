"""One channel: made, changed, tried, switched, given a new secret, deleted."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from fleet.dashboard.messages.forms import ChannelForm, shown_settings
from fleet.dashboard.pages import Asked, acts, done, known, page, reader, refused
from fleet.domain.messages.kinds import KINDS
from fleet.domain.refusal import Refused
from fleet.operations.messages import channels as operations
from fleet.projections.messages import backlog as waiting
from fleet.projections.messages import channels
from fleet.wording.kinds import KIND_WORDS

UNKNOWN = "No channel has this number; it may have been deleted, or be somebody's own."
UNKNOWN_KIND = "There is no such kind of channel."


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
@reader
def channel_new(request: Asked, kind: str) -> HttpResponse:
    """The form of a new channel of this kind; `own`: for oneself."""
    known(KINDS.get(kind), UNKNOWN_KIND)
    own = bool(request.GET.get("own"))
    form = ChannelForm(request.POST or None, kind=kind)
    if request.method != "POST":
        return _form_answer(request, form, own=own)
    if not form.is_valid():
        return _form_answer(request, form, own=own, status=422)
    try:
        row, secret = operations.create(
            actor=request.actor,
            now=request.now,
            kind=kind,
            name=form.cleaned_data["name"],
            values=form.values(),
            own=own,
        )
    except Refused as error:
        return _form_answer(request, form, own=own, **_at_fields(form, error))
    if secret:
        return channel_answer(request, row.pk, new_secret=secret)
    return done(request, f"“{row.name}” is set up. Try it: its own answer is shown.", "channel", channel_id=row.pk)


def _form_answer(request: Asked, form: ChannelForm, *, own: bool, **context: Any) -> HttpResponse:
    words = KIND_WORDS[form.kind]
    return page(request, "messages/channel_new.html", form=form, words=words, own_only=own, **context)


def _at_fields(form: ChannelForm, error: Refused) -> dict[str, Any]:
    """The refusal, said at the fields that it names."""
    context = refused(error)
    refusal = context.pop("refusal")
    form.refuse(refusal.get("errors", [{"field": "", "message": refusal["sentence"]}]))
    return context


def channel_answer(request: Asked, /, channel_id: int, **context: Any) -> HttpResponse:
    """One channel; also the answer to a form on it that was refused, or made a secret."""
    found = known(channels.detail(channel_id=channel_id, person=request.user, now=request.now), UNKNOWN)
    if found.may_change and "form" not in context:
        initial = shown_settings(found.settings or {}, found.name)
        context["form"] = ChannelForm(initial=initial, kind=found.kind, kept=found.secrets_set or ())
    return page(
        request,
        "messages/channel.html",
        channel=found,
        words=KIND_WORDS[found.kind],
        backlog=waiting.backlog(now=request.now),
        rotates=any(field.made for field in KINDS[found.kind].fields),
        **context,
    )


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
@reader
def channel_page(request: Asked, channel_id: int) -> HttpResponse:
    """One channel with its health, and its form for who may change it."""
    if request.method != "POST":
        return channel_answer(request, channel_id)
    found = known(channels.detail(channel_id=channel_id, person=request.user, now=request.now), UNKNOWN)
    form = ChannelForm(request.POST, kind=found.kind, kept=found.secrets_set or ())
    if not form.is_valid():
        return channel_answer(request, channel_id, form=form, status=422)
    try:
        row = operations.change(
            channel_id=channel_id,
            actor=request.actor,
            now=request.now,
            name=form.cleaned_data["name"],
            values=form.values(),
        )
    except Refused as error:
        return channel_answer(request, channel_id, form=form, **_at_fields(form, error))
    return done(request, f"“{row.name}” is saved.", "channel", channel_id=row.pk)


@acts(channel_answer)
def channel_switch(request: Asked, channel_id: int) -> HttpResponse:
    enabled = request.POST.get("enabled") == "on"
    row = operations.change(channel_id=channel_id, actor=request.actor, now=request.now, enabled=enabled)
    return done(request, f"“{row.name}” is {'on' if row.enabled else 'off'}.", "channel", channel_id=row.pk)


@acts(channel_answer)
def channel_test(request: Asked, channel_id: int) -> HttpResponse:
    """Leads to the page of the test, which follows it until the channel has answered."""
    delivery = operations.request_test(channel_id=channel_id, actor=request.actor, now=request.now)
    return redirect("delivery", delivery_id=delivery)


@acts(channel_answer)
def channel_rotate(request: Asked, channel_id: int) -> HttpResponse:
    _, secret = operations.rotate(channel_id=channel_id, actor=request.actor, now=request.now)
    return channel_answer(request, channel_id, new_secret=secret)


@acts(channel_answer)
def channel_delete(request: Asked, channel_id: int) -> HttpResponse:
    row = operations.delete(channel_id=channel_id, actor=request.actor, now=request.now)
    said = f"“{row.name}” is deleted, and its secrets are forgotten. What was sent through it stays in the log."
    return done(request, said, "you-messages" if row.owner_id else "messages")
