"""Tables of notifications: channels, routes, messages, deliveries and attempts. Also the routes and rights that the
router reads.
"""

import json
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from fleet.domain.event_types import ADVICE_TYPES, TYPES, Severity
from fleet.domain.people import speaks_of
from fleet.domain.policy.hours import in_hours, is_among, stated_values
from fleet.domain.policy.rules import SOURCES
from fleet.domain.reasons import Reason
from fleet.domain.shapes import from_row
from fleet.models.cipher import Cipher
from fleet.models.events import ScheduledEvent
from fleet.models.fields import Line, ListOf
from fleet.models.partitions import by_id
from fleet.models.people import names_in_entries, prefetch_rights, rights_of
from fleet.models.policy import HoursAndPlace
from fleet.models.rows import Row
from fleet.notifications import routing
from fleet.notifications.channels import KINDS, kinds_where
from fleet.notifications.notification_types import STEPS, NotificationType
from fleet.notifications.routing import OPEN_DELIVERIES, DeliveryState, MessageFacts, MessageState

log = structlog.get_logger(__name__)


class UnreadableSecretsError(Exception):
    """Secrets cannot be decrypted, because their SECRET_KEY is no longer configured. The argument names the row."""


class Channel(Row):
    """Receiver of notifications. `kind` is a key of `fleet.notifications.channels.KINDS`.

    `settings` are visible settings, `secrets` encrypted ones. `owner` is the user of a personal channel, and None for a
    channel of the installation. The columns from `last_ok_at` on describe the health: time and number of consecutive
    failures, last response, end of a pause. The worker that is sending has the lease until `leased_until`.
    """

    CIPHER = Cipher("drydock messages out")
    # Whether the secrets of this row could not be decrypted.
    lost = False

    kind = Line(
        choices=lambda: [(name, kind.label) for name, kind in KINDS.items()],
        help_text="The kind determines the fields.",
    )
    name = Line(help_text="Unique name of the channel.")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="channels"
    )
    settings = models.JSONField(default=dict)
    secrets = models.TextField(blank=True, default="")
    enabled = models.BooleanField(default=True, help_text="Whether notifications are sent to it.")
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True)
    # The API token that created a personal channel; the channel ends with it.
    made_with = models.ForeignKey(
        "fleet.ApiToken", null=True, blank=True, on_delete=models.SET_NULL, related_name="channels"
    )

    last_ok_at = models.DateTimeField(null=True, blank=True)
    failing_since = models.DateTimeField(null=True, blank=True)
    failures = models.IntegerField(default=0)
    last_error = models.TextField(blank=True, default="")
    last_answer = models.TextField(blank=True, default="")
    held_until = models.DateTimeField(null=True, blank=True)
    leased_until = models.DateTimeField(null=True, blank=True)
    # Last run of a kind that mirrors open events; NULL is due.
    mirrored_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return str(self.name)

    def seal(self, values: Mapping[str, str]) -> None:
        """Encrypt and set these secrets. The row must already have an id; other rows cannot decrypt them."""
        plain = json.dumps(dict(values)).encode()
        self.secrets = self.CIPHER.encrypt(plain, of=f"channel:{self.pk}") if values else ""

    def unseal(self) -> dict[str, str]:
        """Return the decrypted secrets. Raises UnreadableSecretsError."""
        if not self.secrets:
            return {}
        plain = self.CIPHER.decrypt(self.secrets, of=f"channel:{self.pk}")
        if plain is None:
            advice = "Add the old SECRET_KEY to SECRET_KEY_FALLBACKS."
            log.error("secrets.unreadable", of=f"channel:{self.pk}", advice=advice)
            raise UnreadableSecretsError(f"channel:{self.pk}")
        opened: dict[str, str] = json.loads(plain)
        return opened

    @cached_property
    def opened(self) -> dict[str, str]:
        """The decrypted secrets while the channel is edited. If they cannot be decrypted, it is empty and `lost` is
        set.
        """
        try:
            return self.unseal()
        except UnreadableSecretsError:
            self.lost = True
            return {}


NOT_PERSONAL = [(each.value, each.declared.label) for each in NotificationType if not each.declared.personal]


def _step(label: str, help_text: str) -> "models.IntegerField[int | None, int | None]":
    # No event has a notice of more than a week.
    limits = [MinValueValidator(0), MaxValueValidator(7 * 86400)]
    return models.IntegerField(label, null=True, blank=True, validators=limits, help_text=help_text)


class Route(HoursAndPlace):
    """A rule that sends matching notifications to a channel. An empty list or text matches everything. `channel` NULL
    means all channels of the installation.

    `moments` are notification types. With `unclaimed_after_seconds` or `before_decide_by_seconds`, the route is an
    escalation step: it is due this long after the first sighting if the event is unclaimed, or this long before the
    decision deadline if it is undecided. Hours work as in rules. `version` increases with each change.
    """

    name = Line(help_text="Unique name of the route.")
    position = models.IntegerField(default=0)
    enabled = models.BooleanField(default=True, help_text="Whether the route is on. New routes are on by default.")
    channel = models.ForeignKey(
        Channel,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="routes",
        verbose_name="channel",
        help_text="The id of a channel; null: every channel of the installation.",
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="routes"
    )
    moments = ListOf(
        each=Line(choices=NOT_PERSONAL),
        # Other types are sent by steps of escalation.
        ticks=[(value, label) for value, label in NOT_PERSONAL if value not in STEPS],
        help_text="Empty: every type.",
    )
    event_types = ListOf(
        "types", each=Line(choices=[(name, name) for name in (*TYPES, *ADVICE_TYPES)]), help_text="Empty: every type."
    )
    sources = ListOf(each=Line(choices=[(name, name) for name in SOURCES]), help_text="Empty: every source.")
    severities = ListOf(
        "severity", each=Line(choices=[(each.value, each.value) for each in Severity]), help_text="Empty: every one."
    )
    unclaimed_after_seconds = _step(
        "while it is unclaimed, after so many seconds",
        "A step of escalation: this long after the first sighting, while the event is unclaimed.",
    )
    before_decide_by_seconds = _step(
        "while it is undecided, so many seconds before “decide by”",
        "A step of escalation: this long before the time to decide by, while the event is undecided.",
    )
    version = models.IntegerField(default=1)
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return str(self.name)

    @property
    def step(self) -> NotificationType | None:
        """Return the notification type if this route is a step of an escalation, else None."""
        if self.unclaimed_after_seconds is not None:
            return NotificationType.UNCLAIMED
        return None if self.before_decide_by_seconds is None else NotificationType.UNDECIDED

    def matches(self, facts: MessageFacts, *, now: datetime) -> bool:
        """Return whether the route is enabled and matches this notification. The hours of the route are compared with
        the time when the message is due.

        A route with conditions on event types, sources or places does not match notifications that have none. Drills
        match like real events.
        """
        at = self.due_at(facts, now=now)
        return (
            at is not None
            and self.enabled
            and self.deleted_at is None
            and self._names(facts.moment)
            and is_among(facts.event_type, self.event_types)
            and is_among(facts.source, self.sources)
            and is_among(facts.severity, self.severities)
            and speaks_of(self, facts.place)
            and in_hours(self, at)
        )

    def due_at(self, facts: MessageFacts, *, now: datetime) -> datetime | None:
        """Return when a message by this route is due: `now`, or for an escalation step a computed time, which may be in
        the past. None if the step depends on a decision deadline and there is none.
        """
        if self.unclaimed_after_seconds is not None:
            return facts.at + timedelta(seconds=self.unclaimed_after_seconds)
        if self.before_decide_by_seconds is not None:
            return facts.decide_by and facts.decide_by - timedelta(seconds=self.before_decide_by_seconds)
        return now

    def _names(self, moment: NotificationType) -> bool:
        if moment.declared.personal:
            return False
        if self.step is not None:
            return moment.value in self.step.declared.clock
        return not self.moments or not {moment.value, *moment.declared.also_named_by}.isdisjoint(self.moments)

    def wording(self, channel: Channel | None) -> Reason:
        """Return the whole route in one sentence, as messages and entries store it."""
        conditions = from_row(routing.RouteConditions, self)
        return Reason("route", channel=channel.name if channel else "", **stated_values(conditions))


class MessageDelivery(Row):
    """One delivery to one channel, with the same id at every attempt. It contains one message or a group of messages.

    `group` is the service of the messages, `*` for several services, or empty for a single subject.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    channel = models.ForeignKey(Channel, on_delete=models.PROTECT, related_name="deliveries")
    moment = models.TextField()
    group = models.TextField(blank=True, default="")
    state = models.TextField(default=DeliveryState.QUEUED.value)
    created_at = models.DateTimeField()
    due_at = models.DateTimeField()
    attempts = models.IntegerField(default=0)
    settled_at = models.DateTimeField(null=True, blank=True)
    # Code of the reason why it was dropped or given up.
    why = models.TextField(blank=True, default="")

    class Meta:
        verbose_name_plural = "deliveries"
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in DeliveryState]), name="delivery_state_known"
            ),
        ]
        indexes = [
            models.Index(
                fields=["channel", "created_at", "id"],
                name="delivery_open",
                condition=Q(state__in=["QUEUED", "SENDING"]),
            ),
            models.Index(fields=["channel", "-created_at", "-id"], name="delivery_newest"),
            # The log, in full and by its filters.
            models.Index(fields=["-created_at", "-id"], name="delivery_log"),
            models.Index(fields=["state", "-created_at", "-id"], name="delivery_by_state"),
        ]


class Message(Row):
    """One notification for one channel. `entry_id` is the row id of the timeline entry that caused it.

    `subject` is what it is about, with a row id: `event:7`, `maintenance:3`, `set:2`, `channel:1`, … It is not sent
    before `due_at`, and then only under the condition `only_if`. `data` has the name (`route`) and `wording` of the
    route at that time. A message without a channel has the state UNROUTED: it matched no route.

    A channel gets one message for each entry, and one for each escalation step, even if an entry is routed twice:
    (entry_id, channel, moment, only_if, route) is unique in each partition.
    """

    moment = models.TextField()
    subject = models.TextField()
    entry_id = models.BigIntegerField(null=True, blank=True)
    event = models.ForeignKey(
        ScheduledEvent, null=True, blank=True, on_delete=models.PROTECT, related_name="messages", db_constraint=False
    )
    at = models.DateTimeField()
    created_at = models.DateTimeField()
    due_at = models.DateTimeField()
    only_if = models.TextField(blank=True, default="")
    severity = models.TextField()
    service = models.TextField(blank=True, default="")
    drill = models.BooleanField(default=False)
    # When a decision about it is due; nearer deadlines are sent sooner.
    deadline = models.DateTimeField(null=True, blank=True)
    data = models.JSONField(default=dict)
    channel = models.ForeignKey(
        Channel, null=True, blank=True, on_delete=models.PROTECT, related_name="messages", db_constraint=False
    )
    route = models.ForeignKey(
        Route, null=True, blank=True, on_delete=models.PROTECT, related_name="messages", db_constraint=False
    )
    route_version = models.IntegerField(null=True, blank=True)
    state = models.TextField(default=MessageState.WAITING.value)
    delivery = models.ForeignKey(
        MessageDelivery, null=True, blank=True, on_delete=models.PROTECT, related_name="messages", db_constraint=False
    )
    why = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in MessageState]), name="message_state_known"
            ),
        ]
        indexes = [
            models.Index(fields=["channel", "due_at", "id"], name="message_waiting", condition=Q(state="WAITING")),
            models.Index(fields=["event", "id"], name="message_by_event", condition=Q(event__isnull=False)),
            models.Index(fields=["-id"], name="message_unrouted", condition=Q(state="UNROUTED")),
            models.Index(fields=["-id"], name="message_unsent", condition=Q(delivery=None)),
            # The log, in full and by its filters.
            models.Index(fields=["-created_at", "-id"], name="message_newest"),
            models.Index(fields=["channel", "-created_at", "-id"], name="message_by_channel"),
            models.Index(fields=["state", "-created_at", "-id"], name="message_by_state"),
            models.Index(fields=["moment", "-created_at", "-id"], name="message_by_moment"),
        ]


class DeliveryAttempt(Row):
    """Attempt to send a delivery. The row is written before the attempt; while `ended_at` is NULL, the result is
    unknown.

    `status` is the receiver's HTTP or SMTP status, `error` a code of Drydock, `answer` the receiver's response.
    """

    delivery = models.ForeignKey(MessageDelivery, on_delete=models.CASCADE, related_name="tries")
    number = models.IntegerField()
    at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    ok = models.BooleanField(null=True, blank=True)
    status = models.IntegerField(null=True, blank=True)
    error = models.TextField(blank=True, default="")
    answer = models.TextField(blank=True, default="")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["delivery", "number"], name="attempt_once")]
        indexes = [models.Index(fields=["-at"], name="attempt_newest")]


class Reference(Row):
    """Identifiers that a channel stores for a subject, for example of a Slack message, PagerDuty incidents or
    silences.
    """

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="references")
    subject = models.TextField()
    value = models.JSONField(default=dict)
    changed_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["channel", "subject"], name="reference_once")]


class HookCall(Row):
    """A call from a receiver that was handled, so that a repetition is ignored. `key` is the id of the call, or a hash
    of it.
    """

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="+")
    key = models.TextField()
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["channel", "key"], name="hook_call_once")]
        indexes = [models.Index(fields=["at"], name="hook_call_by_age")]


class Cursor(Row):
    """Position of the router in the timeline: (era, xid, id) of the last routed entry. The table has one row."""

    name = models.TextField(primary_key=True)
    era = models.SmallIntegerField()
    xid = models.BigIntegerField()
    entry_id = models.BigIntegerField()
    moved_at = models.DateTimeField()


class PushKey(Row):
    """Key pair that identifies this installation to push services (VAPID). The private key is encrypted. The table has
    one row.

    `public_key` is the public key as browsers expect it: base64url without padding.
    """

    name = models.TextField(primary_key=True)
    public_key = models.TextField()
    private_key = models.TextField()
    created_at = models.DateTimeField()


# Data for the router: enabled routes, their channels, and the rights of their owners.


def usable_channels() -> models.QuerySet[Channel]:
    """Return the enabled channels that receive messages, those of users too. Channels that mirror open events receive
    none.
    """
    return Channel.objects.filter(enabled=True, deleted_at__isnull=True, kind__in=kinds_where(messages=True))


def routes_in_force() -> list[tuple[Route, list[Channel]]]:
    """Return the enabled routes in order, each with its usable channels. Routes of disabled users and routes without a
    usable channel are omitted. Three queries.
    """
    rows = list(
        Route.objects.filter(Q(owner=None) | Q(owner__is_active=True), enabled=True, deleted_at__isnull=True)
        .select_related("owner", "channel")
        .order_by("position", "pk")
    )
    prefetch_rights(row.owner for row in rows if row.owner is not None)
    usable = list(usable_channels())
    in_force = [
        # A route reaches only channels of its own owner.
        (row, [each for each in usable if each.owner_id == row.owner_id and row.channel_id in (each.pk, None)])
        for row in rows
        if row.channel_id is not None or row.owner_id is None
    ]
    return [(row, channels) for row, channels in in_force if channels]


def may_hear(owner: User | None, facts: MessageFacts) -> bool:
    """Return whether the owner of a route may receive this notification. None means the installation, which may receive
    everything.
    """
    return owner is None or routing.may_receive(
        rights_of(owner), names_in_entries(owner), facts, scoped=bool(settings.SCOPED_READ_ACCESS)
    )


# Messages are partitioned, and old partitions are archived.

MESSAGES = by_id(Message, "created_at")


def any_unsent(first: int, last: int) -> bool:
    """Return whether a message in this range of row ids must still be sent."""
    waits = Q(state__in=[MessageState.WAITING.value, MessageState.BATCHED.value])
    is_open = Q(delivery__state__in=OPEN_DELIVERIES)
    return Message.objects.filter(waits | is_open, pk__range=(first, last)).exists()


def any_unrouted(first: int, last: int) -> bool:
    """Return whether a timeline entry in this range of row ids may still cause a notification."""
    waiting = Message.objects.filter(state=MessageState.WAITING.value, entry_id__range=(first, last))
    return Cursor.objects.filter(entry_id__lt=last).exists() or waiting.exists()
