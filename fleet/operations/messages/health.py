"""How a channel does: what it answered last, since when it fails, and until when it is left alone."""

from datetime import datetime, timedelta

from django.db import transaction

from fleet.domain.actor import DRYDOCK
from fleet.domain.messages.retry import FAILING_AFTER, pause_seconds
from fleet.domain.timeline import EntryKind
from fleet.models import Channel
from fleet.operations.messages.queue import chance
from fleet.operations.timeline.entries import tell


@transaction.atomic
def took(channel_id: int, *, now: datetime, answer: str, wait_seconds: float | None) -> None:
    """It took a post. `wait_seconds`: it asked to be left alone for so long before the next."""
    row = Channel.objects.select_for_update(no_key=True).get(pk=channel_id)
    if row.failures >= FAILING_AFTER:
        tell(EntryKind.CHANNEL_WORKS, DRYDOCK, at=now, channel_id=row.pk, name=row.name, channel_kind=row.kind)
    row.last_ok_at, row.failing_since, row.failures = now, None, 0
    row.last_error, row.last_answer = "", answer
    row.held_until = None if wait_seconds is None else now + timedelta(seconds=wait_seconds)
    row.save(update_fields=["last_ok_at", "failing_since", "failures", "last_error", "last_answer", "held_until"])


@transaction.atomic
def failed(
    channel_id: int, *, now: datetime, error: str, answer: str, hold: bool, wait_seconds: float | None, gone: bool
) -> None:
    """It did not take a post: it is left alone for a while where `hold`, and switched off where it is `gone`."""
    row = Channel.objects.select_for_update(no_key=True).get(pk=channel_id)
    row.failures += 1
    row.failing_since = row.failing_since or now
    row.last_error, row.last_answer = error, answer
    row.enabled = row.enabled and not gone
    if hold:
        row.held_until = now + timedelta(seconds=pause_seconds(row.failures, chance=chance(), asked=wait_seconds))
    if row.failures == FAILING_AFTER or gone:
        tell(
            EntryKind.CHANNEL_FAILING,
            DRYDOCK,
            at=now,
            channel_id=row.pk,
            name=row.name,
            channel_kind=row.kind,
            error=error,
            gone=gone,
        )
    row.save(update_fields=["failures", "failing_since", "last_error", "last_answer", "held_until", "enabled"])
