"""What a call is, said once: the schema is made of it, and so are the way in and the way out of its method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any

import django_filters
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.cursors import ORDERING
from fleet.api.problems import CONTENT_TYPE
from fleet.api.repeats import IDEMPOTENCY_KEY, answered, once
from fleet.api.shapes.derive import Shape, page_of
from fleet.api.shapes.problems import answer_of, by_status, told
from fleet.projections.filters import TimeFilter
from fleet.projections.pages import MAX_PAGE_SIZE
from fleet.wording.problems import PROBLEMS

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
ROW_ID: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
# What stands in the addresses of calls.
PLACES = {
    name: OpenApiParameter(name, shape, OpenApiParameter.PATH, required=True, description=text)
    for name, shape, text in (
        ("event_id", {"type": "string", "minLength": 1}, "An EventId, in upper or lower case."),
        ("username", {"type": "string", "minLength": 1}, "The name by which somebody logs in."),
        ("prefix", {"type": "string", "minLength": 1}, "The public beginning of the token."),
        ("approval_id", ROW_ID, "The id of an approval."),
        ("cache_id", ROW_ID, "The id of a cache."),
        ("channel_id", ROW_ID, "The id of a channel."),
        ("drill_id", ROW_ID, "The id of a drill."),
        ("machine_id", ROW_ID, "The id of a machine."),
        ("maintenance_id", ROW_ID, "The id of a maintenance."),
        ("message_id", ROW_ID, "The id of a message."),
        ("route_id", ROW_ID, "The id of a route."),
        ("rule_id", ROW_ID, "The id of a rule."),
        ("set_id", ROW_ID, "The id of a set; of one that was merged, too."),
        ("wave_id", ROW_ID, "The id of a wave."),
        ("window_id", ROW_ID, "The id of a no-approval window."),
    )
}
# Types of problems that every call may answer, and those of every call that reads a body.
OF_EVERY_CALL = ("not-authenticated", "not-permitted", "validation", "throttled", "busy")
OF_A_BODY = ("unreadable", "too-slow", "too-large", "unsupported-media-type")
# What the answers of these statuses are.
ANSWERS = {200: "What was asked for, or how it stands now.", 201: "What was made.", 204: "It is done."}
# A problem's name, and a sentence about this very case if its title does not say enough.
Missing = tuple[str] | tuple[str, str]


def describe(
    operation_id: str,
    summary: str,
    description: str,
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
    problems: Iterable[str] = (),
    parameters: Iterable[OpenApiParameter] = (),
) -> Callable[[Callable[..., Any]], Callable[..., HttpResponseBase]]:
    """A method of a `Call`, which takes the places of its address and finds the body in `self.wanted`.

    It answers what it returns: with `answer` one row for that shape (`missing` is the problem that None becomes), with
    `page` a page of rows (to be read at `self.place`), with `all_of` the rows of a list that nobody pages
    through, with none of them nothing. A response goes out as it is; `kind` is its media type where it is no JSON.

    `summary` and `description` are for those who call. `needs` is the scope, `repeatable` that an `Idempotency-Key` is
    taken. Query parameters that are not described are refused. `problems` are the types beside those that follow.
    """
    taken = [*parameters, *([IDEMPOTENCY_KEY] if repeatable else ()), *(PAGE_PARAMETERS if page else ())]
    shown = page_of(page or all_of) if page or all_of else answer
    status = 204 if shown is None else 201 if repeatable else status

    def described(method: Callable[..., Any]) -> Callable[..., HttpResponseBase]:
        places = [name for name in signature(method).parameters if name != "self"]
        kinds = {*OF_EVERY_CALL, *problems, *(missing[:1] if missing else ())}
        kinds |= _of_places(places, acts=method.__name__ != "get")
        kinds |= set(OF_A_BODY if body or repeatable else ()) | set(("key-reused",) if repeatable else ())

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
        call.knows = {each.name: each.enum for each in taken if each.location == OpenApiParameter.QUERY}  # type: ignore[attr-defined]
        return extend_schema(
            operation_id=operation_id,
            summary=summary,
            description=description,
            parameters=[*taken, *(PLACES[name] for name in places), *_headers(kinds)],
            request=body,
            responses=_answers((status, kind) if kind else status, shown, kinds),
        )(call)

    return described


def _of_places(places: Iterable[str], *, acts: bool) -> set[str]:
    """The problems of an address with places: what stands there may be nothing, or nothing that the caller may see."""
    unknown = {f"unknown-{name.removesuffix('_id')}" for name in places} & set(PROBLEMS) if acts else set()
    return {"not-found", *unknown} if places else set()


def _answers(status: int | tuple[int, str], shown: Any, kinds: set[str]) -> dict[Any, OpenApiResponse]:
    """What is answered where all went well, and the problems by status."""
    said = ANSWERS[status[0] if isinstance(status, tuple) else status]
    refusals = {
        (code, CONTENT_TYPE): OpenApiResponse(answer_of(names), description=told(names))
        for code, names in by_status(kinds).items()
    }
    return {status: OpenApiResponse(shown, description=said), **refusals}


def _headers(kinds: set[str]) -> Iterator[OpenApiParameter]:
    """The headers of answers."""
    again = [PROBLEMS[name].status for name in ("throttled", "busy") if name in kinds]
    text = "Seconds after which to ask again."
    yield OpenApiParameter("Retry-After", int, OpenApiParameter.HEADER, description=text, response=again)


def ordering(*columns: str) -> OpenApiParameter:
    """The parameter of a list that may be ordered by these columns."""
    text = "What rows go by, with `-` from the last to the first; in the list's own order if nothing is said."
    orders = [sign + column for column in columns for sign in ("", "-")]
    return OpenApiParameter(ORDERING, str, enum=orders, description=text)


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
