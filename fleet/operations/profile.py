"""What belongs to one user: time zone of pages, shortcuts, desktop alerts, up to when they have read the changes, and
saved views of lists, for their owner or for all users.
"""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from fleet.domain.actor import Actor
from fleet.domain.desk import LISTS, MOST_VIEWS
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused
from fleet.domain.texts import tidy
from fleet.domain.timeline import EntryKind
from fleet.models import Profile, SavedView
from fleet.models.people import rights_of
from fleet.operations.audited import Audit, AuditedForm, AuditedSerializer, Sent, delete_audited, save_audited
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


class ViewForm(AuditedForm):
    class Meta(AuditedForm.Meta):
        model, fields = SavedView, ("name", "page", "query", "shared")
        error_messages = {
            "name": dict.fromkeys(("required", "max_length"), "Enter a name of up to 60 characters."),
            "query": {"max_length": "The filters are too long to be saved."},
        }


VIEWS = Audit(
    ("query", "shared"),
    created=EntryKind.VIEW_SAVED,
    deleted=EntryKind.VIEW_DELETED,
    data=lambda row: {"name": row.name, "page": row.page, "shared": row.shared},
    right=Right.READ,
)


@transaction.atomic
def save_view(sent: ViewForm, *, actor: Actor, now: datetime) -> SavedView:
    """Save a list with filters. An existing view of the same user, name and list is replaced.

    Raises Refused `validation` if the list has no filters, or the user has too many views.
    """
    page, name = sent.data.get("page"), tidy(sent.data.get("name", ""))
    if page not in LISTS:
        raise Refused("validation", Reason("view-of-no-list"))
    # One at a time: two of the same name would be one too many.
    own = SavedView.objects.filter(owner=User.objects.select_for_update(no_key=True).get(pk=actor.person.pk))
    row = own.filter(page=page, name=name).first()
    if row is None and own.count() >= MOST_VIEWS:
        raise Refused("validation", Reason("too-many-views", most=MOST_VIEWS))
    row = row or SavedView(owner=actor.person, created_at=now)
    return save_audited(sent, actor, VIEWS, row=row, now=now)


@transaction.atomic
def delete_view(*, actor: Actor, view_id: int, now: datetime) -> SavedView:
    """Delete the actor's own view, or as an administrator another user's shared view. Raises Refused `not-found`."""
    rows = SavedView.objects.select_for_update()
    row = rows.filter(pk=view_id).first()
    may = row is not None and (
        row.owner_id == actor.person.pk or (row.shared and rights_of(actor.person).may(Right.ADMINISTER))
    )
    if row is None or not may:
        raise Refused("not-found", Reason("no-such-view"))
    delete_audited(row, actor, VIEWS, now=now)
    return row
