"""REST API of channels, routes and deliveries."""

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rest_framework.response import Response

from fleet.api.authentication import person_of
from fleet.api.calls import Call
from fleet.api.problems import Problem
from fleet.api.repeats import ONE_SIGHT, answered, once
from fleet.api.schema import describe, filters_of, ordering
from fleet.domain.policy.rules import refuse
from fleet.notifications import channel_services as channel_changes
from fleet.notifications import dry_run, log
from fleet.notifications import queries as notification_queries
from fleet.notifications import route_services as route_changes
from fleet.notifications.kinds import trying_faults_of
from fleet.notifications.routing import SETTLED_DELIVERIES, StandingRoute, changed_route
from fleet.notifications.serializers import (
    SETTINGS,
    ChangeChannelSerializer,
    ChangeRouteSerializer,
    MakeChannelSerializer,
    MakeRouteSerializer,
    NewChannel,
    SentAgain,
    TrialShape,
    TryRouteSerializer,
)
from fleet.projections.pages import Page


class ByOwner(Call):
    """What the calls here have in common: whoever calls is a person, with a token or without one."""

    @property
    def carried(self) -> Any:
        """The token of this call; None for a session."""
        return self.request.auth

    @property
    def acting(self) -> dict[str, Any]:
        return {"actor": self.actor, "now": self.now, "carried": self.carried}

    @property
    def deciding(self) -> dict[str, Any]:
        """The same for calls that may ask for a version."""
        return {**self.acting, "expected": self.expected}


# Channels: the installation's for admins, and for everybody their own.

NO_CHANNEL = ("not-found", "There is no channel with this id.")
# A test answers with what the channel said, if it says so within this time; so many wait for it at once in a process.
TEST_SECONDS = 10.0
TEST_LOOKS_EVERY = 0.1
_may_wait = threading.BoundedSemaphore(2)


class Channels(ByOwner):
    @describe("list_channels")
    def get(self) -> Page[notification_queries.ChannelRow]:
        """Channels: the installation's and one's own

        Settings are shown to those who may change them; secrets to nobody.
        """
        return notification_queries.page(person=person_of(self.request), now=self.now, **self.place)

    @describe(
        "create_channel",
        needs="read",
        status=201,
        location="channels/{id}/",
        version="changed_at",
        keyless=ONE_SIGHT,
        body=MakeChannelSerializer,
    )
    def post(self) -> NewChannel | None:
        """Make a channel

        With what its kind wants to be told. A webhook's secret is shown this once. The installation's are for admins,
        with the scope `admin`; one's own need more than the scope `read`.
        """
        wanted = self.wanted
        row, secret = channel_changes.create(
            kind=wanted["kind"],
            name=wanted["name"],
            values={name: wanted[name] for name in SETTINGS if name in wanted},
            own=wanted["own"],
            enabled=wanted.get("enabled", True),
            **self.acting,
        )
        found = notification_queries.detail(channel_id=row.pk, person=person_of(self.request), now=self.now)
        return NewChannel(found, secret) if found else None


class Channel(ByOwner):
    def shown(self, channel_id: int) -> notification_queries.ChannelRow | None:
        return notification_queries.detail(channel_id=channel_id, person=person_of(self.request), now=self.now)

    @describe("get_channel", version="changed_at", missing=NO_CHANNEL)
    def get(self, channel_id: int) -> notification_queries.ChannelRow | None:
        """One channel

        Its kind, its health, and its settings for those who may change it. Secrets are never shown; `secrets_set`
        names those that are set.
        """
        return self.shown(channel_id)

    @describe(
        "change_channel",
        needs="read",
        version="changed_at",
        matches=True,
        body=ChangeChannelSerializer,
        missing=NO_CHANNEL,
    )
    def patch(self, channel_id: int) -> notification_queries.ChannelRow | None:
        """Change a channel, or switch it on or off

        What is left out stays; null takes a setting back. The installation's are for admins, with the scope `admin`;
        one's own need more than the scope `read`.
        """
        wanted = self.wanted
        channel_changes.change(
            channel_id=channel_id,
            name=wanted.get("name"),
            enabled=wanted.get("enabled"),
            values={name: wanted[name] for name in SETTINGS if name in wanted},
            **self.deciding,
        )
        return self.shown(channel_id)

    @describe("delete_channel", needs="read", matches=True)
    def delete(self, channel_id: int) -> None:
        """Delete a channel; what was sent through it stays in the log

        Its secrets are forgotten. Refused while routes lead to it alone. The installation's are for admins, with the
        scope `admin`; one's own need more than the scope `read`.
        """
        channel_changes.delete(channel_id=channel_id, **self.deciding)


class TryChannel(ByOwner):
    @describe("test_channel", needs="read", answer=TrialShape, by_parts=True)
    def post(self, channel_id: int) -> Response:
        """Try a channel

        Sends a message that says that it is a test, and answers with what the channel said to it; after ten seconds,
        with how far it is. The installation's are for admins, with the scope `admin`; one's own need more than the
        scope `read`.
        """

        def begin() -> dict[str, str]:
            return {"delivery": channel_changes.request_test(channel_id=channel_id, **self.acting)}

        # What goes out does so once; how it went is looked up again for whoever repeats the call.
        begun = once(self.request, begin, now=self.now, status=200)
        if begun.status >= 400 or begun.body is None:
            return answered(begun)
        found = self.awaited(begun.body["delivery"])
        return answered(replace(begun, body=self.values(TrialShape, found, NO_CHANNEL)))

    def awaited(self, delivery: str) -> log.ChannelTrial | None:
        """How the test went, as far as that is known by now or soon."""
        person = person_of(self.request)
        found = log.trial(delivery_id=delivery, person=person)
        if not _may_wait.acquire(blocking=False):
            return found
        try:
            until = time.monotonic() + TEST_SECONDS
            while found is not None and waits(found) and time.monotonic() < until:
                time.sleep(TEST_LOOKS_EVERY)
                found = log.trial(delivery_id=delivery, person=person)
        finally:
            _may_wait.release()
        return found


def waits(found: log.ChannelTrial) -> bool:
    """Whether nothing is known yet: no attempt has ended, and one may still be made."""
    return found.state not in SETTLED_DELIVERIES and found.ok is None and not any(one.error for one in found.attempts)


class RotateChannel(ByOwner):
    @describe("rotate_channel", needs="read", version="changed_at", matches=True, keyless=ONE_SIGHT)
    def post(self, channel_id: int) -> NewChannel | None:
        """A new secret for a webhook, shown this once

        For a day its messages are signed with the secret before, too. The installation's are for admins, with the
        scope `admin`; one's own need more than the scope `read`.
        """
        _, secret = channel_changes.rotate(channel_id=channel_id, **self.deciding)
        found = notification_queries.detail(channel_id=channel_id, person=person_of(self.request), now=self.now)
        return NewChannel(found, secret) if found else None


# The log of messages: the installation's, and one's own.

NO_MESSAGE = ("not-found", "There is no message with this id.")


class Messages(ByOwner):
    @describe("list_messages", parameters=[*filters_of(log.MessageFilter), ordering("created_at")])
    def get(self) -> Page[log.MessageRow]:
        """Who was told what, newest first

        Of the installation's channels and one's own; also what no route wanted.
        """
        person = person_of(self.request)
        rows = self.filtered(log.MessageFilter, queryset=log.messages_for(person))
        return log.listing(rows, person=person, **self.place)


class Message(ByOwner):
    @describe("get_message", missing=NO_MESSAGE)
    def get(self, message_id: int) -> log.MessageRow | None:
        """One message

        What it is about, who it went to, and each attempt.
        """
        return log.detail(message_id=message_id, person=person_of(self.request))


class RedeliverMessage(ByOwner):
    @describe(
        "redeliver_message",
        needs="read",
        status=201,
        location="messages/{message_id}/",
        problems=("not-redeliverable",),
    )
    def post(self, message_id: int) -> SentAgain:
        """Send a message again

        Under the same id, and with it what was sent together. The installation's are for admins, with the scope
        `admin`; one's own need more than the scope `read`.
        """
        return SentAgain(route_changes.redeliver(message_id=message_id, **self.acting))


# Routes of messages: the installation's for admins, and for everybody their own.

NO_ROUTE = ("not-found", "There is no route with this id.")
# How a route's fields are called here, and everywhere below.
RENAMED = {"channel": "channel_id", "types": "event_types", "severity": "severities", "set": "set_pattern"}
ALWAYS: Mapping[str, Any] = {"weekdays": (), "from_time": None, "until_time": None, "time_zone": "UTC"}


def said(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A route's fields as operations take them."""
    fields = {name: value for name, value in wanted.items() if name not in ("enabled", "own", "hours")}
    named = {RENAMED.get(name, name): value for name, value in fields.items()}
    return {**named, **ALWAYS, **(wanted["hours"] or {})} if "hours" in wanted else named


class Routes(ByOwner):
    @describe("list_routes")
    def get(self) -> Page[notification_queries.RouteRow]:
        """Routes: the installation's in their order, and one's own

        Each that wants a moment tells its channel, and a channel is told once.
        """
        return notification_queries.page_of_routes(person=person_of(self.request), **self.place)

    @describe(
        "create_route", needs="read", status=201, location="routes/{id}/", version="version", body=MakeRouteSerializer
    )
    def post(self) -> notification_queries.RouteRow | None:
        """Make a route

        It is on unless the body says otherwise. Try it first. The installation's are for admins, with the scope
        `admin`; one's own need more than the scope `read`.
        """
        wanted = self.wanted
        row = route_changes.create(
            fields=said(wanted), own=wanted["own"], enabled=wanted.get("enabled", True), **self.acting
        )
        return notification_queries.route(route_id=row.pk, person=person_of(self.request))


class Route(ByOwner):
    @describe("get_route", version="version", missing=NO_ROUTE)
    def get(self, route_id: int) -> notification_queries.RouteRow | None:
        """One route

        What it tells, to which channel, when, and its `wording`, the whole of it in one sentence.
        """
        return notification_queries.route(route_id=route_id, person=person_of(self.request))

    @describe(
        "change_route", needs="read", version="version", matches=True, body=ChangeRouteSerializer, missing=NO_ROUTE
    )
    def patch(self, route_id: int) -> notification_queries.RouteRow | None:
        """Change a route, or switch it on or off

        What it sent before keeps what it said then. The installation's are for admins, with the scope `admin`; one's
        own need more than the scope `read`.
        """
        route_changes.change(
            route_id=route_id, fields=said(self.wanted), enabled=self.wanted.get("enabled"), **self.deciding
        )
        return notification_queries.route(route_id=route_id, person=person_of(self.request))

    @describe("delete_route", needs="read", matches=True)
    def delete(self, route_id: int) -> None:
        """Delete a route; what it sent stays

        The installation's are for admins, with the scope `admin`; one's own need more than the scope `read`.
        """
        route_changes.delete(route_id=route_id, **self.deciding)


class RouteDryRun(ByOwner):
    @describe("try_route", needs="read", body=TryRouteSerializer, problems=("not-found",))
    def post(self) -> dry_run.RouteDryRun:
        """Try a route on the stored history

        How many messages it would have made of the last 30 days, and when. Nothing is written.
        """
        wanted, person = self.wanted, person_of(self.request)
        own = wanted["own"]
        route: StandingRoute | None = StandingRoute()
        if "id" in wanted:
            route = notification_queries.standing(route_id=wanted["id"], person=person)
        if route is None:
            raise Problem(*NO_ROUTE)
        route = changed_route(route, said(wanted.get("route", {})))
        refuse(trying_faults_of(route), inside="route.")
        theirs = person if own or route.owner_id is not None else None
        return dry_run.dry_run(route=route, now=self.now, person=theirs)
