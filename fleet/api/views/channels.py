"""Channels: the installation's for admins, and for everybody their own."""

import threading
import time
from dataclasses import replace

from rest_framework.response import Response

from fleet.api.authentication import person_of
from fleet.api.describe import describe
from fleet.api.repeats import ONE_SIGHT, answered, once
from fleet.api.shapes.messages import (
    SETTINGS,
    ChangeChannelSerializer,
    ChannelShape,
    MakeChannelSerializer,
    NewChannel,
    NewChannelShape,
    TrialShape,
)
from fleet.api.views.owners import NEEDS, ByOwner
from fleet.domain.messages.states import SETTLED_DELIVERIES
from fleet.operations.messages import channels as channel_changes
from fleet.projections.messages import channels, log
from fleet.projections.pages import Page

NO_CHANNEL = ("not-found", "There is no channel with this id.")
# A test answers with what the channel said, if it says so within this time; so many wait for it at once in a process.
TEST_SECONDS = 10.0
TEST_LOOKS_EVERY = 0.1
_may_wait = threading.BoundedSemaphore(2)


class Channels(ByOwner):
    @describe(
        "list_channels",
        "Channels: the installation's and one's own",
        "Settings are shown to those who may change them; secrets to nobody.",
        page=ChannelShape,
    )
    def get(self) -> Page[channels.ChannelRow]:
        return channels.page(person=person_of(self.request), now=self.now, **self.place)

    @describe(
        "create_channel",
        "Make a channel",
        f"With what its kind wants to be told. A webhook's secret is shown this once. {NEEDS}",
        needs="read",
        answer=NewChannelShape,
        status=201,
        location="channels/{id}/",
        version="changed_at",
        keyless=ONE_SIGHT,
        body=MakeChannelSerializer,
    )
    def post(self) -> NewChannel | None:
        wanted = self.wanted
        row, secret = channel_changes.create(
            kind=wanted["kind"],
            name=wanted["name"],
            values={name: wanted[name] for name in SETTINGS if name in wanted},
            own=wanted["own"],
            enabled=wanted.get("enabled", True),
            **self.acting,
        )
        found = channels.detail(channel_id=row.pk, person=person_of(self.request), now=self.now)
        return NewChannel(found, secret) if found else None


class Channel(ByOwner):
    def shown(self, channel_id: int) -> channels.ChannelRow | None:
        return channels.detail(channel_id=channel_id, person=person_of(self.request), now=self.now)

    @describe(
        "get_channel",
        "One channel",
        (
            "Its kind, its health, and its settings for those who may change it. Secrets are never shown;"
            " `secrets_set` names those that are set."
        ),
        answer=ChannelShape,
        version="changed_at",
        missing=NO_CHANNEL,
    )
    def get(self, channel_id: int) -> channels.ChannelRow | None:
        return self.shown(channel_id)

    @describe(
        "change_channel",
        "Change a channel, or switch it on or off",
        f"What is left out stays; null takes a setting back. {NEEDS}",
        needs="read",
        answer=ChannelShape,
        version="changed_at",
        matches=True,
        body=ChangeChannelSerializer,
        missing=NO_CHANNEL,
    )
    def patch(self, channel_id: int) -> channels.ChannelRow | None:
        wanted = self.wanted
        channel_changes.change(
            channel_id=channel_id,
            name=wanted.get("name"),
            enabled=wanted.get("enabled"),
            values={name: wanted[name] for name in SETTINGS if name in wanted},
            **self.deciding,
        )
        return self.shown(channel_id)

    @describe(
        "delete_channel",
        "Delete a channel; what was sent through it stays in the log",
        f"Its secrets are forgotten. Refused while routes lead to it alone. {NEEDS}",
        needs="read",
        matches=True,
    )
    def delete(self, channel_id: int) -> None:
        channel_changes.delete(channel_id=channel_id, **self.deciding)


class TryChannel(ByOwner):
    @describe(
        "test_channel",
        "Try a channel",
        "Sends a message that says that it is a test, and answers with what the channel said to it; after ten"
        f" seconds, with how far it is. {NEEDS}",
        needs="read",
        answer=TrialShape,
        by_parts=True,
    )
    def post(self, channel_id: int) -> Response:
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
    @describe(
        "rotate_channel",
        "A new secret for a webhook, shown this once",
        f"For a day its messages are signed with the secret before, too. {NEEDS}",
        needs="read",
        answer=NewChannelShape,
        version="changed_at",
        matches=True,
        keyless=ONE_SIGHT,
    )
    def post(self, channel_id: int) -> NewChannel | None:
        _, secret = channel_changes.rotate(channel_id=channel_id, **self.deciding)
        found = channels.detail(channel_id=channel_id, person=person_of(self.request), now=self.now)
        return NewChannel(found, secret) if found else None
