"""Personal settings: time zone of pages, shortcuts, desktop alerts, and how far the user has read."""

from datetime import datetime

from django.db import transaction
from django.db.models import Q

from fleet.domain.actor import Actor
from fleet.domain.policy.hours import zone_of
from fleet.domain.reasons import Reason, Refused
from fleet.domain.timeline import EntryKind, differing
from fleet.models import Profile
from fleet.operations.rights import require_change
from fleet.operations.timeline.entries import tell

# Stands for the time zone of whichever browser the page is read in.
BROWSER = "browser"
SWITCHES = ("shortcuts", "sound", "notifications", "first_steps")


@transaction.atomic
def choose(
    *,
    actor: Actor,
    now: datetime,
    time_zone: str | None = None,
    shortcuts: bool | None = None,
    sound: bool | None = None,
    notifications: bool | None = None,
    first_steps: bool | None = None,
) -> Profile:
    """Change one's own settings; None leaves a setting unchanged.

    `time_zone` is an IANA name, `browser`, or empty for UTC. Raises Refused `validation`, and `not-permitted` for a
    token that only reads.
    """
    require_change(actor, own=True)
    Profile.objects.get_or_create(user=actor.person)
    row = Profile.objects.select_for_update().get(user=actor.person)
    before = _values(row)
    if time_zone is not None:
        row.time_zone = _zone(time_zone)
    for name, wanted in zip(SWITCHES, (shortcuts, sound, notifications, first_steps), strict=True):
        if wanted is not None:
            setattr(row, name, wanted)
    before, after = differing(before, _values(row))
    if after:
        row.save(update_fields=list(after))
        person = actor.name
        tell(EntryKind.PERSON_CHANGED, actor, at=now, before=before, after=after, person=person, did="settings")
    return row


def _values(row: Profile) -> dict[str, object]:
    return {"time_zone": row.time_zone or "UTC", **{name: getattr(row, name) for name in SWITCHES}}


@transaction.atomic
def note_read(*, actor: Actor, until: datetime, now: datetime) -> bool:
    """Record that the user has read the changes up to `until`, but not beyond now. Return False where they had read
    further before."""
    until = min(until, now)
    Profile.objects.get_or_create(user=actor.person)
    row = Profile.objects.select_for_update().get(user=actor.person)
    before = row.handover_read_until
    moved = Profile.objects.filter(pk=row.pk).filter(Q(handover_read_until=None) | Q(handover_read_until__lt=until))
    if not moved.update(handover_read_until=until):
        return False
    was, became = {"handover_read_until": before}, {"handover_read_until": until}
    tell(EntryKind.HANDOVER_READ, actor, at=now, before=was, after=became, until=until)
    return True


def _zone(name: str) -> str:
    name = name.strip()
    if name in ("", "UTC"):
        return ""
    if name == BROWSER:
        return name
    try:
        zone_of(name)
    except ValueError as error:
        raise Refused("validation", Reason("no-time-zone", name=name[:100])) from error
    return name
