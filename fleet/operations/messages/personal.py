"""What somebody is told of their own account: by all channels that they have alone, whatever their routes say, and by
nobody else's.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings

from fleet.domain.messages.moments import OF_ENTRY, PERSONAL, is_personal
from fleet.domain.messages.severity import moment_severity
from fleet.domain.messages.states import MessageState
from fleet.domain.pseudonyms import number_of
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, Message
from fleet.models.facts.messages import own_channels, owners_of


def may_be_personal(entry: Entry) -> bool:
    """Whether entries of this kind are for nobody but the person whom they are about."""
    return OF_ENTRY.get(EntryKind(entry.kind)) in PERSONAL


def messages(entries: Sequence[Entry], *, now: datetime) -> list[Message]:
    """Those of these entries, one for each channel of each person. Of a service account its owner is told.
    At most two queries.
    """
    about = [(entry, number_of(str(entry.data["person"]))) for entry in entries if _told(entry)]
    numbers = {number for _, number in about if number is not None}
    owners = owners_of(numbers) if numbers else {}
    channels = own_channels({owners.get(number, number) for number in numbers}) if numbers else {}
    return [
        _message(entry, channel_id, now=now)
        for entry, number in about
        if number is not None
        for channel_id in channels.get(owners.get(number, number), ())
    ]


def _told(entry: Entry) -> bool:
    return is_personal(EntryKind(entry.kind), entry.data)


def _message(entry: Entry, channel_id: int, *, now: datetime) -> Message:
    moment = OF_ENTRY[EntryKind(entry.kind)]
    return Message(
        moment=moment.value,
        # Each is told by itself: none is the newer word about another.
        subject=f"account:{entry.pk}",
        entry_id=entry.pk,
        at=entry.at,
        created_at=now,
        due_at=now + timedelta(seconds=settings.MESSAGE_GROUP_WAIT_SECONDS),
        severity=moment_severity(moment).value,
        channel_id=channel_id,
        state=MessageState.WAITING.value,
    )
