"""Personal settings: time zone of pages, shortcuts, desktop alerts, and up to when the user has read the changes."""

from datetime import datetime

from django.db import transaction
from django.db.models import Q

from fleet.domain.actor import Actor
from fleet.domain.timeline import EntryKind
from fleet.models import Profile
from fleet.operations.audited import Audit, AuditedForm, AuditedSerializer, Sent, save_audited
from fleet.operations.rights import require_change
from fleet.operations.timeline.entries import tell

OF_PAGES = ("time_zone", "shortcuts", "sound", "notifications")


class ChoicesForm(AuditedForm):
    class Meta(AuditedForm.Meta):
        model, fields = Profile, OF_PAGES


class ChoicesSerializer(AuditedSerializer):
    class Meta:
        model, fields = Profile, (*OF_PAGES, "first_steps")


CHOICES = Audit(
    ChoicesSerializer.Meta.fields,
    created=EntryKind.PERSON_CHANGED,
    deleted=EntryKind.PERSON_CHANGED,
    data=lambda row: {"person": row.user.username, "did": "settings"},
    # Each user changes their own.
    right=None,
)


@transaction.atomic
def choose(sent: Sent, *, actor: Actor, now: datetime) -> Profile:
    """Change the actor's own settings. Raises Refused as `save_audited` does, and `not-permitted` for a read-only
    token.
    """
    require_change(actor, own=True)
    Profile.objects.get_or_create(user=actor.person)
    row = Profile.objects.select_for_update(of=("self",)).select_related("user").get(user=actor.person)

    def name_utc(row: Profile) -> tuple[()]:
        row.time_zone = "" if row.time_zone == "UTC" else row.time_zone
        return ()

    return save_audited(sent, actor, CHOICES, row=row, now=now, check=name_utc)


@transaction.atomic
def note_read(*, actor: Actor, until: datetime, now: datetime) -> bool:
    """Record that the user has read the changes up to `until`, at most `now`. Return False if they had read further
    before.
    """
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
