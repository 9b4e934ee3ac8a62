"""Waves and scopes: a scoped user who requests a hidden event or wave gets the answer for one that does not exist."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.models import AvailabilitySet, Scope
from fleet.operations import drills as drilling
from fleet.operations import waves
from tests import accounts, factories
from tests.accounts import a_session
from tests.api.conftest import Caller, caller, problem
from tests.factories import Fleet, acting, listing

pytestmark = pytest.mark.django_db
SEEN, TOO, HIDDEN, OTHER, NOWHERE = (f"BADCAFE0-0000-4000-8000-00000000000{number}" for number in range(5))


@pytest.fixture
def narrow(settings: Any) -> Caller:
    """Return a caller who sees set `web` alone.

    Two events wait in `web`, and two in `umbra`, where a wave runs.
    """
    settings.SCOPED_READ_ACCESS = True
    fleet = Fleet(now=datetime.now(UTC))
    due = fleet.now + timedelta(minutes=15)
    homes = {"vm1": "web", "vm2": "web", "u1": "umbra", "u2": "umbra", "u3": "umbra-2", "d1": "dock"}
    for name, home in homes.items():
        fleet.enrol(name, availability_set=home)
    fleet.all_say()
    fleet.say("vm1", *(listing(one, resources=("vm1",), not_before=due) for one in (SEEN, TOO)))
    fleet.say("u1", *(listing(one, resources=(name,), not_before=due) for one, name in ((HIDDEN, "u1"), (OTHER, "u2"))))
    AvailabilitySet.objects.filter(name__startswith="umbra").update(service="umbra")
    anna = factories.approver()
    waves.begin(actor=acting(anna, why="go"), now=fleet.now, events=[HIDDEN, OTHER])
    drilling.begin(set_id=factories.the_set("dock").pk, actor=acting(anna), now=fleet.now)
    otto = factories.operator()
    Scope.objects.create(user=otto, kind="name", pattern="web*")
    return caller(otto)


def answer(response: Any, *hidden: str) -> tuple[int, str]:
    """Return the answer with all requested identifiers masked."""
    said = json.dumps(response.json())
    for each in hidden:
        said = said.replace(each, "…")
    return response.status_code, said


def drill_event() -> str:
    return str(AvailabilitySet.objects.get(name="dock").events.get(drill=True).event_id)


@pytest.mark.parametrize("neighbours", [[], [SEEN], [NOWHERE]])
def test_a_wave_of_events_that_are_hidden_is_one_of_events_that_are_not_there(
    narrow: Caller, neighbours: list[str]
) -> None:
    def asked(*events: str) -> tuple[int, str]:
        return answer(narrow.post("waves/", {"events": [*neighbours, *events], "comment": "x"}), *events)

    unknown = [f"11111111-0000-4000-8000-00000000000{number}" for number in (1, 2)]
    nowhere = asked(unknown[0])
    assert nowhere[0] == 404
    for hidden in (HIDDEN, OTHER, drill_event()):
        assert asked(hidden) == nowhere
    assert asked(HIDDEN, OTHER) == asked(*unknown)


def test_hidden_service_is_one_that_is_not_there_and_a_hidden_wave_is_not_named(narrow: Caller) -> None:
    nowhere = answer(narrow.post("waves/", {"service": "nowhere"}))
    assert nowhere[0] == 422
    assert answer(narrow.post("waves/", {"service": "umbra"})) == nowhere
    AvailabilitySet.objects.filter(name="web").update(service="umbra")
    wave = {"events": [SEEN, TOO], "comment": "x"}
    said = problem(narrow.post("waves/", wave), 409, "wave-running")
    assert "wave" not in said
    # A user who sees all of them gets the name of the wave.
    assert problem(caller(factories.admin()).post("waves/", wave), 409, "wave-running")["wave"]


def test_object_of_another_user_answers_like_a_missing_one(narrow: Caller) -> None:
    ada = factories.admin()
    caller(ada)
    token = accounts.token(user=ada, name="x", scopes=["read"], now=datetime.now(UTC))[0]
    feed = accounts.calendar(actor=acting(ada), name="x", now=datetime.now(UTC))[0]
    session = a_session(ada)
    nowhere = {f"tokens/{token.prefix}/": "tokens/dd_000000000000/", f"sessions/{session.pk}/": "sessions/987654321/"}
    for there, missing in nowhere.items():
        assert answer(narrow.delete(there)) == answer(narrow.delete(missing))
    narrow.client.force_login(narrow.user)
    statuses = {narrow.client.post(f"/you/calendars/{name}/end/").status_code for name in (feed.prefix, "cal_0")}
    assert len(statuses) == 1
