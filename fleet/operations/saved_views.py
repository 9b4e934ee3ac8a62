"""Saved views of lists, for their owner or for all users."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from fleet.domain.actor import Actor
from fleet.domain.desk import LISTS, MOST_VIEWS
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused
from fleet.domain.texts import tidy
from fleet.domain.timeline import EntryKind
from fleet.models import SavedView
from fleet.models.people import rights_of
from fleet.operations.audited import Audit, AuditedForm, delete_audited, save_audited


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
