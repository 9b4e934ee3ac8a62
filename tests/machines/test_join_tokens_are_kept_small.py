"""Join tokens are listed with who enrolled by them, admit so many, and are ended: page, API, command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import Client

from fleet.management.commands import prepare_demo
from fleet.models import JoinToken, Machine
from fleet.operations.machines import entrance
from tests import factories
from tests.api.conftest import caller, problem
from tests.approvals.asking import refused
from tests.architecture.sources import ROOT
from tests.dashboard.conftest import text_of
from tests.factories import Fleet, acting, admin, approver
from tests.words import sentence

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(now=datetime.now(UTC))


def test_it_admits_no_more_machines_than_it_may(fleet: Fleet) -> None:
    token, fleet.join_token = entrance.create_join_token(
        comment="rack 7", expires_in=timedelta(days=1), max_uses=2, now=fleet.now
    )
    first = fleet.enrol("vm1")
    fleet.enrol("vm2")
    error = refused(lambda: fleet.enrol("vm3"))
    assert (error.code, "as many as it may" in sentence(error)) == ("join-token-refused", True)
    # Who is there enrols again by its credential, which is no use.
    fleet.enrol("vm1", vm_id=first.machine.vm_id)
    assert JoinToken.objects.get(pk=token.pk).uses == 2
    assert Machine.objects.get(resource_name="vm1").join_token == token
    for wrong in (0, -1, 100_001):
        error = refused(
            lambda wrong=wrong: entrance.create_join_token(
                comment="", expires_in=timedelta(days=1), max_uses=wrong, now=fleet.now
            )
        )
        assert error.code == "validation"


def test_revoked_join_token_admits_no_machine_and_enrolled_ones_stay(fleet: Fleet) -> None:
    token = JoinToken.objects.get()
    fleet.enrol("vm1")
    error = refused(lambda: entrance.end_join_token(prefix=token.prefix, now=fleet.now, actor=acting(approver())))
    assert error.code == "not-permitted"
    entrance.end_join_token(prefix=token.prefix, now=fleet.now, actor=acting(admin()))
    assert refused(lambda: fleet.enrol("vm2")).code == "join-token-refused"
    assert Machine.objects.get().revoked_at is None


def test_every_example_lives_a_day() -> None:
    texts = [
        ROOT / "README.md",
        ROOT / "docker-compose.yml",
        *(ROOT / "docs").rglob("*.md"),
    ]
    calls = [
        call for path in texts for call in re.findall(r"drydock-fleet create_join_token[^`)]*", path.read_text("utf-8"))
    ]
    assert len(calls) > 2
    assert [call for call in calls if "--expires-in 1d" not in call] == []
    assert timedelta(seconds=settings.JOIN_TOKEN_SECONDS) == prepare_demo.JOIN_TOKEN_TIME == timedelta(days=1)


def test_admins_see_and_end_them_on_the_page(fleet: Fleet) -> None:
    fleet.enrol("vm1")
    token = JoinToken.objects.get()
    ada, anna = Client(), Client()
    ada.force_login(admin())
    anna.force_login(approver())
    assert token.prefix not in text_of(anna.get("/join-tokens/"))
    shown = text_of(ada.get("/join-tokens/"))
    assert token.prefix in shown and "vm1" in shown
    assert fleet.join_token not in shown
    assert anna.post(f"/join-tokens/{token.prefix}/end/").status_code == 403
    assert ada.post("/join-tokens/join_none/end/").status_code == 404
    assert ada.post(f"/join-tokens/{token.prefix}/end/").status_code == 302
    assert "ended" in text_of(ada.get("/join-tokens/"))


def test_the_api_and_the_command_line_do_the_same(fleet: Fleet) -> None:
    ada, otto = caller(factories.admin()), caller(factories.operator())
    made = ada.post("join-tokens/", {"comment": "rack 7", "max_uses": 3}).json()
    assert otto.get("join-tokens/").status_code == 403
    row = ada.get("join-tokens/").json()["results"][0]
    assert (row["prefix"], row["uses"], row["max_uses"], row["valid"], row["enrolled"]) == (
        made["prefix"],
        0,
        3,
        True,
        [],
    )
    assert ada.delete(f"join-tokens/{made['prefix']}/").status_code == 204
    problem(ada.delete("join-tokens/join_none/"), 404, "not-found")
    call_command("create_join_token", uses=1, stdout=StringIO(), stderr=StringIO())
    newest = JoinToken.objects.latest("pk")
    assert newest.max_uses == 1
    out = StringIO()
    call_command("list_join_tokens", stdout=out)
    assert out.getvalue().startswith(f"{newest.prefix}  valid  0 of 1 uses")
    call_command("end_join_token", newest.prefix, stdout=StringIO())
    assert JoinToken.objects.get(pk=newest.pk).revoked_at is not None
    with pytest.raises(CommandError, match="no join token"):
        call_command("end_join_token", "join_none")
