"""Audit of user actions: through every page that changes something, each act writes one complete entry.

Those through the API: `tests/api/test_every_write_takes_a_key.py`.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests import factories
from tests.access.walks import the_act, writes
from tests.access.world import lasting_world
from tests.api.conftest import Caller, caller, in_person, problem
from tests.factories import EVENT, Fleet

OTHER = "0A1B2C3D-0000-4000-8000-00000000000A"
pytestmark = pytest.mark.django_db
# Several entries: one for the wave, and one for each decision in it; a channel, and its route.
SEVERAL = ("waves/begin/", "waves/<int:wave_id>/stop/", "you/browser/")


def test_every_form_of_the_pages_leaves_one_line(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    values = lasting_world(monkeypatch, settings).values
    ada, walked = factories.admin(), 0
    for number, form in enumerate(writes("pages", values)):
        if form.route in SEVERAL:
            continue
        # A new password ends the session.
        session = in_person(ada).client
        answer = session.post(form.address, form.body, headers={"X-Request-ID": f"form-{number}"})
        assert answer.status_code in (200, 302), (form, answer.content[-2000:])
        act = the_act(f"form-{number}")
        assert (factories.who(act), act.via, act.token_name) == ("ada", "page", ""), form
        walked += 1
    assert walked > 60


def test_refusal_names_the_scopes_of_the_user() -> None:
    fleet = Fleet(now=datetime.now(UTC))
    factories.announced(fleet)
    fleet.enrol("w1", availability_set="w1")
    fleet.say("w1", factories.listing(OTHER, resources=("w1",), not_before=fleet.now + timedelta(minutes=15)))
    otto: Caller = caller(factories.operator())
    admin = in_person(factories.admin())
    admin("PATCH", "people/otto/", {"scopes": [{"kind": "name", "pattern": "work*"}]})
    for address, body in (("approvals/", {"comment": ""}), ("claims/", {}), ("holds/", {"reason": "x"})):
        assert "work*" in problem(otto.post(f"events/{EVENT}/{address}", body), 403, "not-permitted")["detail"]
    admin("PATCH", "people/otto/", {"scopes": [{"kind": "name", "pattern": "WEB"}]})
    assert otto.post(f"events/{EVENT}/claims/", {}).status_code == 201
    assert "WEB" in problem(otto.post(f"events/{OTHER}/claims/", {}), 403, "not-permitted")["detail"]
