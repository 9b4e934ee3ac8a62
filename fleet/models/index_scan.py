"""Queries that use indexes even for large tables: first rows for several keys, lookups by many keys or by words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.contrib.postgres.search import SearchQuery, SearchVectorField
from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, ForeignObject, Func, Lookup, Model, Q, QuerySet
from django.db.models.expressions import Combinable, RawSQL
from django.db.models.sql.compiler import SQLCompiler

from fleet.models import driver

# Lookups: for many keys at once, and for names by the words in them.


# Django's own class takes no type argument at run time. Relations keep a list of lookups of their own.
@Field.register_lookup
@ForeignObject.register_lookup
class EqualsAny(Lookup):
    """Lookup `column__any=[...]`: like `__in`, but with one array parameter, which is faster for hundreds of keys."""

    lookup_name = "any"
    prepare_rhs = False

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, list[Any]]:  # type: ignore[override]
        column, parameters = self.process_lhs(compiler, connection)
        field = self.lhs.output_field
        kind = field.target_field.db_type(connection) if field.is_relation else field.db_type(connection)
        return f"{column} = ANY(%s::{kind}[])", [*parameters, driver.array(self.rhs)]


@Field.register_lookup
class NamedAny(Lookup):
    """Lookup `column__named=[...]`: equals one of these texts in any letter case. Uses an index on `Upper(column)`."""

    lookup_name = "named"
    prepare_rhs = False

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, list[Any]]:  # type: ignore[override]
        column, parameters = self.process_lhs(compiler, connection)
        # Postgres itself converts both to upper case.
        names = "ARRAY(SELECT UPPER(name) FROM unnest(%s::text[]) AS name)"
        return f"UPPER({column}) = ANY({names})", [*parameters, list(self.rhs)]


# What stands between the words of a name, in Azure's names as in JSON.
BETWEEN = '-_./:;,@()<>&|!*"[]{}'
_BETWEEN = re.compile(rf"[\s'\\{re.escape(BETWEEN)}]+")


def words_of(*columns: str | Combinable) -> Func:
    """Return an expression for the words in one or more text columns, for an index and queries. `web-vm1` has two
    words.
    """
    blanks = " " * len(BETWEEN)
    # In the order of their names, by which migrations compare them.
    return Func(
        *columns,
        arg_joiner=" || ' ' || ",
        output_field=SearchVectorField(),
        template=f"to_tsvector('simple'::regconfig, translate(lower(%(expressions)s), '{BETWEEN}', '{blanks}'))",
    )


def words_begin(text: str) -> SearchQuery | None:
    """Return a search query that matches `words_of` if each word of the text begins a word there; None without
    words.
    """
    found = [word for word in _BETWEEN.split(text.lower()) if word]
    query = " & ".join(f"'{word}':*" for word in found)
    return SearchQuery(query, search_type="raw", config="simple") if query else None


# Rows that lie nearest to a place in an order, found by indexes: of each key the first ones, then the first of all.

M = TypeVar("M", bound=Model)
# With more keys than these, common rows are no longer rare, and a walk finds them soon.
FEW = 1000


ALL = Q()


@dataclass(frozen=True, slots=True)
class IndexRange:
    """Part of an index: the rows whose `column` has one of these values and that match `where`.

    There must be an index that begins with this column, has the condition `where`, and continues in the requested
    order.
    """

    column: str
    values: Sequence[Any]
    where: Q = ALL


@dataclass(frozen=True, slots=True)
class IndexWalk:
    """A scan of a table along an index in portions of `portion` rows, for filters that no index answers.

    It checks rows that match `within`, and also `among` if the rows have no index ranges. An index must support both.
    """

    portion: int
    within: Q = ALL
    among: Q = ALL


class IndexScanRows(QuerySet[M]):
    """QuerySet whose rows are found through the index ranges in `nearest`.

    `walk` is set if these ranges also contain other rows, which must be filtered out in portions.
    """

    nearest: tuple[IndexRange, ...] = ()
    walk: IndexWalk | None = None

    def near(self, *ways: IndexRange) -> IndexScanRows[M]:
        """Return the QuerySet with these index ranges. They must contain every row that passes the filters."""
        clone: IndexScanRows[M] = self.all()
        clone.nearest = ways
        return clone

    def looked_through(self, walk: IndexWalk) -> IndexScanRows[M]:
        """Return the QuerySet with a scan in portions. A page of results may then be empty although further pages
        follow.
        """
        clone: IndexScanRows[M] = self.all()
        clone.walk = walk
        return clone

    def _clone(self) -> IndexScanRows[M]:
        clone: IndexScanRows[M] = super()._clone()  # type: ignore[misc]
        clone.nearest, clone.walk = self.nearest, self.walk
        return clone


def first_rows(rows: QuerySet[M], order: Sequence[str], count: int) -> QuerySet[M]:
    """Return the first `count` rows in this order, using the index ranges of the QuerySet."""
    ways = _ways(rows)
    found = _first(rows, ways, order, count) if ways else rows
    return found.order_by(*order)[:count]


def first_of_each(rows: QuerySet[M], way: IndexRange, order: Sequence[str], count: int) -> QuerySet[M]:
    """Return the first `count` rows for each key of the index range, in this order. Rows with other keys are
    not read.
    """
    return _first(rows, [way], order, count).order_by(*order)


def _first(rows: QuerySet[M], ways: Sequence[IndexRange], order: Sequence[str], count: int) -> QuerySet[M]:
    clause = _of_each(rows, ways, order, {"pk": "id"}, slice(count))
    if clause is None:
        return rows.none()
    # All of it was made by Django, with the values as parameters.
    return rows.filter(pk__in=RawSQL(clause[0], tuple(clause[1])))  # noqa: S611


def last_checked_at(rows: IndexScanRows[M], order: Sequence[str], beyond: Q) -> tuple[Any, int] | None:
    """Return where the next portion of a scan ends, as (value of the sort column, id); None if no rows remain.

    `order` is (column, id), both in one direction; `beyond` is the condition that a row is after the previous portion.
    Several keys share the portion equally: it ends where the first key has used up its share. Runs one query on an
    index.
    """
    walk = rows.walk or IndexWalk(0)
    column = order[0].lstrip("-")
    ways, plain = _ways(rows), rows.model._default_manager.order_by(*order).filter(walk.within, beyond)
    last = walk.portion // max(1, sum(len(way.values) for way in ways)) or 1
    if not ways:
        found: tuple[Any, int] | None = plain.filter(walk.among).values_list(column, "pk")[last - 1 : last].first()
        return found
    clause = _of_each(plain, ways, order, {column: "place", "pk": "id"}, slice(last - 1, last))
    if clause is None:
        return None
    way_back = " DESC" if order[0].startswith("-") else ""
    statement = (
        f"SELECT place, id FROM ({clause[0]}) AS ends (place, id) ORDER BY place{way_back}, id{way_back} LIMIT 1"
    )
    ends: list[Any] = driver.query(statement, *clause[1])
    return ends[0] if ends else None


def _ways(rows: QuerySet[M]) -> tuple[IndexRange, ...]:
    ways: tuple[IndexRange, ...] = getattr(rows, "nearest", ())
    return () if sum(len(way.values) for way in ways) > FEW else ways


def _of_each(
    rows: QuerySet[Any], ways: Sequence[IndexRange], order: Sequence[str], columns: Mapping[str, str], part: slice
) -> tuple[str, list[Any]] | None:
    """Return SQL and parameters for a part of the rows in this order, for each key of the index ranges; None if nothing
    can match. `columns` maps the selected columns to their names in the result.
    """
    parts, parameters = [], list[Any]()
    for way in ways:
        field: Any = rows.model._meta.get_field(way.column)
        key = field.target_field if field.is_relation else field
        # The key that is currently looked up.
        of_key = rows.filter(way.where, **{way.column: RawSQL("near.key", (), output_field=field)})
        try:
            sql, values = of_key.order_by(*order).values(*columns)[part].query.sql_with_params()
        except EmptyResultSet:
            continue
        keys, names = f"unnest(%s::{key.db_type(connection)}[]) AS near (key)", ", ".join(columns.values())
        # By name: the inner statement may have further columns.
        parts.append(f"SELECT {names} FROM {keys}, LATERAL ({sql}) AS found ({names})")
        parameters += [list(way.values), *values]
    return (" UNION ALL ".join(parts), parameters) if parts else None
