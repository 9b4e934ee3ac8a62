"""REST API of channels, routes and deliveries."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

from rest_framework import serializers
from rest_framework.response import Response

from fleet.api.authentication import person_of
from fleet.api.calls import Call
from fleet.api.repeats import SHOWN_ONCE, answered, once
from fleet.api.schema import describe, detail_call, list_call
from fleet.api.shapes.derive import shape
from fleet.domain.event_types import Severity
from fleet.domain.shapes import InApi
from fleet.notifications import channel_services, dry_run, log, queries, route_services
from fleet.notifications.channel_services import ChannelFieldsSerializer, ChannelRequestSerializer
from fleet.notifications.channels import KINDS
from fleet.notifications.log import AttemptRow, ChannelTrial, MessageRow
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.queries import ChannelRow, RouteRow
from fleet.notifications.route_services import RouteChangeSerializer, RouteFieldsSerializer, RouteRequestSerializer
from fleet.operations.inputs import RequestSerializer


class RouteDryRunRequestSerializer(RequestSerializer):
    id = serializers.IntegerField(
        required=False, min_value=1, max_value=2**62, help_text="A saved route; with `route` it is tried as changed."
    )
    route = RouteFieldsSerializer(required=False, help_text="One that is not saved, or what changes in a saved one.")
    own = serializers.BooleanField(required=False, default=False, help_text="Leave out what one may not hear alone.")

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if "id" not in values and "route" not in values:
            raise serializers.ValidationError("Say which route: the `id` of a saved one, or a `route`.")
        return values


@dataclass(frozen=True, slots=True)
class NewChannel:
    """A channel, and the secret that was made for it."""

    channel: Annotated[ChannelRow, InApi.FLATTENED]
    secret: Annotated[
        str | None, "Of a webhook, shown this once: what its messages are signed with. Null for other kinds."
    ]


@dataclass(frozen=True, slots=True)
class SentAgain:
    """A delivery that is sent again."""

    delivery: Annotated[str, "The id under which it goes out, the same as before."]


shape(ChannelRow, inputs=ChannelRequestSerializer, kind=serializers.ChoiceField(list(KINDS)))
shape(RouteRow, inputs=RouteRequestSerializer)
shape(AttemptRow, name="DeliveryAttempt")
shape(
    MessageRow,
    moment=serializers.ChoiceField([moment.value for moment in NotificationType]),
    severity=serializers.ChoiceField([severity.value for severity in Severity]),
)
TrialShape = shape(ChannelTrial, name="ChannelTest")


# Channels: the installation's for administrators, and each user's own.

NO_CHANNEL = ("not-found", "There is no channel with this id.")


def new_channel(call: Call, channel_id: int, secret: str | None) -> NewChannel | None:
    row = queries.detail(channel_id=channel_id, person=person_of(call.request), now=call.now)
    return NewChannel(row, secret) if row else None


@list_call("list_channels", queries.channels)
class Channels(Call, at="channels/"):
    """List channels: those of the installation and your own

    Settings are included for users who may change them. Secrets are never included.
    """

    @describe(
        "create_channel",
        needs="read",
        location="channels/{id}/",
        version="changed_at",
        keyless=SHOWN_ONCE,
        body=ChannelRequestSerializer,
    )
    def post(self) -> NewChannel | None:
        """Create a channel

        The required settings depend on its kind. The secret of a webhook is shown only in this answer. Channels of the
        installation need an administrator and the scope `admin`; your own need any scope but `read`.
        """
        row, secret = channel_services.create(self.wanted, actor=self.actor, now=self.now, own=self.wanted.is_own)
        return new_channel(self, row.pk, secret)


@detail_call("get_channel", queries.detail, version="changed_at", missing=NO_CHANNEL)
class Channel(Call, at="channels/<int:channel_id>/"):
    """Get a channel

    Its kind, its health, and its settings for users who may change it. Secrets are never included; `secrets_set` names
    those that are stored.
    """

    @describe(
        "change_channel",
        needs="read",
        version="changed_at",
        matches=True,
        body=ChannelFieldsSerializer,
        missing=NO_CHANNEL,
    )
    def patch(self, channel_id: int) -> queries.ChannelRow | None:
        """Change a channel, or switch it on or off

        Omitted fields stay as they are; null resets a setting to its default. Channels of the installation need an
        administrator and the scope `admin`; your own need any scope but `read`.
        """
        channel_services.change(
            self.wanted, channel_id=channel_id, actor=self.actor, now=self.now, expected=self.expected
        )
        return queries.detail(channel_id=channel_id, person=person_of(self.request), now=self.now)

    @describe("delete_channel", needs="read", matches=True)
    def delete(self, channel_id: int) -> None:
        """Delete a channel

        Its messages stay in the log, and its secrets are deleted. Refused while a route leads to this channel only:
        change or delete the route first. Channels of the installation need an administrator and the scope `admin`; your
        own need any scope but `read`.
        """
        channel_services.delete(channel_id=channel_id, actor=self.actor, now=self.now, expected=self.expected)


class TryChannel(Call, at="channels/<int:channel_id>/test/"):
    @describe("test_channel", needs="read", answer=TrialShape, by_parts=True)
    def post(self, channel_id: int) -> Response:
        """Send a test message through a channel

        The answer has the progress. Repeat the call with the same `Idempotency-Key` to get the receiver's response.
        Channels of the installation need an administrator and the scope `admin`; your own need any scope but `read`.
        """

        def begin() -> dict[str, str]:
            delivery = channel_services.request_test(channel_id=channel_id, actor=self.actor, now=self.now)
            return {"delivery": delivery}

        # Repeated calls send no second test; each looks up its result again.
        begun = once(self.request, begin, now=self.now, status=200)
        if begun.status >= 400 or begun.body is None:
            return answered(begun)
        test = log.trial(delivery_id=begun.body["delivery"], person=person_of(self.request))
        return answered(replace(begun, body=self.values(TrialShape, test, NO_CHANNEL)))


class RotateChannel(Call, at="channels/<int:channel_id>/rotate/"):
    @describe("rotate_channel", needs="read", version="changed_at", matches=True, keyless=SHOWN_ONCE)
    def post(self, channel_id: int) -> NewChannel | None:
        """Create a new secret for a webhook

        It is shown only in this answer. For one day messages are also signed with the former secret. Channels of the
        installation need an administrator and the scope `admin`; your own need any scope but `read`.
        """
        expected = self.expected
        _, secret = channel_services.rotate(channel_id=channel_id, actor=self.actor, now=self.now, expected=expected)
        return new_channel(self, channel_id, secret)


# The message log of the installation's and the user's own channels.

NO_MESSAGE = ("not-found", "There is no message with this id.")


@list_call("list_messages", log.listing, log.MessageFilter, "rows", orders=("created_at",))
class Messages(Call, at="messages/"):
    """List messages with their recipients, newest first

    Messages of the installation's channels and of your own, including those that no route selected.
    """


@detail_call("get_message", log.detail, missing=NO_MESSAGE)
class Message(Call, at="messages/<int:message_id>/"):
    """Get a message

    Its subject, its channel, and each delivery attempt.
    """


class RedeliverMessage(Call, at="messages/<int:message_id>/redeliver/"):
    @describe(
        "redeliver_message",
        needs="read",
        location="messages/{message_id}/",
        problems=("not-redeliverable",),
    )
    def post(self, message_id: int) -> SentAgain:
        """Send a message again

        Under the same id, together with the messages of the same delivery. Channels of the installation need an
        administrator and the scope `admin`; your own need any scope but `read`.
        """
        return SentAgain(route_services.redeliver(message_id=message_id, actor=self.actor, now=self.now))


# Routes: the installation's for administrators, and each user's own.

NO_ROUTE = ("not-found", "There is no route with this id.")


@list_call("list_routes", queries.routes)
class Routes(Call, at="routes/"):
    """List routes: those of the installation in their order, and your own

    Every route that matches a notification sends it to its channel. A channel gets each notification once, even if
    several routes match.
    """

    @describe(
        "create_route",
        needs="read",
        location="routes/{id}/",
        version="version",
        body=RouteRequestSerializer,
    )
    def post(self) -> queries.RouteRow | None:
        """Create a route

        It is switched on unless the body states otherwise. Try it with a dry run first. Routes of the installation need
        an administrator and the scope `admin`; your own need any scope but `read`.
        """
        row = route_services.create(self.wanted, actor=self.actor, now=self.now, own=self.wanted.is_own)
        return queries.route(route_id=row.pk, person=person_of(self.request))


@detail_call("get_route", queries.route, version="version", missing=NO_ROUTE)
class Route(Call, at="routes/<int:route_id>/"):
    """Get a route

    Which notifications it selects, its channel and times, and its description in one sentence (`wording`).
    """

    @describe(
        "change_route", needs="read", version="version", matches=True, body=RouteChangeSerializer, missing=NO_ROUTE
    )
    def patch(self, route_id: int) -> queries.RouteRow | None:
        """Change a route, or switch it on or off

        Omitted fields stay as they are. Sent messages do not change. Routes of the installation need an administrator
        and the scope `admin`; your own need any scope but `read`.
        """
        route_services.change(self.wanted, route_id=route_id, actor=self.actor, now=self.now, expected=self.expected)
        return queries.route(route_id=route_id, person=person_of(self.request))

    @describe("delete_route", needs="read", matches=True)
    def delete(self, route_id: int) -> None:
        """Delete a route

        Its messages stay in the log. Routes of the installation need an administrator and the scope `admin`; your own
        need any scope but `read`.
        """
        route_services.delete(route_id=route_id, actor=self.actor, now=self.now, expected=self.expected)


class RouteDryRun(Call, at="routes/dry-run/"):
    @describe("try_route", needs="read", body=RouteDryRunRequestSerializer, problems=("not-found",))
    def post(self) -> dry_run.RouteDryRun:
        """Try a route on past events

        The number of messages that it would have sent in the last 30 days, and when. Nothing is stored.
        """
        wanted, person = self.wanted, person_of(self.request)
        # The raw body: the operation parses it.
        body: Any = self.request.data
        sent = RouteFieldsSerializer(data=body.get("route", {}))
        tried: Any = {"person": person, "route_id": wanted.get("id"), "own": wanted["own"]}
        route = route_services.tried_route(sent, **tried, inside="route.")
        theirs = person if wanted["own"] or route.owner_id is not None else None
        return dry_run.dry_run(route=route, now=self.now, person=theirs)
