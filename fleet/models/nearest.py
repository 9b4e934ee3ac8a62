"""Rows that lie nearest to a place in an order, found by indexes: of each key the first ones, then the first of all.

Asked for `key IN (...) ORDER BY at LIMIT 50`, Postgres sorts all rows of these keys, or walks through the rows of
everybody until it has found enough, which it never does where there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Model, Q, QuerySet
from django.db.models.expressions import RawSQL

M = TypeVar("M", bound=Model)
# With more keys than these, what they have in common is no longer rare, and walking finds it soon.
FEW = 1000


ALL = Q()


@dataclass(frozen=True, slots=True)
class Near:
    """Rows whose `column` has one of these values, and of which `where` holds: an index begins with that column, is as
    narrow as `where` says, and goes on in the order that is asked for.
    """

    column: str
    values: Sequence[Any]
    where: Q = ALL


class NearRows(QuerySet[M]):
    """Rows of which it is known by which keys they are found: one of the ways in `nearest` leads to each of them."""

    nearest: tuple[Near, ...] = ()

    def near(self, *ways: Near) -> NearRows[M]:
        """The same rows. No row that the filters leave may lie outside these ways."""
        clone: NearRows[M] = self.all()
        clone.nearest = ways
        return clone

    def _clone(self) -> NearRows[M]:
        clone: NearRows[M] = super()._clone()  # type: ignore[misc]
        clone.nearest = self.nearest
        return clone


def first_rows(rows: QuerySet[M], order: Sequence[str], count: int) -> QuerySet[M]:
    """The first so many rows in this order."""
    ways = getattr(rows, "nearest", ())
    if not ways or sum(len(way.values) for way in ways) > FEW:
        return rows.order_by(*order)[:count]
    parts, parameters = [], []
    for way in ways:
        field: Any = rows.model._meta.get_field(way.column)
        key = field.target_field if field.is_relation else field
        one = RawSQL("near.key", (), output_field=field)
        asked = rows.filter(way.where, **{way.column: one}).order_by(*order).values("pk")[:count]
        try:
            sql, values = asked.query.sql_with_params()
        except EmptyResultSet:
            # Django sees itself that nothing can be found this way.
            continue
        parts.append(
            f"SELECT found.id FROM unnest(%s::{key.db_type(connection)}[]) AS near (key), LATERAL ({sql}) AS found (id)"
        )
        parameters += [list(way.values), *values]
    if not parts:
        return rows.none()
    # All of it was made by Django, with the values as parameters.
    found = RawSQL(" UNION ALL ".join(parts), tuple(parameters))  # noqa: S611
    return rows.filter(pk__in=found).order_by(*order)[:count]
