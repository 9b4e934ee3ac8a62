"""Tokens, rights, and the calls that are for admins."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User

from fleet.models import ApiToken, JoinToken
from tests import factories
from tests.api.conftest import Caller, caller, problem


def test_an_unknown_or_expired_token_is_refused(db: None) -> None:
    for token in ("x", "dd_", "dd_000000000000_nothing", "ü", "dd_a_b c", "a\u20acb"):
        problem(Caller(token).get("events/"), 401, "not-authenticated")
    problem(caller(factories.operator(), expires_in=timedelta(seconds=-1)).get("events/"), 401, "not-authenticated")


def test_token_of_a_deactivated_user_is_refused(operator: Caller) -> None:
    User.objects.filter(username="otto").update(is_active=False)
    problem(operator.get("events/"), 401, "not-authenticated")


def test_a_token_knows_when_it_was_last_used(operator: Caller) -> None:
    operator.get("events/")
    used = ApiToken.objects.get().last_used_at
    assert used is not None
    assert datetime.now(UTC) - used < timedelta(seconds=10)


def test_a_broken_token_is_not_helped_by_a_session(db: None) -> None:
    stranger = Caller("dd_000000000000_nothing")
    stranger.client.force_login(factories.operator())
    problem(stranger.get("events/"), 401, "not-authenticated")


def test_an_admin_makes_a_join_token(admin: Caller) -> None:
    made = admin.post("join-tokens/", {"comment": "rack 7", "set": "scale_set:workers"}).json()
    assert made["seconds_left"] == pytest.approx(86400, abs=5)
    row = JoinToken.objects.get(prefix=made["prefix"])
    assert (row.comment, row.set_name, made["token"] in row.secret_hash) == ("rack 7", "scale_set:workers", False)
