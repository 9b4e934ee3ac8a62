"""Pages for channels, routes and the delivery log."""

from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.templatetags.static import static
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_safe

from fleet.accounts.views import you_answer
from fleet.dashboard import forms
from fleet.dashboard.pages import Asked, action_view, done, form_view, known, listed, page, read_view, refused
from fleet.domain.people import Right
from fleet.domain.reasons import Refused
from fleet.notifications import channel_services, dry_run, log, queries, route_services
from fleet.notifications.channel_services import ChannelFieldsSerializer, ChannelForm
from fleet.notifications.channels import KINDS
from fleet.notifications.log import UNSENT, EventNotifications
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.queries import ChannelRow, RouteRow
from fleet.notifications.route_services import RouteChangeSerializer, RouteFieldsSerializer, RouteForm
from fleet.notifications.routing import GROUP, TEST, DeliveryState
from fleet.operations.audited import AuditedForm, Sent
from fleet.projections.events.rows import EventRow
from fleet.projections.pages import MAX_PAGE_SIZE

# One channel: create, change, test, enable, rotate its secret, delete.

UNKNOWN_CHANNEL = "No channel has this number; it may have been deleted, or belong to another user."


@sensitive_post_parameters()
@form_view("channels/new/<slug:kind>/", "channel-new")
def channel_new(request: Asked, kind: str) -> HttpResponse:
    """Show the form for a new channel of this kind (GET), or create the channel (POST). The parameter `own` makes it
    personal.
    """
    known(KINDS.get(kind), "There is no such kind of channel.")
    own, form = bool(request.GET.get("own")), ChannelForm(request.POST or None, kind=kind)
    context: dict[str, Any] = {}
    if request.method == "POST":
        try:
            row, secret = channel_services.create(form, actor=request.actor, now=request.now, kind=kind, own=own)
        except Refused as error:
            context = _at_fields(form, error)
        else:
            if secret:
                return channel_answer(request, row.pk, new_secret=secret)
            message = f"“{row.name}” has been created. Test it: its own answer is shown."
            return done(request, message, "channel", channel_id=row.pk)
    return page(request, "messages/channel_new.html", form=form, kind=kind, words=KINDS[kind], own_only=own, **context)


def _at_fields(form: AuditedForm, error: Refused) -> dict[str, Any]:
    """Show the faults of a refusal at the form fields that they name. Return the rest of the refusal as context for the
    page.
    """
    context = refused(error)
    form.show(context.pop("refusal"))
    return context


def channel_answer(request: Asked, /, channel_id: int, **context: Any) -> HttpResponse:
    """Return the page of one channel. `context` adds for example a rejected form or a new secret."""
    channel = _channel(request, channel_id)
    if channel.can_change and "form" not in context:
        context["form"] = _channel_form(channel)
    backlog = queries.backlog(now=request.now)
    return page(
        request, "messages/channel.html", channel=channel, words=KINDS[channel.kind], backlog=backlog, **context
    )


def _channel(request: Asked, channel_id: int) -> ChannelRow:
    row = queries.detail(channel_id=channel_id, person=request.user, now=request.now)
    return known(row, UNKNOWN_CHANNEL)


def _channel_form(channel: ChannelRow, data: Any = None) -> ChannelForm:
    initial = {"name": channel.name, **(channel.settings or {})}
    return ChannelForm(data, kind=channel.kind, secrets_set=channel.secrets_set or (), initial=initial)


@sensitive_post_parameters()
@form_view("channels/<int:channel_id>/", "channel")
def channel_page(request: Asked, channel_id: int) -> HttpResponse:
    """Show one channel and its health. Users who may change it also see the form."""
    if request.method != "POST":
        return channel_answer(request, channel_id)
    form = _channel_form(_channel(request, channel_id), request.POST)
    try:
        row = channel_services.change(form, channel_id=channel_id, actor=request.actor, now=request.now)
    except Refused as error:
        return channel_answer(request, channel_id, form=form, **_at_fields(form, error))
    return done(request, f"“{row.name}” is saved.", "channel", channel_id=row.pk)


@action_view("channels/<int:channel_id>/switch/", "channel-switch", channel_answer)
def channel_switch(request: Asked, channel_id: int) -> HttpResponse:
    sent = ChannelFieldsSerializer(data={"enabled": request.POST.get("enabled") == "on"})
    row = channel_services.change(sent, channel_id=channel_id, actor=request.actor, now=request.now)
    return done(request, f"“{row.name}” is {'on' if row.enabled else 'off'}.", "channel", channel_id=row.pk)


@action_view("channels/<int:channel_id>/test/", "channel-test", channel_answer)
def channel_test(request: Asked, channel_id: int) -> HttpResponse:
    """Start a test of a channel. Redirect to the page of the test, which refreshes until the channel has responded."""
    delivery = channel_services.request_test(channel_id=channel_id, actor=request.actor, now=request.now)
    return redirect("delivery", delivery_id=delivery)


@action_view("channels/<int:channel_id>/rotate/", "channel-rotate", channel_answer)
def channel_rotate(request: Asked, channel_id: int) -> HttpResponse:
    _, secret = channel_services.rotate(channel_id=channel_id, actor=request.actor, now=request.now)
    return channel_answer(request, channel_id, new_secret=secret)


@action_view("channels/<int:channel_id>/delete/", "channel-delete", channel_answer)
def channel_delete(request: Asked, channel_id: int) -> HttpResponse:
    row = channel_services.delete(channel_id=channel_id, actor=request.actor, now=request.now)
    message = f"“{row.name}” is deleted, and its secrets are forgotten. What was sent through it stays in the log."
    return _to_list(request, row, message)


# The delivery log: deliveries with their attempts, unsent messages with the reason, and one delivery.

UNKNOWN_DELIVERY = "No delivery has this number."


@read_view("messages/log/", "message-log")
def sent_list(request: Asked) -> HttpResponse:
    """Show the list of deliveries, newest first."""
    read = partial(log.deliveries, person=request.user, now=request.now, filters=request.GET)
    choices = _choices(request, list(DeliveryState), [*NotificationType, GROUP, TEST])
    return listed(request, "messages/log.html", "messages/sent_rows.html", read, **choices)


@read_view("messages/log/unsent/", "message-unsent")
def unsent_list(request: Asked) -> HttpResponse:
    """Show the list of messages without a delivery, newest first."""
    read = partial(log.unsent, person=request.user, filters=request.GET)
    choices = _choices(request, list(UNSENT), list(NotificationType))
    return listed(request, "messages/log.html", "messages/unsent_rows.html", read, of_unsent=True, **choices)


def _choices(request: Asked, states: list[Any], moments: list[str]) -> dict[str, Any]:
    """Return the options of the filter fields, and their current values."""
    chosen = {name: request.GET.get(name, "") for name in ("channel", "state", "event", "moment")}
    return {
        "states": states,
        "moments": moments,
        "through": log.channels(person=request.user),
        "chosen": chosen,
        "narrowed": any(chosen.values()),
    }


def delivery_answer(request: Asked, /, delivery_id: UUID, **context: Any) -> HttpResponse:
    """Return the page of one delivery. `context` adds for example a rejected form."""
    delivery = known(log.delivery(delivery_id=delivery_id, person=request.user, now=request.now), UNKNOWN_DELIVERY)
    return page(request, "messages/delivery.html", {"messages/delivery_body.html": dict}, post=delivery, **context)


delivery_page = read_view("messages/log/<uuid:delivery_id>/", "delivery")(delivery_answer)


@action_view("messages/log/<uuid:delivery_id>/again/", "delivery-again", delivery_answer)
def delivery_again(request: Asked, delivery_id: UUID) -> HttpResponse:
    """Send a delivery again with the same id."""
    delivery = known(log.delivery(delivery_id=delivery_id, person=request.user, now=request.now), UNKNOWN_DELIVERY)
    empty = "This delivery contains no notification: send a test to its channel instead."
    first = known(next(iter(delivery.messages), None), empty)
    route_services.redeliver(message_id=first.id, actor=request.actor, now=request.now)
    return redirect("delivery", delivery_id=delivery_id)


# Channels with their health, and routes: one page for the installation, one for the user's own.


@read_view("messages/", "messages")
def overview(request: Asked) -> HttpResponse:
    """Show the channels and routes of the installation."""
    return _channels_and_routes(request, own=False)


@read_view("you/messages/", "you-messages")
def own(request: Asked) -> HttpResponse:
    """Show the personal channels and routes of the user."""
    return _channels_and_routes(request, own=True)


def _channels_and_routes(request: Asked, *, own: bool) -> HttpResponse:
    owners: dict[str, Any] = {"person": request.user, "owners": [request.user if own else None], "size": MAX_PAGE_SIZE}

    def rows() -> dict[str, Any]:
        channels = queries.channels(**owners, now=request.now)
        return {"channels": channels.results, "backlog": queries.backlog(now=request.now)}

    return page(
        request,
        "messages/own.html" if own else "messages/overview.html",
        {"messages/channel_rows.html": rows},
        own_only=own,
        routes=queries.routes(**owners).results,
        # In the order of their use for a user without a channel.
        kinds={name: kind for name, kind in KINDS.items() if (kind.personal if own else name != "webpush")},
        may_make=own or request.rights.may(Right.ADMINISTER),
    )


# One route: its conditions and channel, with a dry run on past events before it is saved.

UNKNOWN_ROUTE = "No route has this number; it may have been deleted, or belong to another user."


@form_view("routes/new/", "route-new")
def route_new(request: Asked) -> HttpResponse:
    """Show the form for a new route (GET), or try or create the route (POST). The parameter `own` makes it personal. A
    try saves nothing.
    """
    if request.method == "POST":
        return _route_sent(request, None)
    return _route_page(request, _route_form(request, None), None)


def route_answer(request: Asked, /, route_id: int, **context: Any) -> HttpResponse:
    """Return the page of one route. `context` adds for example a rejected form."""
    row = known(queries.route(route_id=route_id, person=request.user), UNKNOWN_ROUTE)
    if request.GET.get("try"):
        context["tried"] = _tried(request, RouteFieldsSerializer(data={}), row)
    initial = {name: getattr(row, name) for name in RouteForm.base_fields}
    form = _route_form(request, row, initial=initial | {"channel": row.channel and row.channel.id})
    return _route_page(request, form, row, **context)


@form_view("routes/<int:route_id>/", "route")
def route_page(request: Asked, route_id: int) -> HttpResponse:
    """Show one route as a sentence, with its dry run. Users who may change it also see the form."""
    if request.method != "POST":
        return route_answer(request, route_id)
    return _route_sent(request, known(queries.route(route_id=route_id, person=request.user), UNKNOWN_ROUTE))


# Below, the route is None for a new one.


def _is_own(request: Asked, row: RouteRow | None) -> bool:
    return row.own if row else bool(request.GET.get("own"))


def _route_form(request: Asked, row: RouteRow | None, **sent: Any) -> RouteForm:
    return RouteForm(owner=request.user if _is_own(request, row) else None, **sent)


def _route_page(request: Asked, form: RouteForm, row: RouteRow | None, **context: Any) -> HttpResponse:
    context |= {"route": row, "own_only": _is_own(request, row), "can_change": row.can_change if row else True}
    return page(request, "messages/route.html", form=form, **context)


def _route_sent(request: Asked, row: RouteRow | None) -> HttpResponse:
    """Handle the two buttons of the route form: try the route on past events, or save it."""
    form = _route_form(request, row, data=request.POST)
    acting: dict[str, Any] = {"actor": request.actor, "now": request.now}
    try:
        if request.POST.get("do") == "try":
            return _route_page(request, form, row, tried=_tried(request, form, row))
        if row:
            saved = route_services.change(form, route_id=row.id, **acting)
        else:
            saved = route_services.create(form, own=_is_own(request, row), **acting)
    except Refused as error:
        return _route_page(request, form, row, **_at_fields(form, error))
    return _to_list(request, saved, f"“{saved.name}” is saved. Earlier messages keep the wording that sent them.")


def _tried(request: Asked, sent: Sent, row: RouteRow | None) -> dry_run.RouteDryRun:
    """Return the dry run of the submitted route. Raises Refused."""
    own, route_id = _is_own(request, row), row.id if row else None
    route = route_services.tried_route(sent, person=request.user, route_id=route_id, own=own)
    return dry_run.dry_run(route=route, now=request.now, person=request.user if own else None)


def _to_list(request: Asked, row: Any, message: str) -> HttpResponse:
    """Redirect to the list that contains this channel or route, and show `message` there."""
    return done(request, message, "you-messages" if row.owner_id else "messages")


@action_view("routes/<int:route_id>/switch/", "route-switch", route_answer)
def route_switch(request: Asked, route_id: int) -> HttpResponse:
    sent = RouteChangeSerializer(data={"enabled": request.POST.get("enabled") == "on"})
    row = route_services.change(sent, route_id=route_id, actor=request.actor, now=request.now)
    return _to_list(request, row, f"“{row.name}” is {'on' if row.enabled else 'off'}.")


@action_view("routes/<int:route_id>/delete/", "route-delete", route_answer)
def route_delete(request: Asked, route_id: int) -> HttpResponse:
    row = route_services.delete(route_id=route_id, actor=request.actor, now=request.now)
    return _to_list(request, row, f"“{row.name}” is deleted. What it sent stays in the log.")


# Files that make the pages an installable app: the service worker for push notifications, and the manifest.


@require_safe
def service_worker(request: HttpRequest) -> HttpResponse:
    """Return the script of the service worker. It is served at the root path, so that its scope includes all pages."""
    script = Path(str(finders.find("drydock/sw.js")))
    answer = HttpResponse(script.read_bytes(), content_type="text/javascript; charset=utf-8")
    answer["Cache-Control"] = "no-cache"
    return answer


@require_safe
def manifest(request: HttpRequest) -> JsonResponse:
    """Return the web app manifest: name, start page and icon."""
    icon = {"src": static("drydock/mark.svg"), "sizes": "any", "type": "image/svg+xml"}
    app = {"name": "Drydock", "short_name": "Drydock", "start_url": "/", "display": "standalone", "icons": [icon]}
    return JsonResponse(app, content_type="application/manifest+json")


# Panels of notifications on pages of the core.


def notifications_of(event: EventRow, request: Asked) -> EventNotifications:
    """Return the notifications about an event, for the top of its page."""
    return log.of_event(event.id, person=request.user)


def browsers(request: Asked) -> list[ChannelRow]:
    """Return the user's registered browsers, for their account page."""
    channels = queries.channels(person=request.user, owners=[request.user], now=request.now)
    return [channel for channel in channels.results if channel.kind == "webpush"]


class BrowserForm(forms.Sent):
    wrong = "The browser did not send its push address. Allow notifications in the browser and try again."
    name = forms.line(200, required=True)
    endpoint = forms.line(2000, required=True)
    p256dh = forms.line(200, required=True)
    auth = forms.line(100, required=True)


@action_view("you/browser/key/", "browser-key", you_answer)
def push_key(request: Asked) -> HttpResponse:
    """Return the public VAPID key for the script that subscribes to push messages. The first request creates the
    key.
    """
    return JsonResponse({"key": route_services.push_keys(now=request.now).public})


@action_view("you/browser/", "browser-tell", you_answer)
def tell_browser(request: Asked) -> HttpResponse:
    route_services.register_browser(actor=request.actor, now=request.now, **BrowserForm(request.POST).values)
    return done(request, "This browser now receives notifications.", "you")


@action_view("you/browser/<int:channel_id>/end/", "browser-end", you_answer)
def end_browser(request: Asked, channel_id: int) -> HttpResponse:
    channel = route_services.remove_browser(actor=request.actor, channel_id=channel_id, now=request.now)
    return done(request, f"“{channel.name}” no longer receives notifications.", "you")
