"""API calls that write: tokens of fewer scopes, viewers and callers without a login are refused and change nothing."""

import pytest

from fleet.models import ApiToken, Entry
from fleet.models.timeline import ACTING
from tests import factories
from tests.api.conftest import Caller, caller, in_person, problem
from tests.api.described import required_scopes
from tests.every_write import IN_PERSON, api_steps, busy_fleet
from tests.factories import Fleet

pytestmark = pytest.mark.django_db
# Everybody's own, but not by a token that only reads.
OWN = {("PATCH", "me/"): "one's own settings", ("POST", "tokens/"): "a token for oneself"}


@pytest.fixture
def fleet(db: None, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    # A channel test waits for the channel's answer, which never arrives here.
    monkeypatch.setattr("fleet.notifications.api.TEST_SECONDS", 0.0)
    return busy_fleet()


def acts() -> int:
    return Entry.objects.filter(via__in=ACTING).count()


def refusals(method: str, route: str, needed: str, wrong: dict[str, Caller]) -> dict[str, Caller]:
    """Who of these has to be refused. A token that only reads writes nothing."""
    may = {"views"} if (method, route) in OWN else set()
    may |= {"only approves"} if needed == "approve" else {"only admins"} if needed == "admin" else set()
    return {name: who for name, who in wrong.items() if name not in may}


def test_nothing_is_done_for_who_may_not(fleet: Fleet) -> None:
    ada = factories.admin()
    callers = {"ada": caller(ada), IN_PERSON: in_person(ada), "anna": caller(factories.approver())}
    wrong = {
        "only reads": caller(ada, "read"),
        "only approves": caller(ada, "approve"),
        "only admins": caller(ada, "admin"),
        "views": caller(factories.viewer()),
    }
    scopes = {(method.upper(), route): scope for (method, route), scope in required_scopes().items()}
    asked, made = 0, ""
    for how, route, (address, body) in api_steps(fleet):
        method, _, who = how.partition(" as ")
        place, needed = address.format(made=made), scopes[method, f"/api/v1/{route}"]
        before = acts()
        problem(Caller()(method, place, body), 401, "not-authenticated")
        refused = refusals(method, route, needed, wrong)
        if who == IN_PERSON:
            refused |= {"a token of all scopes": callers["ada"], "only admins": wrong["only admins"]}
        for name, stranger in refused.items():
            answer = stranger(method, place, body)
            assert answer.status_code == 403, (name, how, place, answer.content)
            problem(answer, 403, "not-permitted")
            asked += 1
        assert acts() == before, (how, route)
        answer = callers[who or "ada"](method, place, body)
        assert answer.status_code < 300, (how, route, answer.content)
        said = answer.json() if answer.content else {}
        made = str(said.get("prefix") or said.get("id") or "") if isinstance(said, dict) else ""
    assert asked > 120


def test_only_an_admin_token_revokes_tokens_of_other_users() -> None:
    ada, vera = factories.admin(), factories.viewer()
    caller(vera)
    prefix = ApiToken.objects.get(user=vera).prefix
    for who in (caller(ada, "read"), caller(ada, "read", "approve"), caller(factories.operator())):
        problem(who.delete(f"tokens/{prefix}/"), 403, "not-permitted")
        # Nor is it shown to them.
        problem(who.get(f"tokens/{prefix}/"), 404, "not-found")
    assert ApiToken.objects.get(prefix=prefix).revoked_at is None
    assert caller(ada, "read", "admin").delete(f"tokens/{prefix}/").status_code == 204
