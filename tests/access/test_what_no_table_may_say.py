"""Access rules: no cell of the tables breaks a rule, and the rules detect every deliberate hole."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import path

from fleet import urls
from fleet.dashboard.pages import Asked, action_view
from fleet.operations import profile
from tests.access import page, table
from tests.access.calls import WORDS, Matrix
from tests.access.reasons import ABOUT_ONESELF, EVERY_USER, OWN_RULES, PUBLIC
from tests.access.routes import Route, routes_of
from tests.access.rules import RULES, Line, is_in


def committed() -> list[Line]:
    return [(area, route, method, cells) for area in table.AREAS for (route, method), cells in table.read(area).items()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_cell_breaks_a_rule(rule: Callable[[Iterable[Line]], list[str]]) -> None:
    assert rule(committed()) == []


def test_each_cell_is_a_word() -> None:
    assert {word for *_, cells in committed() for word in cells.values()} <= set(WORDS)


def test_each_reason_is_about_what_is_there() -> None:
    lines = committed()
    open_to_anonymous = {(method, route) for _, route, method, cells in lines if cells["anonymous"] in ("yes", "did")}
    assert open_to_anonymous == set(PUBLIC)
    there = {(method, route) for _, route, method, _ in lines}
    readers = {(line[2], line[1]) for line in lines if is_in(line, "viewer")}
    assert set(ABOUT_ONESELF) | set(EVERY_USER) <= readers
    assert {named[1:] for named in OWN_RULES} <= there


def leak(request: HttpRequest) -> HttpResponse:
    return HttpResponse("all that there is")


@action_view("refused/", "refused", lambda request, **context: HttpResponse())
def act(request: Asked) -> HttpResponse:
    sent = profile.ChoicesSerializer(data={"time_zone": "Europe/Berlin"})
    profile.choose(sent, actor=request.actor, now=request.now)
    return HttpResponse("done")


urlpatterns: list[Any] = [path("leak/", leak), path("act/", act), *urls.urlpatterns]
handler400, handler404, handler500 = urls.handler400, urls.handler404, urls.handler500


def test_a_route_without_a_right_is_found(settings: Any, request: pytest.FixtureRequest) -> None:
    settings.ROOT_URLCONF = __name__
    new = {route.pattern for route in routes_of("pages")} - {route for route, _ in table.read("pages")}
    assert new == {"leak/", "act/"}
    matrix: Matrix = request.getfixturevalue("matrix")
    lines: list[Line] = [
        ("pages", route, method, matrix.row(Route("pages", route, (method,)), method))
        for route, method in (("leak/", "GET"), ("leak/", "POST"), ("act/", "POST"))
    ]
    found = {rule.__name__: rule(lines) for rule in RULES}
    assert found["only_listed_routes_are_open_to_anonymous_callers"] == [
        "pages: GET leak/: anonymous yes", "pages: POST leak/: anonymous yes",
    ]  # fmt: skip
    assert "pages: POST act/: viewer did" in found["readers_change_what_is_their_own_and_nothing_else"]


def test_each_rule_finds_what_breaks_it() -> None:
    good = dict.fromkeys(("anonymous", "half", "groupless", "elsewhere", "viewer"), "no")
    readers, scopes = "readers_change_what_is_their_own_and_nothing_else", "scopes_and_missing_proofs_only_take_away"
    rule = "rights_do_not_depend_on_the_sign_in_method"
    for cells, found in (
        ({"machine": "yes"}, {"no_stranger_does_anything", "machines_call_machine_routes_only"}),
        ({"half": "did"}, {"no_stranger_does_anything"}),
        ({"viewer": "yes", "operator": "no"}, {readers, "who_may_more_may_all_that_others_may"}),
        ({"elsewhere": "did", "here": "no", "operator": "did"}, {scopes}),
        ({"approve-token": "did", "admin": "no"}, {"a_token_may_no_more_than_its_person"}),
        ({"by-proxy": "did", "operator": "no", "unproved": "no"}, {rule}),
    ):
        lines: list[Line] = [("pages", "a/", "POST", good | cells)]
        assert {rule.__name__ for rule in RULES if rule(lines)} == found, cells
    revoked: list[Line] = [("gateway", "/agent/v1/orders", "GET", {"anonymous": "login", "revoked-key": "yes"})]
    assert [rule.__name__ for rule in RULES if rule(revoked)] == ["machine_routes_reject_users_and_revoked_machines"]


def test_the_page_prints_the_tables_as_they_are() -> None:
    assert page.text() == page.PLACE.read_text(encoding="utf-8"), table.STALE
