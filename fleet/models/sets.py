"""Availability sets."""

from django.conf import settings
from django.contrib.postgres.indexes import GinIndex
from django.db import models

from fleet.domain.sets import KINDS
from fleet.models.changes import ChangeColumn
from fleet.models.lookups import words_of


class AvailabilitySet(ChangeColumn):
    """The machines to which Azure delivers the same events.

    `key` is `kind|subscription|resource group|name`, lower case (a scale set's name carries its placement group); the
    other columns keep what was stated, for showing. `merged_into` is set once the set turned out to be another one.
    """

    key = models.TextField(unique=True)
    kind = models.TextField()
    name = models.TextField()
    subscription = models.TextField(blank=True, default="")
    resource_group = models.TextField(blank=True, default="")
    service = models.TextField(blank=True, default="")
    # What tells it from another set of its name, such as its subscription; empty while there is none.
    apart = models.TextField(blank=True, default="", db_default="")
    # Whether its scale set announces upgrades and reimages of the operating system; None when nobody said.
    upgrade_notices = models.BooleanField(null=True, blank=True)
    # Whether approving in it always takes a second person.
    second_person = models.BooleanField(default=False)
    # Whoever approves in it is asked again who they are. A process of an earlier release writes no value.
    step_up = models.BooleanField(default=False, db_default=False)
    # But no service account, which nobody can ask.
    step_up_spares_services = models.BooleanField(default=False, db_default=False)
    # How many live machines it takes to do its work; None when nobody said.
    needs_live = models.IntegerField(null=True, blank=True)
    # Requirements that an administrator wants to lower where two persons are required, by name, and who asked for it
    # when; until another administrator asks for the same.
    lowering = models.JSONField(null=True, blank=True)
    lowering_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    lowering_at = models.DateTimeField(null=True, blank=True)
    # Until then its machines that come back without their credential are admitted by themselves.
    admits_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    # Never a chain: who was merged into a set that is merged itself leads to the last one.
    merged_into = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(kind__in=list(KINDS)), name="set_kind_known"),
        ]
        indexes = [
            models.Index(fields=["name", "id"], name="set_listed"),
            models.Index(fields=["service"], name="set_by_service"),
            GinIndex(words_of("name", "service", "resource_group"), name="set_by_words"),
        ]

    def __str__(self) -> str:
        return self.name
