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


def test_an_admin_makes_a_join_token_that_admits_agents(admin: Caller, settings: object) -> None:
    answer = admin.post("join-tokens/", {"comment": "rack 7", "set": "scale_set:workers"})
    assert answer.status_code == 201, answer.content
    made = answer.json()
    assert {"token", "prefix", "comment", "set", "created_at", "expires_at", "seconds_left", "server_time"} == set(made)
    assert made["seconds_left"] == pytest.approx(86400, abs=5)
    assert made["token"] not in JoinToken.objects.get().secret_hash
    fleet = factories.Fleet(now=datetime.now(UTC))
    fleet.join_token = made["token"]
    assert fleet.enrol("w1", availability_set="").machine.availability_set.name == "workers"


def test_read_only_token_of_an_admin_revokes_no_other_token(db: None) -> None:
    theirs, ours = caller(factories.operator()), caller(factories.admin(), "read")
    prefix = ApiToken.objects.get(user=theirs.user).prefix
    refused = ours.delete(f"tokens/{prefix}/")
    problem(refused, 403, "not-permitted")
    assert theirs.get("me/").status_code == 200
    assert caller(factories.admin(), "read", "admin").delete(f"tokens/{prefix}/").status_code == 204
    assert theirs.get("me/").status_code == 401


def test_token_may_revoke_itself(db: None) -> None:
    ours = caller(factories.operator(), "read")
    prefix = ApiToken.objects.get(user=ours.user).prefix
    assert ours.delete(f"tokens/{prefix}/").status_code == 204
    assert ours.get("me/").status_code == 401
