"""Views of the desk's lists that people keep under a name, for themselves or for everybody."""

from datetime import datetime

from django.db import transaction

from fleet.domain.actor import Actor
from fleet.domain.desk import LISTS, MOST_VIEWS
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused
from fleet.domain.texts import tidy
from fleet.domain.timeline import EntryKind
from fleet.models import SavedView
from fleet.models.people import rights_of
from fleet.operations.timeline.entries import tell


@transaction.atomic
def save_view(*, actor: Actor, name: str, page: str, query: str, shared: bool, now: datetime) -> SavedView:
    """Keep a list with its filters. One of the same name and list that they have already is replaced.

    Raises Refused `validation` where the list has no filters, or they keep too many views.
    """
    name = tidy(name)
    if page not in LISTS:
        raise Refused("validation", Reason("view-of-no-list"))
    own = SavedView.objects.filter(owner=actor.person)
    was = own.select_for_update().filter(page=page, name=name).first()
    if was is None and own.count() >= MOST_VIEWS:
        raise Refused("validation", Reason("too-many-views", most=MOST_VIEWS))
    before = {"query": was.query, "shared": was.shared} if was else None
    after = {"query": query, "shared": shared}
    if before == after and was is not None:
        return was
    row, _ = SavedView.objects.update_or_create(
        owner=actor.person, page=page, name=name, defaults=after, create_defaults={**after, "created_at": now}
    )
    tell(EntryKind.VIEW_SAVED, actor, at=now, before=before, after=after, name=name, page=page, shared=shared)
    return row


@transaction.atomic
def delete_view(*, actor: Actor, view_id: int, now: datetime) -> SavedView:
    """Forget a view of one's own; an admin also a shared one of somebody else. Raises Refused `not-found`."""
    rows = SavedView.objects.select_for_update()
    row = rows.filter(pk=view_id).first()
    may = row is not None and (
        row.owner_id == actor.person.pk or (row.shared and rights_of(actor.person).may(Right.ADMINISTER))
    )
    if row is None or not may:
        raise Refused("not-found", Reason("no-such-view"))
    before = {"query": row.query, "shared": row.shared}
    row.delete()
    tell(EntryKind.VIEW_DELETED, actor, at=now, before=before, name=row.name, page=row.page, shared=row.shared)
    return row
