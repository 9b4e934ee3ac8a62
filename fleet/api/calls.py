"""Base class of API calls: access, body, query parameters and cursors. Cursors are valid only for the list,
filters and order for which they were issued.
"""

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from inspect import signature
from typing import IO, Any, ClassVar

from django.core.exceptions import ValidationError
from django.forms import NullBooleanField
from django.http import QueryDict
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from fleet.api.authentication import Allowed, actor_of, person_of
from fleet.api.problems import Problem, wrong
from fleet.api.shapes.derive import Shape
from fleet.domain.actor import Actor
from fleet.domain.texts import parse_json
from fleet.operations import clock
from fleet.operations.audited import AuditedSerializer
from fleet.projections import visibility
from fleet.projections.pages import BadCursorError, Page
from fleet.projections.people import rights
from fleet.wording.problems import PROBLEMS

CURSOR, PAGE_SIZE, ORDERING = "cursor", "page_size", "ordering"
UNREADABLE = "The cursor cannot be read: take it from `next` or `previous`."
OF_ANOTHER = "The cursor is of another list, of other filters or of another order: begin without it."


def unreadable() -> Problem:
    """Return the problem `validation` for a cursor that cannot be read."""
    return wrong(CURSOR, UNREADABLE)


def read_cursor(request: Request) -> str | None:
    """Return the read model's cursor from the URL; None for the first page. Raises Problem `validation`."""
    text = request.query_params.get(CURSOR)
    if not text:
        return None
    digest, dot, cursor = text.partition(".")
    if digest != _list(request):
        raise wrong(CURSOR, OF_ANOTHER) if dot else unreadable()
    return cursor


def address(request: Request, cursor: str | None) -> str | None:
    """Return the full URL of the page at this cursor of a read model; None without a cursor."""
    if cursor is None:
        return None
    query = request.query_params.copy()
    query[CURSOR] = f"{_list(request)}.{cursor}"
    return request.build_absolute_uri(f"{request.path}?{query.urlencode()}")


def _list(request: Request) -> str:
    """Return a digest of the list, its filters and its order. The user is not included, because a cursor gives no
    access to other rows.
    """
    query = {
        name: sorted(filter(None, values))
        for name, values in request.query_params.lists()
        if name not in (CURSOR, PAGE_SIZE) and any(values)
    }
    text = json.dumps([request.path, query], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# Common parts of every call: who may make it, how its body is read, and how lists are returned.

MAX_BODY_BYTES = 64 * 1024
SURROGATE = re.compile(r"[\ud800-\udfff]")


class AlwaysJson(BaseContentNegotiation):
    """Content negotiation with JSON as the only format. A caller that requests another format gets JSON instead of an
    error.
    """

    def select_parser(self, request: Request, parsers: Any) -> BaseParser | None:
        kind = (request.content_type or "").partition(";")[0].strip().lower()
        readable = kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
        return parsers[0] if readable else None

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class SmallJson(BaseParser):
    """Parser for one JSON object of limited size. Raises ParseError, or Problem `too-large`."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        raw = stream.read(MAX_BODY_BYTES + 1)
        if len(raw) > MAX_BODY_BYTES:
            raise Problem("too-large", f"A body may hold {MAX_BODY_BYTES // 1024} KiB.")
        try:
            body = parse_json(raw.decode("utf-8"), parse_constant=_refuse)
            lone_surrogate = next(_lone_surrogates(body), None)
        except (ValueError, RecursionError) as error:
            raise ParseError from error
        if not isinstance(body, dict):
            raise ParseError
        if lone_surrogate is not None:
            raise wrong(lone_surrogate, "It holds half a letter: send each surrogate with the other one of its pair.")
        return body


def _lone_surrogates(node: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of texts and names that contain a lone surrogate. JSON can escape it, but neither Postgres nor a
    response can contain it.
    """
    if isinstance(node, str) and SURROGATE.search(node):
        yield path
    elif isinstance(node, dict):
        for name, inner in node.items():
            yield from [path] if SURROGATE.search(name) else _lone_surrogates(inner, f"{path}.{name}" if path else name)
    elif isinstance(node, list):
        for inner in node:
            yield from _lone_surrogates(inner, path)


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


class PerPerson(BaseThrottle):
    """Rate limit for each user and process, in calls a minute. It is generous, because it only protects other users.

    REST framework's own stores the time of every call, and reads all of them at each call.
    """

    per_minute = 6000
    _lock = threading.Lock()
    _counts: dict[Any, tuple[int, int]] = {}

    def allow_request(self, request: Request, view: APIView) -> bool:
        minute = int(time.monotonic() // 60)
        with self._lock:
            counted_in, count = self._counts.get(request.user.pk, (minute, 0))
            count = count + 1 if counted_in == minute else 1
            self._counts[request.user.pk] = (minute, count)
        return count <= self.per_minute

    def wait(self) -> float:
        return 60 - time.monotonic() % 60


class Call(APIView):
    """Base class of all API calls; the decorator `describe` defines each method. `at` is the URL below `/api/v1/`.

    `self.now` is the time of the request, the only clock that a call may use. `self.wanted` is the validated body.
    `self.expected` are the versions in the header `If-Match`; None without the header.
    """

    permission_classes: list[type[BasePermission]] = [Allowed]
    parser_classes = [SmallJson]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = AlwaysJson
    throttle_classes: list[type[BaseThrottle]] = [PerPerson]
    http_method_names = ["get", "head", "post", "patch", "delete"]
    at: ClassVar[str] = ""
    now: datetime
    wanted: Any
    expected: frozenset[str] | None

    def __init_subclass__(cls, *, at: str = "") -> None:
        cls.at = at

    @property
    def actor(self) -> Actor:
        """Return the actor of this call."""
        return actor_of(self.request)

    @property
    def commented(self) -> Actor:
        """Return the actor of this call, with the comment from the body as the reason."""
        return self.actor.because(self.wanted["comment"])

    @property
    def place(self) -> dict[str, Any]:
        """Return the requested page as arguments for a read model: `cursor`, `size`, and `order` if the list can be
        sorted. Raises Problem `validation` for the cursor; the other parameters were validated by `initial`.
        """
        query, taken = self.request.query_params, self.taken or {}
        default = taken[PAGE_SIZE].default if PAGE_SIZE in taken else None
        page = {"cursor": read_cursor(self.request), "size": int(query.get(PAGE_SIZE) or default or 0) or None}
        return page | ({"order": query.get(ORDERING, "")} if ORDERING in taken else {})

    @property
    def taken(self) -> Mapping[str, OpenApiParameter] | None:
        """Return the query parameters that `describe` defines for this HTTP method, by name; None if the view lacks the
        method.
        """
        handler = getattr(self, str(self.request.method).lower(), None)
        return {each.name: each for each in getattr(handler, "taken", ())} if handler else None

    def given_to(self, read: Callable[..., Any]) -> dict[str, Any]:
        """Return the keyword arguments `now` and `person` (the caller), each only if the function has that
        parameter.
        """
        names = _parameters_of(read)
        now = {"now": self.now} if "now" in names else {}
        return now | ({"person": person_of(self.request)} if "person" in names else {})

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        self.now = clock.now()
        super().initial(request, *args, **kwargs)
        if any("\x00" in str(value) for value in kwargs.values()):
            raise Problem("not-found")
        if with_nul := sorted(name for name, texts in request.query_params.lists() if "\x00" in name + "".join(texts)):
            raise wrong(with_nul[0], "It may not hold a NUL.")
        if request.user.is_authenticated:
            visibility.set_reader(rights(request.user), name=request.user.get_username(), number=request.user.pk)
        if request.method not in ("GET", "HEAD"):
            if hidden := visibility.hidden_id(kwargs):
                problem = f"unknown-{hidden.removesuffix('_id')}"
                raise Problem(problem if problem in PROBLEMS else "not-found")
            clock.require_correct_clock()
        if (taken := self.taken) is None:
            return
        # An unknown parameter is a mistake of the caller that would otherwise go unnoticed.
        if unknown := sorted(set(request.query_params) - taken.keys()):
            raise Problem(
                "validation",
                f"There is no parameter `{unknown[0]}` here.",
                errors=[{"field": name, "message": "There is no such parameter."} for name in unknown],
            )
        if errors := [*_errors(taken.values(), request.query_params)]:
            raise Problem("validation", errors=errors)

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        """Return the response with `Cache-Control: no-store`, because its values are outdated after seconds."""
        final = super().finalize_response(request, response, *args, **kwargs)
        final["Cache-Control"] = "no-store"
        return final

    def read(self, shape: Shape) -> Any:
        """Return the body, validated by its shape. A model's serializer is returned unvalidated, because the operation
        validates it. Raises ValidationError.
        """
        serializer = shape(data=self.request.data)
        if isinstance(serializer, AuditedSerializer):
            return serializer
        serializer.is_valid(raise_exception=True)
        return serializer.validated_data

    def values(self, shape: Shape, row: Any, missing: Sequence[str] | None = None) -> Any:
        """Return one row as JSON values in this shape. Raises Problem for the `missing` object if `row` is None."""
        if row is None:
            raise Problem(*missing or ("not-found",))
        return shape(row, context={"now": self.now}).data

    def many(self, shape: Shape, rows: Iterable[Any]) -> Any:
        """Return several rows as a list of JSON values in this shape."""
        return shape(rows, many=True, context={"now": self.now}).data

    def paged(self, shape: Shape, read: Callable[[], Page[Any]]) -> dict[str, Any]:
        """Return the page that `read` returns as JSON values. `next` and `previous` are full URLs."""
        try:
            page = read()
        except (BadCursorError, ValidationError) as error:
            raise unreadable() from error
        around = {"next": address(self.request, page.next), "previous": address(self.request, page.previous)}
        return {**around, "results": self.many(shape, page.results)}

    def filtered(self, filters: Any, **more: Any) -> Any:
        """Return the queryset filtered by the query parameters; `more` are further arguments of the FilterSet. Raises
        Problem `validation`.
        """
        now = {"now": self.now} if "now" in _parameters_of(filters) else {}
        return filtered(self.request, filters(self.request.query_params, **now, **more))


@cache
def _parameters_of(function: Any) -> frozenset[str]:
    return frozenset(signature(function).parameters)


def filtered(request: Request, filters: Any) -> Any:
    """Return the rows of this FilterSet, filtered by the query parameters. Raises Problem `validation` for invalid
    values.
    """
    errors = [
        {"field": name, "message": str(message)}
        for name, messages in (filters.errors or {}).items()
        for message in messages
    ]
    # A boolean filter ignores a value that it cannot read; here that is an error.
    errors += [
        {"field": name, "message": "Say `true` or `false`."}
        for name, field in filters.form.fields.items()
        if isinstance(field, NullBooleanField) and (filters.data or request.query_params).get(name)
        if filters.form.cleaned_data.get(name) is None and name not in filters.errors
    ]
    if errors:
        raise Problem("validation", "A filter's value cannot be read.", errors=errors)
    return filters.qs


# Validation of query parameters against the schema, before any other code reads them.

SHAPES: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    datetime: {"type": "string", "format": "date-time"},
}
# No database column holds a greater number.
LARGEST = 2**63 - 1


def _errors(known: Iterable[OpenApiParameter], query: QueryDict) -> Iterator[dict[str, str]]:
    """Yield an error for each query parameter whose value does not match its definition."""
    for parameter in known:
        values = query.getlist(parameter.name)
        if len(values) > 1 and not parameter.many and _shape(parameter)["type"] != "array":
            messages = {"Say it once."}
        else:
            messages = {*filter(None, (_error(parameter, value) for value in values))}
        yield from ({"field": parameter.name, "message": message} for message in sorted(messages))


def _shape(parameter: OpenApiParameter) -> Mapping[str, Any]:
    return parameter.type if isinstance(parameter.type, dict) else SHAPES[parameter.type]


def _error(parameter: OpenApiParameter, value: str) -> str:
    """Return why a parameter's value is invalid; empty if it is valid."""
    shape = _shape(parameter)
    shape = shape.get("items", shape)
    if parameter.enum and value not in parameter.enum:
        return f"Say one of {', '.join(f'`{each}`' for each in parameter.enum)}."
    if shape["type"] == "integer":
        least, most = shape.get("minimum", -LARGEST), shape.get("maximum", LARGEST)
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and least <= int(value) <= most):
            return f"Say a number from {least} to {most}."
    if shape["type"] == "boolean" and value.lower() not in ("true", "false"):
        return "Say `true` or `false`."
    # An invalid time is rejected by its filter, with its own message.
    return "Say a time as RFC 3339, such as `2030-01-31T22:00:00Z`." if shape.get("format") and not value else ""
