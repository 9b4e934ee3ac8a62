"""The catalogue of the archive: one row for each file that was written and read back; and how the last try went."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q

from fleet.domain.archive import Manifest


class ArchiveFile(models.Model):
    """One file of the archive. Its columns up to `previous_hash` are those of `fleet.domain.archive.Manifest`, `hash`
    is the manifest's.

    `events` are the row ids of the events that it says something of. `dropped_at` is when its rows left the database;
    until then they are in both.
    """

    number = models.BigIntegerField(primary_key=True)
    kind = models.TextField()
    form = models.SmallIntegerField()
    rows = models.BigIntegerField()
    first_id = models.BigIntegerField()
    last_id = models.BigIntegerField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    first_seal = models.BigIntegerField(null=True, blank=True)
    last_seal = models.BigIntegerField(null=True, blank=True)
    # The whole manifest, as it was hashed.
    manifest = models.JSONField()
    bytes = models.BigIntegerField()
    hash = models.TextField()
    events = ArrayField(models.BigIntegerField(), default=list)
    archived_at = models.DateTimeField()
    dropped_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["kind", "first_id"], name="archive_by_id"),
            models.Index(fields=["kind", "last_seal"], name="archive_by_seal", condition=Q(last_seal__isnull=False)),
            GinIndex(fields=["events"], name="archive_by_event"),
        ]

    def __str__(self) -> str:
        return f"archive file {self.number}"

    @property
    def told(self) -> Manifest:
        """The manifest."""
        found = {name: value for name, value in self.manifest.items() if name not in ("name", "hash")}
        for name in ("seals", "first_place", "last_place"):
            found[name] = tuple(found[name]) if found[name] is not None else None
        return Manifest(**found)


class ArchiveState(models.Model):
    """How archiving goes. One row. `fault` is a code of `fleet.domain.archive.StoreFault`, empty where all is well;
    `held` says of each kind (by its name) what keeps its next rows from leaving, as a code.
    """

    name = models.TextField(primary_key=True)
    tried_at = models.DateTimeField()
    worked_at = models.DateTimeField(null=True, blank=True)
    fault = models.TextField(blank=True, default="")
    fault_since = models.DateTimeField(null=True, blank=True)
    held = models.JSONField(default=dict)

    def __str__(self) -> str:
        return self.fault or "well"
