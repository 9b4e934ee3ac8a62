"""What a call is, said once: the schema is made of it, and so are the way in and the way out of its method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import django_filters
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.problems import CONTENT_TYPE
from fleet.api.repeats import IDEMPOTENCY_KEY, answered, once
from fleet.api.shapes.base import ProblemSerializer
from fleet.api.shapes.derive import Shape, page_of
from fleet.projections.filters import TimeFilter
from fleet.projections.pages import MAX_PAGE_SIZE

if TYPE_CHECKING:
    from fleet.api.calls import Call

PAGE_PARAMETERS = [
    OpenApiParameter("cursor", str, description="Where the page begins; taken from `next` or `previous`."),
    OpenApiParameter("page_size", int, description=f"At most {MAX_PAGE_SIZE}; 50 if nothing is said."),
]
# What a filter takes; the others take a text.
FILTER_TYPES: dict[Any, Any] = {
    django_filters.NumberFilter: int,
    django_filters.BooleanFilter: bool,
    TimeFilter: datetime,
}
# A problem's name, and a sentence about this very case if its title does not say enough.
Missing = tuple[str] | tuple[str, str]


def describe(
    operation_id: str,
    summary: str,
    *,
    needs: str = "",
    answer: Any = None,
    page: Shape | None = None,
    all_of: Shape | None = None,
    missing: Missing | None = None,
    body: Any = None,
    repeatable: bool = False,
    status: int = 200,
    kind: str = "",
    problems: Iterable[int] | None = (),
    description: str = "",
    parameters: Iterable[OpenApiParameter] = (),
) -> Callable[[Callable[..., Any]], Callable[..., HttpResponseBase]]:
    """A method of a `Call`, which takes the places of its address and finds the body in `self.wanted`.

    It answers what it returns: with `answer` one row for that shape (`missing` is the problem that None becomes), with
    `page` a page of rows (to be read at `self.place`), with `all_of` the rows of a list that is short enough for one
    page, with none of them nothing. A response goes out as it is; `kind` is its media type where it is no JSON.

    `needs` is the scope, `repeatable` that an `Idempotency-Key` is taken. Query parameters that are not described are
    refused. `problems` are statuses beside those that follow from all this; None: not even those of every call.
    """
    taken = [*parameters, *([IDEMPOTENCY_KEY] if repeatable else ()), *(PAGE_PARAMETERS if page else ())]
    follow = {404: missing, 409: repeatable, 422: page or body}
    statuses = {401, 403, 429, *problems, *(each for each in follow if follow[each])} if problems is not None else ()
    shown = page_of(page or all_of) if page or all_of else answer
    status = 204 if shown is None else 201 if repeatable else status
    told = extend_schema(
        operation_id=operation_id,
        summary=summary,
        description=description or None,
        parameters=taken,
        request=body,
        responses={
            (status, kind) if kind else status: shown,
            **{(each, CONTENT_TYPE): ProblemSerializer for each in sorted(statuses)},
        },
    )

    def described(method: Callable[..., Any]) -> Callable[..., HttpResponseBase]:
        @wraps(method)
        def call(self: Call, request: Request, **place: Any) -> HttpResponseBase:
            if isinstance(body, type):
                self.wanted = self.read(body)
            act = partial(method, self, **place)
            if repeatable:
                return answered(once(request, lambda: self.values(answer, act(), missing), now=self.now))
            if page is not None:
                return Response(self.paged(page, act))
            return _plain(self, act(), answer=answer, all_of=all_of, missing=missing, status=status)

        call.needs = needs  # type: ignore[attr-defined]
        call.knows = {each.name for each in taken if each.location == OpenApiParameter.QUERY}  # type: ignore[attr-defined]
        return told(call)

    return described


def _plain(
    call: Call, found: Any, *, answer: Any, all_of: Shape | None, missing: Missing | None, status: int
) -> HttpResponseBase:
    """What a method returned, as an answer."""
    if isinstance(found, HttpResponseBase):
        return found
    if all_of is not None:
        return Response({"next": None, "previous": None, "results": call.many(all_of, found)})
    return Response(call.values(answer, found, missing) if answer else None, status=status)


def filters_of(
    filters: type[Any], help_texts: Mapping[str, str], *, as_text: Iterable[str] = ()
) -> list[OpenApiParameter]:
    """The filters of a FilterSet for the schema, with these help texts; `as_text` are times whose format is not told.

    Raises TypeError where the texts are not those of the filters.
    """
    known = filters.base_filters
    if set(known) != set(help_texts):
        raise TypeError(f"{filters.__name__} has the filters {', '.join(known)}.")

    def type_of(name: str) -> Any:
        found = (kind for each, kind in FILTER_TYPES.items() if isinstance(known[name], each) and name not in as_text)
        return next(found, str)

    return [
        OpenApiParameter(
            name,
            type_of(name),
            description=text,
            many=isinstance(known[name], django_filters.MultipleChoiceFilter),
        )
        for name, text in help_texts.items()
    ]
