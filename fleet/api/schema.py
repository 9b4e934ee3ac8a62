"""Decorators that define an API call. The OpenAPI schema, the validation of requests and the responses follow from this
one definition.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial, wraps
from inspect import signature
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import quote

import django_filters
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.calls import ORDERING
from fleet.api.problems import CONTENT_TYPE, answer_of, by_status, described
from fleet.api.repeats import IDEMPOTENCY_KEY, IF_MATCH, answered, expected_versions, once, refuse_headers
from fleet.api.shapes.derive import Shape, page_of, shape_of
from fleet.operations.idempotency import Answer
from fleet.projections.pages import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, Page
from fleet.projections.places import MOST_VALUES, IdsFilter, MachinePlaceFilter, TextsFilter, TimeFilter
from fleet.wording.problems import PROBLEMS

if TYPE_CHECKING:
    from fleet.api.calls import Call

C = TypeVar("C", bound="Call")

CURSOR = OpenApiParameter("cursor", str, description="Where the page begins; taken from `next` or `previous`.")
ROW_ID: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
# Type of a filter's value; filters not listed here take a text.
FILTER_TYPES: dict[Any, Any] = {
    django_filters.NumberFilter: ROW_ID,
    IdsFilter: {"type": "array", "items": ROW_ID, "maxItems": MOST_VALUES},
    TextsFilter: {"type": "array", "items": {"type": "string"}, "maxItems": MOST_VALUES},
    django_filters.BooleanFilter: bool,
    TimeFilter: datetime,
}


def page_parameters(usual: int) -> list[OpenApiParameter]:
    """Return the query parameters for pages of a list; `usual` is the default number of rows."""
    size = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": usual}
    text = f"At most {MAX_PAGE_SIZE}; {usual} if nothing is said."
    return [CURSOR, OpenApiParameter("page_size", size, default=usual, description=text)]


# Text parameters in the URLs of calls; other names are row ids.
TEXT_PLACES = {
    "event_id": "An EventId, in upper or lower case.",
    "username": "The name with which the user signs in.",
    "service": "The name of a service, in any case.",
    "prefix": "The public beginning of the token.",
}
ID_PLACES = {
    "grant_id": "The id of a line of the mapping.",
    "sign_on_id": "The id of an account at the provider.",
    "set_id": "The id of a set; of one that was merged, too.",
    "window_id": "The id of a no-approval window.",
}


def place_parameter(name: str) -> OpenApiParameter:
    """Return the OpenAPI description of the path parameter `name`."""
    noun = name.removesuffix("_id")
    text = ID_PLACES.get(name, f"The id of {'an' if noun[0] in 'aeiou' else 'a'} {noun}.")
    kind = {"type": "string", "minLength": 1} if name in TEXT_PLACES else ROW_ID
    return OpenApiParameter(name, kind, OpenApiParameter.PATH, required=True, description=TEXT_PLACES.get(name, text))


# Types of problems of every call, and those of every call that writes.
OF_EVERY_CALL = ("not-authenticated", "not-permitted", "validation", "throttled", "busy")
OF_A_BODY = ("unreadable", "too-slow", "too-large", "unsupported-media-type")
AGAIN = [PROBLEMS[name].status for name in ("throttled", "busy")]
RETRY_AFTER = OpenApiParameter(
    "Retry-After", int, OpenApiParameter.HEADER, description="Seconds after which to ask again.", response=AGAIN
)
# Descriptions of successful responses by status.
ANSWERS = {200: "The requested object, or its current state.", 201: "The created object.", 204: "Done."}
BASE = "/api/v1/"
# The type of a problem, and a sentence about this case if its title is not enough.
Missing = tuple[str, ...]


def describe(
    operation_id: str,
    *,
    needs: str = "",
    answer: Any = None,
    page: Shape | None = None,
    missing: Missing | None = None,
    body: Any = None,
    keyless: str = "",
    by_parts: bool = False,
    matches: bool = False,
    version: str = "",
    location: str = "",
    kind: str = "",
    problems: Iterable[str] = (),
    parameters: Iterable[OpenApiParameter] = (),
    page_size: int = DEFAULT_PAGE_SIZE,
) -> Callable[[Callable[..., Any]], Callable[..., HttpResponseBase]]:
    """Define a method of a `Call`. The method gets the URL parameters; the request body is in `self.wanted`.

    The method's docstring is the text in the OpenAPI document, and its first paragraph the summary. Its return type
    defines the response: a dataclass (with None if it may be missing), a `Page` or tuple of them, or None. `answer` and
    `page` are shapes for responses that the type does not define. `needs` is the required scope. `CallContract` runs
    before and after the method. `kind` is the media type of a response that is not JSON. Unknown query parameters are
    rejected. `problems` are types in addition to those that follow from the other arguments. `page_size` is the default
    number of rows.
    """

    def described(method: Callable[..., Any]) -> Callable[..., HttpResponseBase]:
        writes = method.__name__ != "get"
        places = _required(method)
        returned = Returned(answer, page) if answer or page else returned_by(method)
        unknown = [name for place in places if (name := _unknown(place)) in PROBLEMS]
        gone = missing or (tuple(unknown[-1:]) if unknown and returned.may_be_missing else None)
        status = 204 if returned.shown is None else 201 if location else 200
        contract = CallContract(body, returned, gone, status, version, location, keyless, by_parts, matches)
        taken = [*parameters, *(contract.conditions() if writes else ())]
        taken += page_parameters(page_size) if returned.page else []
        kinds = {*OF_EVERY_CALL, *problems, *contract.problems(writes=writes), *(unknown if writes else ())}
        kinds |= {"not-found"} if places else set()
        summary, _, description = inspect.getdoc(method).partition("\n\n")  # type: ignore[union-attr]

        @wraps(method)
        def call(self: Call, request: Request, **place: Any) -> HttpResponseBase:
            return contract.answer_of(self, partial(method, self, **place), place, writes=writes)

        call.needs = needs  # type: ignore[attr-defined]
        call.taken = [each for each in taken if each.location == OpenApiParameter.QUERY]  # type: ignore[attr-defined]
        return extend_schema(
            operation_id=operation_id,
            summary=" ".join(summary.split()),
            description=f"{' '.join(description.split())} Requires the scope `{needs or 'read'}`.",
            parameters=[*taken, *map(place_parameter, places), RETRY_AFTER, *contract.response_headers()],
            request=body,
            responses=_answers((status, kind) if kind else status, returned.shown, kinds),
        )(call)

    return described


def detail_call(operation_id: str, read: Callable[..., Any], **options: Any) -> Callable[[type[C]], type[C]]:
    """Define the `GET` of a class, which returns the row that `read` returns for the URL parameters.

    `read` is a function of a read model. It gets `now` and `person` (the caller) if it has these parameters. Its return
    type and the docstring of the class are used as `describe` uses those of a method; `options` are arguments of
    `describe`.
    """

    def get(call: Call, **place: Any) -> Any:
        return read(**place, **call.given_to(read))

    return _getter(operation_id, read, get, **options)


def list_call(
    operation_id: str,
    read: Callable[..., Page[Any]],
    filters: type[django_filters.FilterSet] | None = None,
    into: str = "",
    *,
    note: str = "",
    orders: Iterable[str] = (),
    **options: Any,
) -> Callable[[type[C]], type[C]]:
    """Define the `GET` of a class, which returns a page of the list that `read` returns; see `detail_call`.

    `into` is the parameter of `read` that gets the rows filtered by `filters`. `note` is that of `filters_of`. `orders`
    are the columns by which callers can sort the list.
    """

    def get(call: Call) -> Any:
        rows = {into: call.filtered(filters)} if filters else {}
        return read(**rows, **call.given_to(read), **call.place)

    known = [*(filters_of(filters, note) if filters else ()), *([ordering(*orders)] if orders else ())]
    return _getter(operation_id, read, get, parameters=known, **options)


def _getter(
    operation_id: str, read: Callable[..., Any], get: Callable[..., Any], **options: Any
) -> Callable[[type[C]], type[C]]:
    """Return a class decorator that adds `get` as the method for GET, with the signature of `read`."""

    def define(view: type[C]) -> type[C]:
        method = wraps(read, assigned=("__annotations__",))(get)
        method.__doc__, view.__doc__ = view.__doc__, None
        view.get = describe(operation_id, **options)(method)  # type: ignore[attr-defined]
        return view

    return define


def _required(method: Callable[..., Any]) -> list[str]:
    """Return the names of a method's parameters that come from the URL."""
    return [
        name
        for name, parameter in signature(method).parameters.items()
        if name not in ("self", "now", "person")
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]


@dataclass(frozen=True, slots=True)
class Returned:
    """Kind of value that a method returns: one row (which may be missing), a page, or a complete list. All fields are
    None for no value.
    """

    one: Any = None
    page: Shape | None = None
    all_of: Shape | None = None
    may_be_missing: bool = False

    @property
    def shown(self) -> Any:
        """Return the response's shape for the OpenAPI schema."""
        listed = self.page or self.all_of
        return page_of(listed) if listed else self.one


def returned_by(method: Callable[..., Any]) -> Returned:
    """Return the kind of value that a method returns, from its return annotation."""
    kind = get_type_hints(method)["return"]
    kinds = [each for each in get_args(kind) if each is not NoneType] if isinstance(kind, UnionType) else [kind]
    inside = get_args(kind)[:1]
    if get_origin(kind) is Page:
        return Returned(page=shape_of(*inside))
    if get_origin(kind) is tuple:
        return Returned(all_of=shape_of(*inside))
    if kind is NoneType:
        return Returned()
    return Returned(one=shape_of(kinds[0]), may_be_missing=isinstance(kind, UnionType))


def _unknown(place: str) -> str:
    """Return the problem type of a URL parameter whose object may not exist or may be hidden."""
    return f"unknown-{place.removesuffix('_id').replace('username', 'person')}"


@dataclass(frozen=True, slots=True)
class CallContract:
    """Validation before and serialisation after a method of a call; the fields are arguments of `describe`.

    The method reads the body from `self.wanted`, and with `matches` the versions of `If-Match` from `self.expected`;
    without `matches` that header is rejected. A writing call accepts an `Idempotency-Key` for the whole call, or with
    `by_parts` for each part. `keyless` states why a call accepts none.

    The response is the method's return value: one row (`missing` is the problem for None), a page of rows (at
    `self.place`), a complete list, or nothing. A response object is sent unchanged. `version` is the field that is sent
    as `ETag`. `location` is the URL of a created object below `/api/v1/`, with placeholders for fields and URL
    parameters.
    """

    body: Any
    returned: Returned
    missing: Missing | None
    status: int
    version: str
    location: str
    keyless: str
    by_parts: bool
    matches: bool

    def conditions(self) -> list[OpenApiParameter]:
        """Return the request headers that a writing call accepts."""
        return [*([] if self.keyless else [IDEMPOTENCY_KEY]), *([IF_MATCH] if self.matches else [])]

    def problems(self, *, writes: bool) -> Iterator[str]:
        """Yield the problem types that the call can return according to these fields."""
        yield from self.missing[:1] if self.missing else ()
        yield from OF_A_BODY if writes else ()
        yield from () if self.keyless or not writes else ("key-reused",)
        yield from ("precondition-failed",) if self.matches else ()

    def answer_of(
        self, call: Call, act: Callable[[], Any], place: Mapping[str, Any], *, writes: bool
    ) -> HttpResponseBase:
        """Return the response of the call; `act` calls the method. `place` are the URL parameters."""
        request = call.request
        if writes:
            refuse_headers(request, matches=self.matches, keyless=self.keyless)
        call.expected = expected_versions(request) if self.matches else None
        if isinstance(self.body, type):
            call.wanted = call.read(self.body)
        if self.returned.page is not None:
            return Response(call.paged(self.returned.page, act))
        if writes and not self.keyless and not self.by_parts:
            known = once(request, lambda: self.values(call, act()), now=call.now, status=self.status)
            return answered(known, self.headers(known, place))
        found = act()
        if isinstance(found, HttpResponseBase):
            return found
        known = Answer(self.status, self.values(call, found))
        return answered(known, self.headers(known, place))

    def values(self, call: Call, found: Any) -> Any:
        """Return a method's return value `found` as JSON values."""
        if self.returned.all_of is not None:
            return {"next": None, "previous": None, "results": call.many(self.returned.all_of, found)}
        return call.values(self.returned.one, found, self.missing) if self.returned.one else None

    def headers(self, known: Answer, place: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers `ETag` and `Location` of a response, also of a stored one."""
        if known.status >= 400 or known.body is None:
            return {}
        headers = {"ETag": f'"{known.body[self.version]}"'} if self.version else {}
        if self.location:
            found = {**place, **known.body}
            named = {name: quote(each, safe="") if isinstance(each, str) else each for name, each in found.items()}
            headers["Location"] = BASE + self.location.format_map(named)
        return headers

    def response_headers(self) -> Iterator[OpenApiParameter]:
        """Yield the response headers for the OpenAPI schema."""
        known = (
            ("ETag", "Its version, for `If-Match`.", self.version),
            ("Location", "The address of what was made.", self.location),
        )
        for name, text, wanted in known:
            if wanted:
                yield OpenApiParameter(name, str, "header", description=text, response=[self.status])


def _answers(status: int | tuple[int, str], shown: Any, kinds: set[str]) -> dict[Any, OpenApiResponse]:
    """Return the OpenAPI responses: the successful one, and the problems by HTTP status."""
    said = ANSWERS[status[0] if isinstance(status, tuple) else status]
    refusals = {
        (code, CONTENT_TYPE): OpenApiResponse(answer_of(names), description=described(names))
        for code, names in by_status(kinds).items()
    }
    return {status: OpenApiResponse(shown, description=said), **refusals}


def ordering(*columns: str) -> OpenApiParameter:
    """Return the query parameter of a list that can be sorted by these columns."""
    text = "What rows go by, with `-` from the last to the first; in the list's own order if nothing is said."
    orders = [sign + column for column in columns for sign in ("", "-")]
    return OpenApiParameter(ORDERING, str, enum=orders, description=text)


def filters_of(filters: type[Any], note: str = "") -> list[OpenApiParameter]:
    """Return the query parameters of a FilterSet for the OpenAPI schema; the labels are their descriptions. `note` is
    added to the filters by place and machine.
    """
    common = MachinePlaceFilter.base_filters
    return [
        OpenApiParameter(
            name,
            next((kind for type_of, kind in FILTER_TYPES.items() if isinstance(each, type_of)), str),
            description=f"{each.label} {note}".strip() if each is common.get(name) else each.label,
            enum=[value for value, _ in each.extra.get("choices", ())] or None,
            many=isinstance(each, django_filters.MultipleChoiceFilter),
        )
        for name, each in filters.base_filters.items()
    ]
