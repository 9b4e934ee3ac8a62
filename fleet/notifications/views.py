"""Pages of channels, routes and the delivery log."""

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from django import forms
from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.templatetags.static import static
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from fleet.accounts.views import you_answer
from fleet.dashboard.forms import Sent, line
from fleet.dashboard.pages import Asked, action_view, done, known, listed, page, read_view, refused, require_reader
from fleet.dashboard.policy import HoursForm, boxes, seconds, text
from fleet.domain.event_types import ADVICE_TYPES, TYPES, Severity
from fleet.domain.people import Right
from fleet.domain.policy.rules import SOURCES, refuse
from fleet.domain.reasons import Refused
from fleet.notifications import channel_services as operations
from fleet.notifications import dry_run, log, route_services
from fleet.notifications import metrics as waiting
from fleet.notifications import queries as notification_queries
from fleet.notifications import route_services as route_operations
from fleet.notifications.kinds import KINDS, ChannelField, trying_faults_of
from fleet.notifications.labels import ALL_CHANNELS, KIND_WORDS, field_words
from fleet.notifications.log import UNSENT, EventNotifications
from fleet.notifications.notification_types import STEPS, NotificationType
from fleet.notifications.queries import BrowserRow, ChannelRow, RouteRow
from fleet.notifications.routing import (
    GROUP,
    TEST,
    DeliveryState,
    StandingRoute,
    changed_route,
)
from fleet.projections.events.rows import EventRow
from fleet.wording.badges import badge_of

BOX = {"class": "form-control", "autocomplete": "off"}
MOST_LETTERS = 10_000
# These are what steps of escalation tell: no route names them.


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
    """What `fleet.notifications.route_services` takes. `channels` are those to which it may lead; `own`: one has to be
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
    moments = boxes(
        "Moments",
        [
            (each.value, each.declared.label)
            for each in NotificationType
            if each not in STEPS and not each.declared.personal
        ],
    )
    event_types = boxes("Types", [(name, name) for name in (*TYPES, *ADVICE_TYPES)])
    sources = boxes("Sources", [(name, name) for name in SOURCES])
    severities = boxes("How bad", [(one.value, badge_of(one).label) for one in Severity])
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


# One channel: made, changed, tried, switched, given a new secret, deleted.

UNKNOWN_CHANNEL = "No channel has this number; it may have been deleted, or be somebody's own."
UNKNOWN_KIND = "There is no such kind of channel."


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
@require_reader
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
    found = known(
        notification_queries.detail(channel_id=channel_id, person=request.user, now=request.now), UNKNOWN_CHANNEL
    )
    if found.can_change and "form" not in context:
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
@require_reader
def channel_page(request: Asked, channel_id: int) -> HttpResponse:
    """One channel with its health, and its form for who may change it."""
    if request.method != "POST":
        return channel_answer(request, channel_id)
    found = known(
        notification_queries.detail(channel_id=channel_id, person=request.user, now=request.now), UNKNOWN_CHANNEL
    )
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


@action_view(channel_answer)
def channel_switch(request: Asked, channel_id: int) -> HttpResponse:
    enabled = request.POST.get("enabled") == "on"
    row = operations.change(channel_id=channel_id, actor=request.actor, now=request.now, enabled=enabled)
    return done(request, f"“{row.name}” is {'on' if row.enabled else 'off'}.", "channel", channel_id=row.pk)


@action_view(channel_answer)
def channel_test(request: Asked, channel_id: int) -> HttpResponse:
    """Leads to the page of the test, which follows it until the channel has answered."""
    delivery = operations.request_test(channel_id=channel_id, actor=request.actor, now=request.now)
    return redirect("delivery", delivery_id=delivery)


@action_view(channel_answer)
def channel_rotate(request: Asked, channel_id: int) -> HttpResponse:
    _, secret = operations.rotate(channel_id=channel_id, actor=request.actor, now=request.now)
    return channel_answer(request, channel_id, new_secret=secret)


@action_view(channel_answer)
def channel_delete(request: Asked, channel_id: int) -> HttpResponse:
    row = operations.delete(channel_id=channel_id, actor=request.actor, now=request.now)
    said = f"“{row.name}” is deleted, and its secrets are forgotten. What was sent through it stays in the log."
    return done(request, said, "you-messages" if row.owner_id else "messages")


# The log of messages out: what was sent with each attempt, what was not and why, and one post.

UNKNOWN_DELIVERY = "No post has this number."


@read_view
def sent_list(request: Asked) -> HttpResponse:
    """Posts, newest first."""
    read = partial(log.deliveries, user_id=request.user.pk, now=request.now, filters=request.GET)
    choices = _choices(request, list(DeliveryState), [*NotificationType, GROUP, TEST])
    return listed(request, "messages/log.html", "messages/sent_rows.html", read, **choices)


@read_view
def unsent_list(request: Asked) -> HttpResponse:
    """Messages that no post carries, newest first."""
    read = partial(log.unsent, user_id=request.user.pk, filters=request.GET)
    choices = _choices(request, list(UNSENT), list(NotificationType))
    return listed(request, "messages/log.html", "messages/unsent_rows.html", read, of_unsent=True, **choices)


def _choices(request: Asked, states: list[Any], moments: list[str]) -> dict[str, Any]:
    """What the filter offers, and what it is set to."""
    chosen = {name: request.GET.get(name, "") for name in ("channel", "state", "event", "moment")}
    return {
        "states": states,
        "moments": moments,
        "through": log.channels(user_id=request.user.pk),
        "chosen": chosen,
        "narrowed": any(chosen.values()),
    }


def delivery_answer(request: Asked, /, delivery_id: UUID, **context: Any) -> HttpResponse:
    """One post; also the answer to a form on it that was refused."""
    found = known(log.delivery(delivery_id=delivery_id, user_id=request.user.pk, now=request.now), UNKNOWN_DELIVERY)
    return page(request, "messages/delivery.html", {"messages/delivery_body.html": dict}, post=found, **context)


delivery_page = read_view(delivery_answer)


@action_view(delivery_answer)
def delivery_again(request: Asked, delivery_id: UUID) -> HttpResponse:
    """Send it once more, under the same id."""
    found = known(log.delivery(delivery_id=delivery_id, user_id=request.user.pk, now=request.now), UNKNOWN_DELIVERY)
    first = known(next(iter(found.messages), None), "This post carries no message: try its channel instead.")
    route_services.redeliver(message_id=first.id, actor=request.actor, now=request.now)
    return redirect("delivery", delivery_id=delivery_id)


# Channels with their health, and routes: the installation's, and on a page of its own what comes to oneself.

# What an address names of one row is of no use on the page of all.
OF_ONE = ("channel_id", "route_id")


def overview_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """The page of the installation's; also the answer to a form that was refused."""
    return _answer(request, own=False, **context)


def own_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """What also comes to oneself."""
    return _answer(request, own=True, **context)


def _answer(request: Asked, /, *, own: bool, **context: Any) -> HttpResponse:
    def rows() -> dict[str, Any]:
        found = notification_queries.listing(person=request.user, now=request.now)
        return {"channels": [row for row in found if row.own == own], "backlog": waiting.backlog(now=request.now)}

    routes = [row for row in notification_queries.routes(person=request.user) if row.own == own]
    # In the order in which they are useful to somebody who has none yet.
    kinds = {name: words for name, words in KIND_WORDS.items() if (KINDS[name].personal if own else name != "webpush")}
    kept = {name: value for name, value in context.items() if name not in OF_ONE}
    template = "messages/own.html" if own else "messages/overview.html"
    may_make = own or request.rights.may(Right.ADMINISTER)
    parts = {"messages/channel_rows.html": rows}
    return page(request, template, parts, own_only=own, routes=routes, kinds=kinds, may_make=may_make, **kept)


overview = read_view(overview_answer)
own = read_view(own_answer)


# One route: who is told what. It is tried on what happened before it is saved.

UNKNOWN_ROUTE = "No route has this number; it may have been deleted, or be somebody's own."


@require_http_methods(["GET", "HEAD", "POST"])
@require_reader
def route_new(request: Asked) -> HttpResponse:
    """The form of a new route; `own`: for what comes to oneself. Trying it saves nothing."""
    own = bool(request.GET.get("own"))
    if request.method == "POST":
        return _sent(request, None, own=own)
    return _route_answer(request, _form(request, None, own=own), None, own=own)


def route_answer(request: Asked, /, route_id: int, **context: Any) -> HttpResponse:
    """One route; also the answer to a form on it that was refused."""
    found = known(notification_queries.route(route_id=route_id, person=request.user), UNKNOWN_ROUTE)
    stands = notification_queries.standing(route_id=route_id, person=request.user) or StandingRoute()
    if request.GET.get("try"):
        context["tried"] = _try(request, stands, own=found.own)
    initial = {name: getattr(stands, name) for name in RouteForm.base_fields}
    return _route_answer(request, _form(request, None, own=found.own, initial=initial), found, own=found.own, **context)


@require_http_methods(["GET", "HEAD", "POST"])
@require_reader
def route_page(request: Asked, route_id: int) -> HttpResponse:
    """One route in words, its form for who may change it, and what it would have told."""
    if request.method != "POST":
        return route_answer(request, route_id)
    found = known(notification_queries.route(route_id=route_id, person=request.user), UNKNOWN_ROUTE)
    return _sent(request, found, own=found.own)


def _form(request: Asked, data: Any, *, own: bool, **fields: Any) -> RouteForm:
    through = [
        one
        for one in notification_queries.listing(person=request.user, now=request.now)
        if one.own == own and one.takes_messages
    ]
    return RouteForm(data, channels=through, own=own, **fields)


def _route_answer(
    request: Asked, form: RouteForm, found: RouteRow | None, *, own: bool, **context: Any
) -> HttpResponse:
    can_change = found.can_change if found else True
    return page(request, "messages/route.html", form=form, route=found, own_only=own, can_change=can_change, **context)


def _sent(request: Asked, found: RouteRow | None, *, own: bool) -> HttpResponse:
    """What the form's two buttons do: try such a route on the past, or save it."""
    form = _form(request, request.POST, own=own)
    if not form.is_valid():
        return _route_answer(request, form, found, own=own, status=422)
    acting: dict[str, Any] = {"actor": request.actor, "now": request.now}
    try:
        if request.POST.get("do") == "try":
            stands = notification_queries.standing(route_id=found.id, person=request.user) if found else None
            wanted = changed_route(stands or StandingRoute(), form.values())
            return _route_answer(request, form, found, own=own, tried=_try(request, wanted, own=own))
        if found:
            row = route_operations.change(route_id=found.id, fields=form.values(), **acting)
        else:
            row = route_operations.create(fields=form.values(), own=own, **acting)
    except Refused as error:
        context = refused(error)
        refusal = context.pop("refusal")
        form.refuse(refusal.get("errors", [{"field": "", "message": refusal["sentence"]}]))
        return _route_answer(request, form, found, own=own, **context)
    said = f"“{row.name}” is saved. What was told already keeps the wording that it was told by."
    return done(request, said, "you-messages" if row.owner_id else "messages")


def _try(request: Asked, route: StandingRoute, *, own: bool) -> dry_run.RouteDryRun:
    """What such a route would have told. Raises Refused."""
    refuse(trying_faults_of(route))
    return dry_run.dry_run(route=route, now=request.now, person=request.user if own else None)


@action_view(route_answer)
def route_switch(request: Asked, route_id: int) -> HttpResponse:
    enabled = request.POST.get("enabled") == "on"
    row = route_operations.change(route_id=route_id, actor=request.actor, now=request.now, enabled=enabled)
    said = f"“{row.name}” is {'on' if row.enabled else 'off'}."
    return done(request, said, "you-messages" if row.owner_id else "messages")


@action_view(route_answer)
def route_delete(request: Asked, route_id: int) -> HttpResponse:
    row = route_operations.delete(route_id=route_id, actor=request.actor, now=request.now)
    said = f"“{row.name}” is deleted. What it told stays in the log."
    return done(request, said, "you-messages" if row.owner_id else "messages")


# What makes an app of the pages: the worker that shows what was pushed, and what a phone's home screen is told.


@require_safe
def service_worker(request: HttpRequest) -> HttpResponse:
    """At the root, where it may act for every page."""
    found = Path(str(finders.find("drydock/sw.js")))
    answer = HttpResponse(found.read_bytes(), content_type="text/javascript; charset=utf-8")
    answer["Cache-Control"] = "no-cache"
    return answer


@require_safe
def manifest(request: HttpRequest) -> JsonResponse:
    """Its name, where it begins and its picture."""
    icon = {"src": static("drydock/mark.svg"), "sizes": "any", "type": "image/svg+xml"}
    said = {"name": "Drydock", "short_name": "Drydock", "start_url": "/", "display": "standalone", "icons": [icon]}
    return JsonResponse(said, content_type="application/manifest+json")


# What pages of the core show of notifications.


def told(event: EventRow, request: Asked) -> EventNotifications:
    """Return who was notified of an event, for the head of its page."""
    return log.of_event(event.id, user_id=request.user.pk, now=request.now)


def browsers(request: Asked) -> tuple[BrowserRow, ...]:
    """Return the user's own browsers, for the page of their account."""
    return notification_queries.own_browsers(user_id=request.user.pk)


class BrowserForm(Sent):
    wrong = "The browser has not said where it can be told."
    name = line(200, required=True)
    endpoint = line(2000, required=True)
    p256dh = line(200, required=True)
    auth = line(100, required=True)


@action_view(you_answer)
def push_key(request: Asked) -> HttpResponse:
    """For the script that asks the browser for a subscription; made when somebody asks for the first time."""
    return JsonResponse({"key": route_services.keys(now=request.now).public})


@action_view(you_answer)
def tell_browser(request: Asked) -> HttpResponse:
    route_services.begin(actor=request.actor, now=request.now, **BrowserForm(request.POST).values)
    return done(request, "This browser is told from now on.", "you")


@action_view(you_answer)
def end_browser(request: Asked, channel_id: int) -> HttpResponse:
    channel = route_services.end(actor=request.actor, channel_id=channel_id, now=request.now)
    return done(request, f"“{channel.name}” is told no more.", "you")
