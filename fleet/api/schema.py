"""What a call is, said once: the schema is made of it, and so are the way in and the way out of its method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import django_filters
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.calls import ORDERING
from fleet.api.preconditions import IF_MATCH, etag_of, expected_versions, refuse_preconditions
from fleet.api.problems import CONTENT_TYPE, answer_of, by_status, told
from fleet.api.repeats import IDEMPOTENCY_KEY, answered, once, refuse_key
from fleet.api.shapes.derive import Shape, page_of
from fleet.operations.idempotency import Answer
from fleet.projections.pages import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE
from fleet.projections.places import MOST_VALUES, IdsFilter, TextsFilter, TimeFilter
from fleet.wording.problems import PROBLEMS

if TYPE_CHECKING:
    from fleet.api.calls import Call

CURSOR = OpenApiParameter("cursor", str, description="Where the page begins; taken from `next` or `previous`.")
ROW_ID: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
# What a filter takes; the others take a text.
FILTER_TYPES: dict[Any, Any] = {
    django_filters.NumberFilter: ROW_ID,
    IdsFilter: {"type": "array", "items": ROW_ID, "maxItems": MOST_VALUES},
    TextsFilter: {"type": "array", "items": {"type": "string"}, "maxItems": MOST_VALUES},
    django_filters.BooleanFilter: bool,
    TimeFilter: datetime,
}


def page_parameters(usual: int) -> list[OpenApiParameter]:
    """Those of a list that holds so many rows a page if nothing is said."""
    size = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": usual}
    told = f"At most {MAX_PAGE_SIZE}; {usual} if nothing is said."
    return [CURSOR, OpenApiParameter("page_size", size, default=usual, description=told)]


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
        ("grant_id", ROW_ID, "The id of a line of the mapping."),
        ("machine_id", ROW_ID, "The id of a machine."),
        ("maintenance_id", ROW_ID, "The id of a maintenance."),
        ("message_id", ROW_ID, "The id of a message."),
        ("route_id", ROW_ID, "The id of a route."),
        ("rule_id", ROW_ID, "The id of a rule."),
        ("session_id", ROW_ID, "The id of a session."),
        ("sign_on_id", ROW_ID, "The id of an account at the provider."),
        ("set_id", ROW_ID, "The id of a set; of one that was merged, too."),
        ("wave_id", ROW_ID, "The id of a wave."),
        ("window_id", ROW_ID, "The id of a no-approval window."),
    )
}
# Types of problems that every call may answer, and those of every call that writes.
OF_EVERY_CALL = ("not-authenticated", "not-permitted", "validation", "throttled", "busy")
OF_A_BODY = ("unreadable", "too-slow", "too-large", "unsupported-media-type")
# What the answers of these statuses are.
ANSWERS = {200: "What was asked for, or how it stands now.", 201: "What was made.", 204: "It is done."}
BASE = "/api/v1/"
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
    keyless: str = "",
    by_parts: bool = False,
    matches: bool = False,
    version: str = "",
    location: str = "",
    status: int = 200,
    kind: str = "",
    problems: Iterable[str] = (),
    parameters: Iterable[OpenApiParameter] = (),
    page_size: int = DEFAULT_PAGE_SIZE,
) -> Callable[[Callable[..., Any]], Callable[..., HttpResponseBase]]:
    """A method of a `Call`, which takes the places of its address, and finds what was sent on the call.

    `summary` and `description` are for those who call, `needs` is the scope; what `Way` says is done on the way in and
    out. `kind` is the media type of an answer that is no JSON. Query parameters that are not described are refused.
    `problems` are the types beside those that follow. A page holds `page_size` rows if nothing is said.
    """
    shown = page_of(page or all_of) if page or all_of else answer
    status = 204 if shown is None else status
    way = Way(body, answer, page, all_of, missing, status, version, location, keyless, by_parts, matches)

    def described(method: Callable[..., Any]) -> Callable[..., HttpResponseBase]:
        writes = method.__name__ != "get"
        taken = [*parameters, *(way.conditions() if writes else ()), *(page_parameters(page_size) if page else ())]
        places = [name for name in signature(method).parameters if name != "self"]
        kinds = {*OF_EVERY_CALL, *problems, *way.problems(writes=writes), *_of_places(places, acts=writes)}

        @wraps(method)
        def call(self: Call, request: Request, **place: Any) -> HttpResponseBase:
            return way.answer_of(self, partial(method, self, **place), place, writes=writes)

        call.needs = needs  # type: ignore[attr-defined]
        call.taken = [each for each in taken if each.location == OpenApiParameter.QUERY]  # type: ignore[attr-defined]
        return extend_schema(
            operation_id=operation_id,
            summary=summary,
            description=f"{description} Requires the scope `{needs or 'read'}`.",
            parameters=[*taken, *(PLACES[name] for name in places), *_headers(kinds), *way.told_headers()],
            request=body,
            responses=_answers((status, kind) if kind else status, shown, kinds),
        )(call)

    return described


@dataclass(frozen=True, slots=True)
class Way:
    """The way into a method and out of it; the fields are those of `describe`.

    The method finds the body in `self.wanted`, and in `self.expected` the versions of `If-Match` if it `matches` them;
    any other call that writes refuses that header. A call that writes takes an `Idempotency-Key`: for the whole of it,
    or `by_parts` as it likes; `keyless` says why it cannot, and refuses one.

    It answers what it returns: with `answer` one row for that shape (`missing` is the problem that None becomes), with
    `page` a page of rows (to be read at `self.place`), with `all_of` the rows of a list that nobody pages through,
    with none of them nothing. A response goes out as it is. `version` is the field of the answer that goes along
    as `ETag`; `location` the address below `/api/v1/` of what was made, with fields of the answer and places in it.
    """

    body: Any
    answer: Any
    page: Shape | None
    all_of: Shape | None
    missing: Missing | None
    status: int
    version: str
    location: str
    keyless: str
    by_parts: bool
    matches: bool

    def conditions(self) -> list[OpenApiParameter]:
        """The headers that a call takes that writes."""
        return [*([] if self.keyless else [IDEMPOTENCY_KEY]), *([IF_MATCH] if self.matches else [])]

    def problems(self, *, writes: bool) -> Iterator[str]:
        """The types of problems that follow from these fields."""
        yield from self.missing[:1] if self.missing else ()
        yield from OF_A_BODY if writes else ()
        yield from () if self.keyless or not writes else ("key-reused",)
        yield from ("precondition-failed",) if self.matches else ()

    def answer_of(
        self, call: Call, act: Callable[[], Any], place: Mapping[str, Any], *, writes: bool
    ) -> HttpResponseBase:
        """What the call answers; `act` does what it is for."""
        request = call.request
        if writes:
            refuse_preconditions(request, but_if_match=self.matches)
            refuse_key(request, self.keyless)
        call.expected = expected_versions(request) if self.matches else None
        if isinstance(self.body, type):
            call.wanted = call.read(self.body)
        if self.page is not None:
            return Response(call.paged(self.page, act))
        if writes and not self.keyless and not self.by_parts:
            known = once(request, lambda: self.values(call, act()), now=call.now, status=self.status)
            return answered(known, self.headers(known, place))
        found = act()
        if isinstance(found, HttpResponseBase):
            return found
        known = Answer(self.status, self.values(call, found))
        return answered(known, self.headers(known, place))

    def values(self, call: Call, found: Any) -> Any:
        """What the method returned, as JSON values."""
        if self.all_of is not None:
            return {"next": None, "previous": None, "results": call.many(self.all_of, found)}
        return call.values(self.answer, found, self.missing) if self.answer else None

    def headers(self, known: Answer, place: Mapping[str, Any]) -> dict[str, str]:
        """What goes along with an answer, also with one that was kept."""
        if known.status >= 400 or known.body is None:
            return {}
        headers = {"ETag": etag_of(known.body[self.version])} if self.version else {}
        if self.location:
            found = {**place, **known.body}
            named = {name: quote(each, safe="") if isinstance(each, str) else each for name, each in found.items()}
            headers["Location"] = BASE + self.location.format_map(named)
        return headers

    def told_headers(self) -> Iterator[OpenApiParameter]:
        """The same for the schema."""
        known = (
            ("ETag", "Its version, for `If-Match`.", self.version),
            ("Location", "The address of what was made.", self.location),
        )
        for name, text, wanted in known:
            if wanted:
                yield OpenApiParameter(name, str, "header", description=text, response=[self.status])


def _of_places(places: Iterable[str], *, acts: bool) -> set[str]:
    """The problems of an address with places: what stands there may be nothing, or nothing that the caller may see."""
    named = (name.removesuffix("_id").replace("username", "person") for name in places)
    unknown = {f"unknown-{name}" for name in named} & set(PROBLEMS) if acts else set()
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


def filters_of(filters: type[Any], help_texts: Mapping[str, str]) -> list[OpenApiParameter]:
    """The filters of a FilterSet for the schema, with these help texts. Raises TypeError where those are of others."""
    known = filters.base_filters
    if set(known) != set(help_texts):
        raise TypeError(f"{filters.__name__} has the filters {', '.join(known)}.")

    def type_of(name: str) -> Any:
        return next((kind for each, kind in FILTER_TYPES.items() if isinstance(known[name], each)), str)

    return [
        OpenApiParameter(
            name,
            type_of(name),
            description=text,
            enum=[value for value, _ in known[name].extra.get("choices", ())] or None,
            many=isinstance(known[name], django_filters.MultipleChoiceFilter),
        )
        for name, text in help_texts.items()
    ]


# What the filters that many lists have mean.

PLACE_PLACES = {
    "service": "The name of a service, exactly; may be repeated.",
    "subscription": "A subscription, in any case; may be repeated.",
    "resource_group": "A resource group, in any case; may be repeated.",
    "set": "The id of a set; may be repeated. Sets that were merged into it count.",
    "set_name": "The name of a set, in any case; may be repeated.",
}
MACHINES = {
    "machine": "The id of a machine; may be repeated.",
    "machine_name": "The resource name of a machine, in any case; may be repeated.",
}
# A cache is where those are who listen to it.
OF_A_CACHE = {
    name: f"{text} Caches to which a machine there listens." for name, text in {**PLACE_PLACES, **MACHINES}.items()
}
CHANGED_SINCE = "Changed at or after this time, as `changed_at` of the rows has it."
