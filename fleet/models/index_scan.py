"""Index scans: first rows of several keys, lookups of many keys and words, and the time of the last change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.contrib.postgres.search import SearchQuery, SearchVectorField
from django.core.exceptions import EmptyResultSet
from django.db import connection, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, ForeignObject, Func, Lookup, Model, Q, QuerySet
from django.db.models.expressions import Combinable, RawSQL
from django.db.models.functions import Now
from django.db.models.sql.compiler import SQLCompiler

from fleet.models import driver


class ChangeColumn(models.Model):
    """The time of the row's last write, by the database's clock.

    A trigger sets `changed_at` for every writer, unless only columns changed that are not shown to people
    (`fleet/migrations/0013_data_0_2.py`). A transaction may commit it later.
    """

    changed_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        abstract = True


# Lookups: for many keys at once, and for names by the words in them.


# Django's own class takes no type argument at run time. Relations keep a list of lookups of their own.
@Field.register_lookup
@ForeignObject.register_lookup
class EqualsAny(Lookup):
    """`column__any=[...]`: like `__in`, as one array parameter. With hundreds of keys `__in` prepares each of them."""

    lookup_name = "any"
    prepare_rhs = False

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, list[Any]]:  # type: ignore[override]
        column, parameters = self.process_lhs(compiler, connection)
        field = self.lhs.output_field
        kind = field.target_field.db_type(connection) if field.is_relation else field.db_type(connection)
        return f"{column} = ANY(%s::{kind}[])", [*parameters, driver.array(self.rhs)]


@Field.register_lookup
class NamedAny(Lookup):
    """`column__named=[...]`: equals one of these texts in any case; it uses an index on `Upper(column)` if there is
    one."""

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
    """Return the words in one or more text columns, for an index and its queries: `web-vm1` is `web`, `vm1`."""
    blanks = " " * len(BETWEEN)
    # In the order of their names, by which migrations compare them.
    return Func(
        *columns,
        arg_joiner=" || ' ' || ",
        output_field=SearchVectorField(),
        template=f"to_tsvector('simple'::regconfig, translate(lower(%(expressions)s), '{BETWEEN}', '{blanks}'))",
    )


def words_begin(text: str) -> SearchQuery | None:
    """Return the query to match with `words_of`: each word of the text begins one there. Return None for a text
    without words."""
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
    """Rows whose `column` has one of these values and that match `where`.

    An index begins with that column, is partial as `where` states, and continues in the requested order.
    """

    column: str
    values: Sequence[Any]
    where: Q = ALL


@dataclass(frozen=True, slots=True)
class IndexWalk:
    """A scan that checks rows in an index for matches, `portion` of them at once. It finds rows that match `within`
    and, where no key leads to them, `among`.

    An index answers both during the scan.
    """

    portion: int
    within: Q = ALL
    among: Q = ALL


class IndexScanRows(QuerySet[M]):
    """Rows that the index ranges in `nearest` find completely.

    `walk` is set where those ranges also contain other rows, which have to be filtered out.
    """

    nearest: tuple[IndexRange, ...] = ()
    walk: IndexWalk | None = None

    def near(self, *ways: IndexRange) -> IndexScanRows[M]:
        """Return the same rows with these index ranges, which must contain every row that passes the filters."""
        clone: IndexScanRows[M] = self.all()
        clone.nearest = ways
        return clone

    def looked_through(self, walk: IndexWalk) -> IndexScanRows[M]:
        """Return the same rows, found portion by portion: a page may be empty, and others may follow."""
        clone: IndexScanRows[M] = self.all()
        clone.walk = walk
        return clone

    def _clone(self) -> IndexScanRows[M]:
        clone: IndexScanRows[M] = super()._clone()  # type: ignore[misc]
        clone.nearest, clone.walk = self.nearest, self.walk
        return clone


def first_rows(rows: QuerySet[M], order: Sequence[str], count: int) -> QuerySet[M]:
    """Return the first rows, up to `count`, in this order."""
    ways = _ways(rows)
    if not ways:
        return rows.order_by(*order)[:count]
    parts, parameters = [], list[Any]()
    for way in ways:
        asked = rows.filter(way.where, **{way.column: _key(rows, way)}).order_by(*order).values("pk")[:count]
        if (clause := _of_each(rows, way, asked, "found.id", "id")) is not None:
            parts.append(clause[0])
            parameters += clause[1]
    if not parts:
        return rows.none()
    # All of it was made by Django, with the values as parameters.
    found = RawSQL(" UNION ALL ".join(parts), tuple(parameters))  # noqa: S611
    return rows.filter(pk__in=found).order_by(*order)[:count]


def first_of_each(rows: QuerySet[M], way: IndexRange, order: Sequence[str], count: int) -> QuerySet[M]:
    """Return the first rows, up to `count`, of each key in this order; rows of other keys are not read."""
    asked = rows.filter(way.where, **{way.column: _key(rows, way)}).order_by(*order).values("pk")[:count]
    clause = _of_each(rows, way, asked, "found.id", "id")
    if clause is None:
        return rows.none()
    return rows.filter(pk__in=RawSQL(clause[0], tuple(clause[1]))).order_by(*order)  # noqa: S611


def last_checked_at(rows: IndexScanRows[M], order: Sequence[str], beyond: Q) -> tuple[Any, int] | None:
    """Return where a portion of the walk ends that begins `beyond` a place: the value of the sort column, and the id.
    None at the end of all rows. `order` is (column, id), both in one direction. Runs one query, of an index.

    Each of several keys has its share of the portion; the walk ends where the first of them has used up its own.
    """
    walk = rows.walk or IndexWalk(0)
    column = order[0].lstrip("-")
    ways, plain = _ways(rows), rows.model._default_manager.order_by(*order).filter(walk.within, beyond)
    last = walk.portion // max(1, sum(len(way.values) for way in ways)) or 1
    if not ways:
        found: tuple[Any, int] | None = plain.filter(walk.among).values_list(column, "pk")[last - 1 : last].first()
        return found
    parts, parameters = [], list[Any]()
    for way in ways:
        asked = plain.filter(way.where, **{way.column: _key(rows, way)}).values(column, "pk")[last - 1 : last]
        if (clause := _of_each(rows, way, asked, "found.place, found.id", "place, id")) is not None:
            parts.append(clause[0])
            parameters += clause[1]
    if not parts:
        return None
    way_back = " DESC" if order[0].startswith("-") else ""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT place, id FROM ({' UNION ALL '.join(parts)}) AS ends (place, id)"
            f" ORDER BY place{way_back}, id{way_back} LIMIT 1",
            parameters,
        )
        end: tuple[Any, int] | None = cursor.fetchone()
    return end


def _ways(rows: QuerySet[M]) -> tuple[IndexRange, ...]:
    ways: tuple[IndexRange, ...] = getattr(rows, "nearest", ())
    return () if sum(len(way.values) for way in ways) > FEW else ways


def _key(rows: QuerySet[M], way: IndexRange) -> RawSQL:
    """The key that is looked up, one of the way's values."""
    field: Any = rows.model._meta.get_field(way.column)
    return RawSQL("near.key", (), output_field=field)


def _of_each(
    rows: QuerySet[M], way: IndexRange, asked: QuerySet[Any, Any], wanted: str, columns: str
) -> tuple[str, list[Any]] | None:
    """Return the statement that runs this query for each key of a way; None where Django itself sees that nothing can
    match."""
    field: Any = rows.model._meta.get_field(way.column)
    key = field.target_field if field.is_relation else field
    try:
        sql, values = asked.query.sql_with_params()
    except EmptyResultSet:
        return None
    each = f"unnest(%s::{key.db_type(connection)}[]) AS near (key)"
    return f"SELECT {wanted} FROM {each}, LATERAL ({sql}) AS found ({columns})", [list(way.values), *values]
