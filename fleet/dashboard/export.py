"""What projections show, as plain JSON values."""

from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from fleet.dashboard import words


def exported(value: Any) -> Any:
    """Dataclasses as objects, times as RFC 3339 in UTC."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: exported(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, datetime):
        return words.iso(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {str(key): exported(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [exported(item) for item in value]
    return value
