"""Join tokens: they admit the first machine of a new installation, so many and no more, and are listed and ended."""

import re
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from drydock_agent import wire
from pytest_django import DjangoAssertNumQueries, Settings

from fleet.domain.machines.enrolment import remedy_of
from fleet.domain.reasons import Reason, Refused
from fleet.domain.secrets import hash_of, prefix_of
from fleet.management.commands import prepare_demo
from fleet.models import Admission, Entrance, Entry, JoinToken, Machine, Nonce, RefusedEnrolment
from fleet.models.facts.machines import entrance_facts
from fleet.operations.intake.keep import AgentReport
from fleet.operations.machines import enrolment, entrance
from fleet.operations.machines.enrolment import RefusedCalls
from fleet.operations.reports import place
from tests import factories
from tests.api.conftest import caller, problem
from tests.approvals.asking import entries, refused
from tests.architecture.sources import ROOT
from tests.dashboard.conftest import text_of
from tests.factories import Fleet, acting, admin, approver, operator
from tests.machines.forger import NOW, OTHER_VM_ID, SUBSCRIPTION
from tests.machines.newcomers import COMPUTE, ask, document, home, request_of, token, waits
from tests.words import sentence

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def installation(settings: Settings, azure: None) -> None:
    """Nothing is stated: neither how machines enrol nor whose."""
    settings.ATTESTED_SUBSCRIPTIONS = frozenset()


def test_a_join_token_admits_a_machine_confined_counted_and_expiring() -> None:
    shown = token(max_uses=1)
    assert not waits(ask(join_token=shown))
    machine = Machine.objects.get()
    assert machine.confined_to is not None and machine.confined_to["name"] == "web"
    assert JoinToken.objects.get().uses == 1
    data = wire.InstanceData(compute=COMPUTE, resource_name="vm1", availability_set="db")
    place(AgentReport(machine.pk, (1, 1), NOW, data), {}, NOW)
    assert home() == "web"
    assert waits(ask(join_token=token(), ask="thief")), "no known machine is taken over"
    # Used up, it is none, and a person decides.
    other = {"machine_id": OTHER_VM_ID, "resource_name": "vm2"}
    assert waits(ask(join_token=shown, **other))
    assert waits(ask(join_token=token(), now=NOW + timedelta(days=2), **other))
    assert not waits(ask(join_token=token(), **other))


def test_the_token_that_first_steps_makes_is_enough(ada: Client) -> None:
    ada.post("/first-steps/token/", {"set_name": "web"})
    made = JoinToken.objects.get()
    assert (made.max_uses, made.set_name, made.confined_to is not None) == (20, "availability_set:web", True)
    lines = ada.post("/first-steps/token/").context["lines"]
    shown = lines[-1].text.partition("DRYDOCK_JOIN_TOKEN=")[2].strip()
    assert not waits(ask(join_token=shown, now=datetime.now(UTC)))


def test_a_document_of_another_machine_keeps_one_with_a_token_out_and_one_that_cannot_be_verified_does_not() -> None:
    assert refused(lambda: ask(document(vmId=OTHER_VM_ID), join_token=token())).code == "attestation-refused"
    forged = wire.AttestedDocument(signature="bm90IGEgZG9jdW1lbnQ=")
    assert refused(lambda: ask(forged)).code == "attestation-refused"
    assert not waits(ask(forged, join_token=token()))
    assert Machine.objects.get().attested_at is None


def test_a_guess_learns_and_locks_nothing(
    settings: Settings, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    settings.ENROLMENT_POLICY = "token"
    shown = {"usable": token(max_uses=1), "expired": token(now=NOW - timedelta(days=9)), "used up": token(max_uses=1)}
    shown["revoked"] = token()
    ask(join_token=shown["used up"])
    entrance.end_join_token(prefix=prefix_of(shown["revoked"]), now=NOW)
    guesses = [f"{prefix_of(plain)}_{'x' * 43}" for plain in shown.values()] + ["join_000000000000_x", "x", ""]
    for guess in guesses:
        with django_assert_num_queries(1), CaptureQueriesContext(connection) as caught:
            error = refused(lambda guess=guess: entrance.valid(guess, now=NOW))
        assert error.reason == Reason("join-token-unknown"), guess
        assert "secret_hash" in caught[0]["sql"].partition("WHERE")[2], guess
    assert entrance.usable_hashes(now=NOW) == {hash_of(shown["usable"])}


@pytest.mark.parametrize("policy", ["auto", "attested", "admit"])
def test_a_stated_policy_stays_as_it_was(policy: str, settings: Settings) -> None:
    settings.ENROLMENT_POLICY = policy
    shown = token()
    if policy == "attested":
        assert refused(lambda: ask(join_token=shown)).code == "attestation-refused"
    else:
        assert waits(ask(join_token=shown))


def test_where_subscriptions_are_stated_attested_documents_stay_the_way_in(settings: Settings) -> None:
    settings.ATTESTED_SUBSCRIPTIONS = frozenset({SUBSCRIPTION})
    assert waits(ask(join_token=token()))
    assert not waits(ask(document()))


def test_attested_documents_are_chosen_on_first_steps_with_the_subscription(ada: Client, settings: Settings) -> None:
    shown = token()
    url = "/first-steps/entrance/"
    for wrong in ({}, {"policy": "token"}, {"policy": "attested"}, {"policy": "auto", "subscriptions": "not an id"}):
        assert ada.post(url, wrong).status_code == 422
    assert not Entry.objects.filter(kind="entrance_changed").exists()
    chosen = {"policy": "attested", "subscriptions": f" {SUBSCRIPTION.upper()}, "}
    assert ada.post(url, chosen).status_code == 302
    assert len(entries("entrance_changed")) == 1
    assert refused(lambda: ask(join_token=shown)).code == "attestation-refused"
    assert not waits(ask(document()))
    assert SUBSCRIPTION in ada.get("/first-steps/").content.decode()
    # Where a setting states the policy, nothing counts that was chosen here.
    settings.ENROLMENT_POLICY = "attested"
    assert not entrance_facts().subscriptions
    settings.ENROLMENT_POLICY = ""
    assert ada.post(url, {"policy": "join"}).status_code == 302
    assert not waits(ask(join_token=shown, machine_id=OTHER_VM_ID))


def test_only_admins_choose_and_only_without_a_setting(ada: Client, settings: Settings) -> None:
    with pytest.raises(Refused):
        entrance.choose(policy="admit", subscriptions=[], actor=acting(operator("olga")), now=NOW)
    settings.ENROLMENT_POLICY = "auto"
    assert ada.post("/first-steps/entrance/", {"policy": "join"}).status_code == 422
    assert not Entrance.objects.exists()


def note(number: int, *, address: str = "203.0.113.9", code: str = "join-token-unknown", count: int = 1) -> None:
    call = RefusedCalls(f"vm{number}", address, f'{{"code": "{code}", "values": {{}}}}', NOW, NOW, count)
    enrolment.keep({(code, f"vm-{number}"): call}, now=NOW)


def test_a_refused_enrolment_is_shown_with_its_reason_count_and_remedy(ada: Client) -> None:
    note(7, count=3)
    note(7, count=2)
    for page in ("/first-steps/", "/admissions/"):
        shown = text_of(ada.get(page))
        assert "vm7" in shown and "refused 5 times" in shown and "203.0.113.9" in shown
        assert "Drydock does not know this join token" in shown and "Create a join token" in shown
    request = request_of(join_token=token(), machine_id="vm-7")
    assert not waits(enrolment.enrol(request=request, now=NOW))
    assert not RefusedEnrolment.objects.exists()


def test_a_flood_of_refused_enrolments_fills_no_table_and_hides_no_other() -> None:
    for number in range(enrolment.MOST_OF_AN_ADDRESS + 5):
        note(number)
    assert RefusedEnrolment.objects.count() == enrolment.MOST_OF_AN_ADDRESS + 1
    assert RefusedEnrolment.objects.get(vm_id="").count == 5
    note(1000, address="198.51.100.7")
    assert RefusedEnrolment.objects.filter(vm_id="vm-1000").exists()
    reason = '{"code": "x", "values": {}}'
    calls = [RefusedCalls("x", f"10.0.{number}.1", reason, NOW, NOW, 1) for number in range(500)]
    enrolment.keep({("join-token-unknown", f"x-{call.address}"): call for call in calls}, now=NOW)
    assert RefusedEnrolment.objects.count() == enrolment.MOST
    total = sum(RefusedEnrolment.objects.values_list("count", flat=True))
    assert total == enrolment.MOST_OF_AN_ADDRESS + 5 + 1 + 500
    later = NOW + timedelta(days=8)
    enrolment.keep({("a", "b"): RefusedCalls("b", "", reason, later, later, 1)}, now=later)
    assert RefusedEnrolment.objects.count() == 1


def test_what_would_happen_is_answered_and_nothing_is_kept(settings: Settings) -> None:
    shown = token()
    before = Entry.objects.count()

    def would(attested: wire.AttestedDocument | None = None, **fields: Any) -> object:
        return enrolment.would_enrol(request=request_of(attested, **fields), now=NOW, address="203.0.113.9")

    assert not waits(would(join_token=shown))
    assert waits(would())
    settings.ATTESTED_SUBSCRIPTIONS = frozenset({SUBSCRIPTION})
    once = document()
    assert not waits(would(once))
    settings.ENROLMENT_POLICY = "token"
    assert refused(would).code == "join-token-refused"
    assert not Machine.objects.exists() and not Admission.objects.exists() and not Nonce.objects.exists()
    assert JoinToken.objects.get().uses == 0 and Entry.objects.count() == before


def test_a_reason_has_a_remedy_and_both_have_words() -> None:
    for code in ("attested-required", "attested-chain", "enrols-elsewhere", "join-token-over", "admissions-full", "x"):
        assert sentence(remedy_of(code))
    assert isinstance(remedy_of("x"), Reason)


@pytest.fixture
def fleet(settings: Settings) -> Fleet:
    settings.ENROLMENT_POLICY = "token"
    return Fleet(now=datetime.now(UTC))


def test_it_admits_no_more_machines_than_it_may(fleet: Fleet) -> None:
    fleet.join_token = token(now=fleet.now, max_uses=2)
    first = fleet.enrol("vm1")
    fleet.enrol("vm2")
    error = refused(lambda: fleet.enrol("vm3"))
    assert (error.code, error.reason.code) == ("join-token-refused", "join-token-used-up")
    # Who is there enrols again by its credential, which is no use.
    fleet.enrol("vm1", vm_id=first.machine.vm_id)
    made = JoinToken.objects.latest("pk")
    assert (made.uses, Machine.objects.get(resource_name="vm1").join_token) == (2, made)
    for wrong in (0, -1, 100_001):
        assert refused(lambda wrong=wrong: token(max_uses=wrong)).code == "validation"


def test_revoked_join_token_admits_no_machine_and_enrolled_ones_stay(fleet: Fleet) -> None:
    token = JoinToken.objects.get()
    fleet.enrol("vm1")
    error = refused(lambda: entrance.end_join_token(prefix=token.prefix, now=fleet.now, actor=acting(approver())))
    assert error.code == "not-permitted"
    entrance.end_join_token(prefix=token.prefix, now=fleet.now, actor=acting(admin()))
    assert refused(lambda: fleet.enrol("vm2")).code == "join-token-refused"
    assert Machine.objects.get().revoked_at is None


def test_every_example_lives_a_day() -> None:
    texts = [ROOT / "README.md", ROOT / "docker-compose.yml", *(ROOT / "docs").rglob("*.md")]
    calls = [
        call for path in texts for call in re.findall(r"drydock-fleet create_join_token[^`)]*", path.read_text("utf-8"))
    ]
    assert len(calls) > 1
    assert [call for call in calls if "--expires-in 1d" not in call] == []
    assert timedelta(seconds=django_settings.JOIN_TOKEN_SECONDS) == prepare_demo.JOIN_TOKEN_TIME == timedelta(days=1)


def test_admins_see_and_end_them_on_the_page(fleet: Fleet, ada: Client, anna: Client) -> None:
    fleet.enrol("vm1")
    token = JoinToken.objects.get()
    assert token.prefix not in text_of(anna.get("/join-tokens/"))
    shown = text_of(ada.get("/join-tokens/"))
    assert token.prefix in shown and "vm1" in shown
    assert fleet.join_token not in shown
    assert ada.post("/join-tokens/join_none/end/").status_code == 404
    assert ada.post(f"/join-tokens/{token.prefix}/end/").status_code == 302
    assert "revoked" in text_of(ada.get("/join-tokens/"))


def test_the_api_and_the_command_line_do_the_same(fleet: Fleet) -> None:
    ada = caller(factories.admin())
    made = ada.post("join-tokens/", {"comment": "rack 7", "max_uses": 3}).json()
    row = ada.get("join-tokens/").json()["results"][0]
    expected = {"prefix": made["prefix"], "uses": 0, "max_uses": 3, "valid": True, "enrolled": []}
    assert {name: row[name] for name in expected} == expected
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
