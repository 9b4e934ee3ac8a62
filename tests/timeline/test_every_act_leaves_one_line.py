"""Audit of user actions: through every page that changes something, each act writes one complete entry.

Those through the API: `tests/api/test_every_write_takes_a_key.py`.
"""

from typing import Any

import pytest

from tests import factories
from tests.access.walks import the_act, writes
from tests.access.world import lasting_world
from tests.api.conftest import in_person

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
