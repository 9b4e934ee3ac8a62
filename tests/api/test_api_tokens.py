"""Tokens of calls, rights, and tokens from the command line."""

import argparse
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from fleet.management.helpers import duration
from fleet.models import ApiToken, Entry, JoinToken
from tests import factories
from tests.api.conftest import Caller, problem


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


# From the command line.


def run(*words: str) -> tuple[str, str]:
    """What the command writes for scripts, and what for people."""
    out, err = StringIO(), StringIO()
    call_command(*words, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_a_join_token_is_printed_alone_and_admits_agents(db: None) -> None:
    out, err = run("create_join_token", "--comment", "rack 7", "--expires-in", "7d", "--set", "scale_set:workers")
    plain = out.strip()
    assert out == f"{plain}\n"
    assert plain not in err
    row = JoinToken.objects.get()
    assert row.comment == "rack 7"
    assert row.expires_at - row.created_at == timedelta(days=7)
    fleet = factories.Fleet(now=datetime.now(UTC))
    fleet.join_token = plain
    assert fleet.enrol("w1", availability_set="").machine.availability_set.name == "workers"


def test_a_set_that_makes_no_sense_is_one_sentence(db: None) -> None:
    with pytest.raises(CommandError):
        run("create_join_token", "--set", "rack:7")
    # If nothing is said, a token lives for a day.
    run("create_join_token")
    row = JoinToken.objects.get()
    assert row.expires_at - row.created_at == timedelta(days=1)


def test_an_api_token_reads_and_does_no_more_if_nothing_is_said(db: None) -> None:
    with pytest.raises(CommandError):
        run("create_token", "ann")
    factories.operator("ann")
    plain = run("create_token", "ann")[0].strip()
    assert Caller(plain).get("events/").status_code == 200
    problem(Caller(plain).post("events/x/approvals/", {"comment": "x"}), 403, "not-permitted")


def test_an_api_token_has_the_scopes_and_the_time_that_were_said(db: None) -> None:
    factories.operator("ann")
    run("create_token", "ann", "--name", "deploys", "--scope", "read", "--scope", "approve", "--expires-in", "30d")
    row = ApiToken.objects.get()
    assert (row.name, row.scopes) == ("deploys", ["approve", "read"])
    assert row.expires_at is not None
    assert row.expires_at - row.created_at == timedelta(days=30)


def test_a_span_of_time_is_read() -> None:
    spans = {"90s": 90, "30m": 1800, "12h": 43200, "7d": 604800, "2w": 1209600, " 1D ": 86400}
    assert {text: duration(text).total_seconds() for text in spans} == spans
    for text in ("", "7", "d", "-1d", "0d", "1y", "1.5d", "9999999d"):
        with pytest.raises(argparse.ArgumentTypeError):
            duration(text)


def test_an_ended_token_is_refused_from_then_on_and_the_timeline_tells_it(db: None) -> None:
    factories.operator("ann")
    plain = run("create_token", "ann", "--name", "deploys")[0].strip()
    assert Caller(plain).get("events/").status_code == 200
    run("end_token", ApiToken.objects.get().prefix)
    problem(Caller(plain).get("events/"), 401, "not-authenticated")
    assert Entry.objects.filter(kind="token_ended").count() == 1
    for unknown in (plain, "dd_nothing"):
        with pytest.raises(CommandError):
            run("end_token", unknown)
