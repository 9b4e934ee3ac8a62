"""Lookups: for many keys at once, and for names by the words in them."""

import re
from typing import Any

from django.contrib.postgres.search import SearchQuery, SearchVectorField
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, ForeignObject, Func, Lookup
from django.db.models.expressions import Combinable
from django.db.models.sql.compiler import SQLCompiler

from fleet.models import driver


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
    """`column__named=[...]`: is one of these texts in any case, whatever may stand in an index on `Upper(column)`."""

    lookup_name = "named"
    prepare_rhs = False

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, list[Any]]:  # type: ignore[override]
        column, parameters = self.process_lhs(compiler, connection)
        # Postgres itself says what is the upper case of both.
        names = "ARRAY(SELECT UPPER(name) FROM unnest(%s::text[]) AS name)"
        return f"UPPER({column}) = ANY({names})", [*parameters, list(self.rhs)]


# What stands between the words of a name, in Azure's names as in JSON.
BETWEEN = '-_./:;,@()<>&|!*"[]{}'
_BETWEEN = re.compile(rf"[\s'\\{re.escape(BETWEEN)}]+")


def words_of(*columns: str | Combinable) -> Func:
    """The words in one or more columns of text, for an index and for what is found by it: `web-vm1` is `web`, `vm1`."""
    blanks = " " * len(BETWEEN)
    # In the order of their names, by which migrations compare them.
    return Func(
        *columns,
        arg_joiner=" || ' ' || ",
        output_field=SearchVectorField(),
        template=f"to_tsvector('simple'::regconfig, translate(lower(%(expressions)s), '{BETWEEN}', '{blanks}'))",
    )


def words_begin(text: str) -> SearchQuery | None:
    """What `words_of` is compared with: each word of the text begins one there. None where the text has no word."""
    found = [word for word in _BETWEEN.split(text.lower()) if word]
    query = " & ".join(f"'{word}':*" for word in found)
    return SearchQuery(query, search_type="raw", config="simple") if query else None
