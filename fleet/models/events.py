"""Scheduled events, and the reports of each machine about them."""

import json
from collections.abc import Iterable

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import CheckConstraint, Index, Q, QuerySet, UniqueConstraint
from django.db.models.functions import Cast, Upper

from fleet.domain.states import EventStatus
from fleet.models.index_scan import words_begin, words_of
from fleet.models.machines import AvailabilitySet, Machine
from fleet.models.rows import ChangeColumn, Row


class StatedColumns(Row):
    """Columns with what Azure states about an event, one for each field of `fleet.domain.events.EventStatement`."""

    event_type = models.TextField(blank=True, default="")
    resource_type = models.TextField(blank=True, default="")
    source = models.TextField(blank=True, default="")
    description = models.TextField(blank=True, default="")
    duration_seconds = models.IntegerField(null=True, blank=True)
    not_before = models.DateTimeField(null=True, blank=True)
    resources = models.JSONField(default=list)

    class Meta:
        abstract = True


# Conditions of indexes.
OPEN = Q(status__in=["SCHEDULED", "STARTED"])
TO_DECIDE = Q(status="SCHEDULED", drill=False)


class ScheduledEvent(StatedColumns, ChangeColumn):
    """An event that Azure announced: one row for each EventId (upper case), for all machines that report it.

    The columns from `status` on are computed from sightings by `fleet.domain.events.compute_state`. `version` increases
    when status, NotBefore, Resources, type, source or duration changes.
    """

    event_id = models.TextField(unique=True)
    availability_set = models.ForeignKey(AvailabilitySet, on_delete=models.PROTECT, related_name="events")
    created_at = models.DateTimeField()
    # A rehearsal: no real event, and Azure knows nothing of it.
    drill = models.BooleanField(default=False)

    # Lowered requirements of its set, or those of a former set (`fleet.domain.requirements.KeptRequirements`), until it
    # ends; NULL where there are none.
    kept = models.JSONField(null=True, blank=True)

    # Until then notifications about it are held back; NULL: none is.
    silenced_until = models.DateTimeField(null=True, blank=True)

    status = models.TextField(default=EventStatus.SCHEDULED.value)
    version = models.IntegerField(default=0)
    first_seen_at = models.DateTimeField()
    # NotBefore less the first sighting; None when it began as Started.
    notice_seconds = models.IntegerField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_as = models.TextField(blank=True, default="")
    certainty = models.TextField(blank=True, default="")
    # At least one live machine's newest document lists it, or can show that it is gone.
    watched = models.BooleanField(default=True)
    approved_elsewhere = models.BooleanField(default=False)
    warnings = models.JSONField(default=list)
    # When reconciling checks it next, and all that belongs to it (`fleet.domain.scheduling`); NULL is due, too:
    # no time has been computed yet. Writing to a locked event makes it due; so do entries and changes of presence.
    next_check_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            CheckConstraint(condition=Q(status__in=[state.value for state in EventStatus]), name="event_status_known")
        ]
        indexes = [
            Index(fields=["not_before", "id"], name="event_open_by_time", condition=OPEN),
            # Events that may need a decision: counted, with the first one, for the status bar of every page from the
            # index alone.
            Index(fields=["not_before", "id"], name="event_to_decide", condition=TO_DECIDE),
            Index(fields=["first_seen_at", "id"], name="event_to_decide_by_age", condition=TO_DECIDE),
            Index(fields=["not_before", "id"], name="event_open_drill", condition=Q(drill=True) & OPEN),
            # A change of presence, or a decision, concerns the open events of its set; pages show the first of them.
            Index(fields=["availability_set", "not_before", "id"], name="event_open_in_set", condition=OPEN),
            Index(fields=["next_check_at"], name="event_by_next_check"),
            Index(fields=["changed_at"], name="event_by_change"),
            # When a set last changed.
            Index(fields=["availability_set", "-changed_at"], name="event_by_set_change"),
            Index(fields=["not_before", "id"], name="event_by_not_before"),
            Index(fields=["availability_set", "-first_seen_at", "-id"], name="event_by_set"),
            Index(fields=["-first_seen_at", "-id"], name="event_newest"),
            GinIndex(words_of("event_type", Cast("resources", models.TextField())), name="event_by_words"),
        ]

    def __str__(self) -> str:
        return self.event_id


class Sighting(StatedColumns):
    """The reports of one machine about one event, merged so that the order of arrival does not matter.

    `listed_*` and the stated columns are from the machine's newest document that lists the event. `gone_*` is set if a
    newer readable document of the machine does not list it. `first_at` and `started_at`: the earliest times at which it
    was listed, and listed as Started (corrected by clock offset). `foreign`: the machine belongs to another set; the
    sighting is shown but does not count.
    """

    event = models.ForeignKey(ScheduledEvent, on_delete=models.PROTECT, related_name="sightings")
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="sightings")
    foreign = models.BooleanField(default=False)
    first_at = models.DateTimeField()
    first_received_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    listed_epoch = models.IntegerField()
    listed_seq = models.BigIntegerField()
    # Of the newest document, or reminder of it, that lists the event.
    listed_at = models.DateTimeField()
    listed_incarnation = models.BigIntegerField(null=True, blank=True)
    spelled = models.TextField()
    status = models.TextField(blank=True, default="")
    gone_epoch = models.IntegerField(null=True, blank=True)
    gone_seq = models.BigIntegerField(null=True, blank=True)
    gone_at = models.DateTimeField(null=True, blank=True)
    gone_incarnation = models.BigIntegerField(null=True, blank=True)

    class Meta:
        constraints = [UniqueConstraint(fields=["event", "machine"], name="sighting_once")]
        indexes = [
            # Queried at every document: the events that this machine's newest report still lists.
            Index(fields=["machine"], name="sighting_listed", condition=Q(gone_at__isnull=True))
        ]


def with_names(events: QuerySet[ScheduledEvent]) -> QuerySet[ScheduledEvent]:
    """Return events that `named_in_resources` can filter."""
    resources = Cast("resources", models.TextField())
    return events.alias(named=Upper(resources), words=words_of("event_type", resources))


def named_in_resources(names: Iterable[str]) -> Q:
    """Return the query condition that Resources contain one of these names. They are found by word with an index, then
    compared whole and without case.
    """
    either = Q(pk__in=[])
    for name in names:
        whole = Q(named__contains=json.dumps(name, ensure_ascii=False).upper())
        query = words_begin(name)
        either |= whole & Q(words=query) if query else whole
    return either
