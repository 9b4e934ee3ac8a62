"""No-approval windows: hours in which nothing is approved without a reason. Admins make and delete them."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, time
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from fleet.domain.entries import EntryKind
from fleet.domain.rules import tidied
from fleet.domain.windows import Window, window_faults, window_words
from fleet.models import NoApprovalWindow
from fleet.models.standing import window_of
from fleet.operations.entries import entry, write
from fleet.operations.errors import Refused
from fleet.operations.rights import require_administer


def create(
    *, by: User, via: str, now: datetime, values: Mapping[str, Any], token_name: str = "", why: str = ""
) -> NoApprovalWindow:
    """A new window. Raises Refused: `not-permitted`, `validation` (details `errors`)."""
    require_administer(by)
    window = _wanted(values)
    found = list(window_faults(window, now=now))
    if found:
        errors = [{"field": field, "message": sentence} for field, sentence in found]
        raise Refused("validation", found[0][1], errors=errors)
    columns = {field.name: getattr(window, field.name) for field in fields(Window)}
    columns["weekdays"] = list(window.weekdays)
    with transaction.atomic():
        row = NoApprovalWindow.objects.create(**columns, author=by, created_at=now)
        said = f"{window_words(window)}. “{row.reason}”"
        text = f"{by.get_username()} made the no-approval window “{row.name}”: {said}"
        _note(EntryKind.WINDOW_CREATED, text, row, by, via, token_name, why or row.reason, now, None, _told(row))
    return row


def delete(
    *, window_id: int, by: User, via: str, now: datetime, token_name: str = "", why: str = ""
) -> NoApprovalWindow:
    """End a window for good. Raises Refused: `not-permitted`, `not-found`."""
    require_administer(by)
    with transaction.atomic():
        rows = NoApprovalWindow.objects.select_for_update().filter(pk=window_id, deleted_at__isnull=True)
        row = rows.first()
        if row is None:
            raise Refused("not-found", "There is no no-approval window of this id.")
        row.deleted_at = now
        row.save(update_fields=["deleted_at"])
        text = f"{by.get_username()} deleted the no-approval window “{row.name}”: {window_words(window_of(row))}."
        _note(EntryKind.WINDOW_DELETED, text, row, by, via, token_name, why, now, _told(row), None)
    return row


def _wanted(values: Mapping[str, Any]) -> Window:
    """What somebody says of a window, tidied. Raises Refused `validation` for a field that is none."""
    unknown = sorted(set(values) - {field.name for field in fields(Window)})
    if unknown:
        sentence = "A no-approval window has no such field."
        raise Refused("validation", sentence, errors=[{"field": unknown[0], "message": sentence}])
    return Window(**{name: tidied(value) for name, value in values.items()})


def _told(row: NoApprovalWindow) -> dict[str, Any]:
    """A window as JSON values, for what stood before and after."""
    window = window_of(row)
    values = {field.name: getattr(row, field.name) for field in fields(Window)}
    plain = {name: value.isoformat() if isinstance(value, datetime | time) else value for name, value in values.items()}
    return {**plain, "wording": window_words(window)}


def _note(
    kind: EntryKind,
    text: str,
    row: NoApprovalWindow,
    by: User,
    via: str,
    token_name: str,
    why: str,
    now: datetime,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> None:
    write(
        [
            entry(
                kind,
                text,
                at=now,
                actor=by.get_username(),
                via=via,
                token_name=token_name,
                why=why,
                before=before,
                after=after,
                window_id=row.pk,
            )
        ]
    )
