"""Retention with real partitions: archived, taken out, and still read; what outlives its partition moves on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from fleet.audit import archived_entries, retention, seals
from fleet.audit.archive_format import ArchiveKind
from fleet.audit.models import ArchiveFile, due
from fleet.audit.partition_drop import RetainReason, drop_partition
from fleet.audit.queries import storage
from fleet.audit.seals import Finding, verify
from fleet.models import Entry, LatestDocument, Observation, ScheduledEvent, Seal
from fleet.models.partitions import BODIES, ENTRIES, OBSERVATIONS, partitions
from fleet.projections import intake
from tests.factories import NOW, Fleet, freeze_completed
from tests.partitions.test_a_partition_leaves_as_a_whole import closed
from tests.processes import wait_for

pytestmark = pytest.mark.usefixtures("own")


@pytest.fixture
def event(tmp_path: Path, settings: Any) -> Iterator[ScheduledEvent]:
    """An event that is over, in partitions behind which others begin; entries leave after ten days."""
    settings.ARCHIVE_URL = f"file://{tmp_path}/archive"
    settings.RETENTION_DAYS = {**settings.RETENTION_DAYS, "entries": 10}
    archived_entries._cache.clear()
    found = freeze_completed(Fleet())
    wait_for(partial(all_sealed, Entry.objects.order_by("-pk")[0].pk), seconds=20, what="all of it is sealed")
    for table in (OBSERVATIONS, ENTRIES, BODIES):
        closed(table)
    # What comes now stands behind all of these.
    again = Fleet(now=NOW + timedelta(minutes=30))
    again.enrol("later")
    again.say("later")
    yield found
    archived_entries._cache.clear()


def all_sealed(last: int) -> bool:
    seals.seal(now=NOW, via="test")
    return Seal.objects.filter(last_id__gte=last).exists()


def runs(now: datetime) -> list[str]:
    """Return the archived entries after the last archiving step."""
    dropped: list[str] = []
    while True:
        done = retention.retain(now=now)
        assert done.ran
        assert done.fault == ""
        if not done.dropped:
            return dropped
        dropped += done.dropped


def findings() -> list[Finding]:
    found: list[Finding] = []
    verify(now=datetime.now(UTC), tell=found.append)
    return found


def test_archived_entries_stay_readable_and_the_audit_verifies(event: ScheduledEvent) -> None:
    before = intake.for_event(event_id=event.event_id)
    entries = set(Entry.objects.filter(event=event).values_list("pk", flat=True))
    assert "fleet_entry_from_0" in runs(timezone.now() + timedelta(days=1000))
    assert not Entry.objects.filter(event=event).exists()
    assert {row.pk for row in archived_entries.entries_of(event.event_id).entries} == entries
    assert findings() == []
    kinds = ArchiveFile.objects.exclude(dropped_at=None).values_list("kind", flat=True)
    assert {ArchiveKind.ENTRIES.value, ArchiveKind.OBSERVATIONS.value} == set(kinds)
    after = intake.for_event(event_id=event.event_id)
    assert before is not None and after is not None
    assert [one.hash for one in after.documents] == [one.hash for one in before.documents]
    assert storage(now=timezone.now()).archive.files == ArchiveFile.objects.count()


def test_documents_with_an_event_and_latest_ones_stay_longer_than_the_others(event: ScheduledEvent) -> None:
    before = intake.for_event(event_id=event.event_id)
    assert before is not None
    count = Observation.objects.count()
    assert "fleet_observation" in runs(NOW + timedelta(days=31))
    # No file is asked.
    archived_entries._cache.clear()
    listing = {one.hash for one in before.documents if one.lists_event}
    kept = set(Observation.objects.values_list("document_id", flat=True))
    assert listing <= kept
    assert set(LatestDocument.objects.values_list("document_hash", flat=True)) <= kept
    assert Observation.objects.count() < count
    assert "fleet_observation" not in {one.name for one in partitions(OBSERVATIONS)}


def test_report_partition_drops_only_after_needed_rows_are_copied(event: ScheduledEvent) -> None:
    later = NOW + timedelta(days=31)
    first = partitions(OBSERVATIONS)[0]
    leaves = partial(
        drop_partition, OBSERVATIONS, first, before=later, archived_to=first.last_id, now=later, via="test"
    )
    assert leaves() is RetainReason.NOT_COPIED
    (leaving,) = (one for one in due(now=later) if one.partition.name == first.name)
    assert retention.copy_forward(leaving, now=later) > 0
    # A copied row is lost again: retention checks the copies before it drops the partition.
    last = Observation.objects.order_by("-pk")[0]
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {OBSERVATIONS.table} DISABLE TRIGGER USER")
        cursor.execute(f"DELETE FROM {OBSERVATIONS.table} WHERE id = %s", [last.pk])
        cursor.execute(f"ALTER TABLE {OBSERVATIONS.table} ENABLE TRIGGER USER")
    assert leaves() is RetainReason.NOT_COPIED
    assert retention.copy_forward(leaving, now=later) == 1
    assert leaves() is None
