"""A lookup for many keys at once."""

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, ForeignObject, Lookup
from django.db.models.sql.compiler import SQLCompiler


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
        return f"{column} = ANY(%s::{kind}[])", [*parameters, list(self.rhs)]
