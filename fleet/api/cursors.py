"""Cursors as callers hold them: signed, and good for the list, the filters and the order that they were made of."""

from __future__ import annotations

import hashlib
import json

from django.core.signing import BadSignature, Signer
from rest_framework.request import Request

from fleet.api.problems import Problem, wrong

CURSOR, PAGE_SIZE, ORDERING = "cursor", "page_size", "ordering"
UNREADABLE = "The cursor cannot be read: take it from `next` or `previous`."
OF_ANOTHER = "The cursor is of another list, of other filters or of another order: begin without it."


def unreadable() -> Problem:
    """Problem `validation` about the cursor."""
    return wrong(CURSOR, UNREADABLE)


def read_cursor(request: Request) -> str | None:
    """What the projection made; None where the list begins. Raises Problem `validation`."""
    given = request.query_params.get(CURSOR)
    if not given:
        return None
    try:
        of, _, cursor = _signer().unsign(given).partition(".")
    except BadSignature:
        raise unreadable() from None
    if of != _list(request):
        raise wrong(CURSOR, OF_ANOTHER)
    return cursor


def address(request: Request, cursor: str | None) -> str | None:
    """The whole address of the page at this cursor of a projection; None where there is none."""
    if cursor is None:
        return None
    query = request.query_params.copy()
    query[CURSOR] = _signer().sign(f"{_list(request)}.{cursor}")
    return request.build_absolute_uri(f"{request.path}?{query.urlencode()}")


def _signer() -> Signer:
    """By SECRET_KEY; cursors of those among the SECRET_KEY_FALLBACKS are read."""
    return Signer(salt="drydock.api.cursor")


def _list(request: Request) -> str:
    """What tells a list with its filters and its order from every other one. Its person does not: whoever follows a
    cursor sees what they see.
    """
    asked = {
        name: sorted(filter(None, values))
        for name, values in request.query_params.lists()
        if name not in (CURSOR, PAGE_SIZE) and any(values)
    }
    told = json.dumps([request.path, asked], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]
