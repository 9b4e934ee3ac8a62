"""Views of lists that people have saved: one's own first, then those that are shared."""

from dataclasses import dataclass

from django.db.models import Q

from fleet.models import SavedView
from fleet.projections.sight import seen

MOST = 200


@dataclass(frozen=True, slots=True)
class SavedViewRow:
    """`page` is the list, as pages are called, `query` its filters as they stand in the address."""

    id: int
    name: str
    page: str
    query: str
    shared: bool
    owner: str
    mine: bool


def saved_views(*, user_id: int, page: str = "", named: str = "") -> tuple[SavedViewRow, ...]:
    """One query: those of this person and those that are shared, of one list or of all, whose name contains `named`."""
    rows = seen(SavedView).filter(Q(owner=user_id) | Q(shared=True)).select_related("owner")
    if page:
        rows = rows.filter(page=page)
    if named:
        rows = rows.filter(name__icontains=named)
    found = [
        SavedViewRow(
            id=row.pk,
            name=row.name,
            page=row.page,
            query=row.query,
            shared=row.shared,
            owner=row.owner.get_username(),
            mine=row.owner_id == user_id,
        )
        for row in rows.order_by("name", "pk")[:MOST]
    ]
    return tuple(sorted(found, key=lambda row: not row.mine))
