"""Entries of the timeline about changes of accounts."""

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from fleet.domain.actor import Actor
from fleet.domain.timeline import EntryKind
from fleet.operations.timeline.entries import tell


def record_change(did: str, person: User, actor: Actor, now: datetime, *, before: Any, after: Any, **data: Any) -> None:
    """Record a change of an account, inside its transaction. `did` is a code of `accounts.text.PERSON_CHANGES`."""
    name = person.get_username()
    tell(EntryKind.PERSON_CHANGED, actor, at=now, before=before, after=after, person=name, did=did, **data)
