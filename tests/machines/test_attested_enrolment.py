"""Machines prove who they are: by what Azure signs of them, and from then on by a key of their own."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from drydock_agent import wire
from drydock_agent.backend.machine_key import Key, authorization
from pytest_django import Settings

from fleet.domain.machines.enrolment import machine_key
from fleet.gateway.http import Problem, Request
from fleet.gateway.signed_calls import SignedCalls
from fleet.models import Admission, AvailabilitySet, Entrance, JoinToken, Machine, Nonce
from fleet.models.cipher import derived_keys
from fleet.operations.intake.keep import AgentReport
from fleet.operations.machines import admissions, decommission, entrance, keys
from fleet.operations.machines.keys import PURPOSE
from fleet.operations.reports import place
from fleet.operations.sets.changes import move_machine
from fleet.projections import machines
from fleet.projections.machines import identities_of
from tests.approvals.asking import entries, refused
from tests.dashboard.conftest import text_of
from tests.factories import acting, admin, change_set
from tests.machines.forger import NOW, OTHER_VM_ID, SUBSCRIPTION, VM_ID
from tests.machines.newcomers import COMPUTE, admit_all, ask, document, granted, home, key_of, token, waits
from tests.sets.test_where_a_machine_belongs import tagged
from tests.words import text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("azure")]


def why(attested: wire.AttestedDocument | None, **fields: Any) -> str:
    found = refused(lambda: ask(attested, **fields))
    assert not isinstance(found.reason, str)
    return found.reason.code


def test_an_attested_machine_needs_no_join_token_and_no_person() -> None:
    answer = granted(ask(document()))
    assert (answer.credential, len(answer.key), answer.machine_id) == ("", 64, VM_ID)
    machine = Machine.objects.get()
    assert (machine.resource_name, machine.availability_set.name) == ("vm1", "web")
    assert machine.attested_at == NOW
    # Nothing that is kept is the key, or leads to it.
    assert answer.key not in json.dumps(list(Machine.objects.values()), default=str)
    assert not JoinToken.objects.exists() and not Admission.objects.exists()


def test_a_document_is_good_once_for_its_own_machine_in_its_own_subscription() -> None:
    once = document()
    granted(ask(once))
    assert why(once) == "attested-nonce-spent"
    # A valid document of another VM of ours; and its nonce is spent by that.
    other = document(vmId=OTHER_VM_ID)
    assert why(other) == "attested-other-machine"
    assert why(other, machine_id=OTHER_VM_ID) == "attested-nonce-spent"
    assert why(document(), machine_id=VM_ID, instance=COMPUTE | {"subscriptionId": OTHER_VM_ID}) == (
        "attested-other-subscription"
    )
    old = document()
    assert why(old, now=NOW + timedelta(seconds=61)) == "attested-nonce-over"


def test_spent_nonces_are_kept_no_longer_than_they_would_count() -> None:
    ask(document())
    later = NOW + timedelta(minutes=5)
    entrance.attested_by(document(later), now=later)
    assert Nonce.objects.count() == 1


@pytest.mark.parametrize("policy", ["", "auto", "admit"])
def test_without_a_document_a_person_admits_it(policy: str, settings: Settings) -> None:
    settings.ENROLMENT_POLICY = policy
    assert waits(ask())
    assert not Machine.objects.exists()
    (row,) = Admission.objects.all()
    assert row.machine is None
    admit_all()
    (line,) = entries("machine_admitted")
    assert "vm1" in text(line)
    # Only the machine whose request was admitted may enrol.
    assert waits(ask(ask="a thief's"))
    granted(ask())
    assert not Admission.objects.exists()


def test_by_the_policy_admit_a_person_admits_the_attested_too(settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "admit"
    assert waits(ask(document()))
    assert machines.waiting()[0].attested == SUBSCRIPTION


def test_policy_attested_admits_attested_machines_only(settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "attested"
    assert why(None) == "attested-required"
    settings.ATTESTED_SUBSCRIPTIONS = frozenset({OTHER_VM_ID})
    assert why(document()) == "attested-subscription-strange"
    settings.ATTESTED_SUBSCRIPTIONS = frozenset({SUBSCRIPTION})
    granted(ask(document()))


def test_subscription_that_is_not_allowed_waits_and_the_page_states_it(settings: Settings, ada: Client) -> None:
    settings.ATTESTED_SUBSCRIPTIONS = frozenset()
    assert waits(ask(document(), ask="one"))
    assert waits(ask(ask="two", resource_name="vm9"))
    page = text_of(ada.get("/admissions/"))
    assert "attested by Azure" in page and f"subscription {SUBSCRIPTION}, which is not permitted" in page
    assert "1 more requests for the same machine" in page and "unknown machine" in page
    assert "(as reported)" in page


def test_unattested_strangers_do_not_block_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admissions, "MOST_OF_AN_ADDRESS", 3)
    for number in range(3):
        ask(machine_id=f"stranger-{number}")
    assert refused(lambda: ask(machine_id="stranger-3")).code == "admissions-full"
    # The timeline does not list them before an administrator decides.
    assert not entries("machine_waits")
    granted(ask(document(vmId=OTHER_VM_ID), machine_id=OTHER_VM_ID))
    later = NOW + timedelta(hours=2)
    assert waits(ask(now=later, machine_id="stranger-3"))
    assert Admission.objects.count() == 1


def test_a_key_proves_who_enrols_again_and_ends_with_that() -> None:
    first = granted(ask(document()))
    again = granted(ask(signed_by=key_of(first)))
    assert again.generation > first.generation and again.key != first.key
    keys.mark_used([key_of(again)])
    assert waits(ask()), "without its key"
    assert waits(ask(signed_by=key_of(first))), "by the key before"
    assert waits(ask(signed_by=key_of(again, OTHER_VM_ID))), "by another machine's key"
    decommission.revoke(machine_id=Machine.objects.get().pk, actor=acting(admin()), now=NOW)
    assert waits(ask(document(), signed_by=key_of(again))), "revoked: a person alone"


def test_installation_with_machines_keeps_join_tokens() -> None:
    Entrance.objects.create(policy="token")
    assert refused(ask).code == "join-token-refused"
    assert refused(lambda: ask(document())).code == "join-token-refused"


def test_from_the_day_on_that_is_set_credentials_count_no_more(settings: Settings) -> None:
    settings.LEGACY_CREDENTIALS_UNTIL = NOW
    assert refused(lambda: ask(document(), keyed=False)).code == "not-permitted"
    granted(ask(document(), keyed=False, now=NOW - timedelta(seconds=1)))
    machine = Machine.objects.get()
    assert machine.key_generation == 0 and machine.credential_hash


# The signature of a call, as the gateway reads it.

KEY_GENERATION = 17


def call(
    vm_id: str = VM_ID, *, at: datetime = NOW, target: str = "/agent/v1/reports", body: bytes = b"{}", **over: Any
) -> Request:
    """A call as an agent signs it, and then as it comes: `over` changes what was sent."""
    key = machine_key(derived_keys(PURPOSE)[0], vm_id, KEY_GENERATION)
    said = authorization(Key(vm_id, KEY_GENERATION, key.hex()), "POST", target, body, at)
    path, _, query = target.partition("?")
    scope = {"method": "POST", "path": path, "query_string": query.encode()} | over
    header = scope.pop("header", said)
    return Request(scope | {"headers": [(b"authorization", header.encode())]}, None)  # type: ignore[arg-type]


def refusal(request: Request, calls: SignedCalls | None = None, now: datetime = NOW) -> str:
    with pytest.raises(Problem) as problem:
        (calls or SignedCalls()).read(request, now)
    assert problem.value.status == 401
    return problem.value.code


def test_a_signed_call_is_known_by_its_key_alone() -> None:
    for vm_id in (VM_ID, "a machine of ours/ü"):
        signed = SignedCalls().read(call(vm_id, target="/agent/v1/orders?wait=50&held=a:b"), NOW)
        assert signed is not None and (signed.vm_id, signed.today) == (vm_id, True)
    assert SignedCalls().read(call(header="Bearer agent_x_y"), NOW) is None


@pytest.mark.parametrize(
    "over",
    [
        {"method": "GET"},
        {"path": "/agent/v1/orders"},
        {"query_string": b"wait=50"},
        {"header": "Drydock a b c d e f"},
        {"header": f"Drydock {VM_ID} 17 {int(NOW.timestamp() * 1000)} 1 - {'0' * 64}"},
        {"header": "Drydock " + "a" * 2000 + " 1 1 1 - 1"},
        {"header": f"Drydock {VM_ID} 9{'9' * 40} 1 1 - 1"},
        {"header": f"Drydock {VM_ID} ² 1 1 - 1"},
    ],
)
def test_what_was_changed_on_the_way_is_refused(over: dict[str, Any]) -> None:
    assert refusal(call(**over)) == "not-authenticated"


def test_signed_call_counts_once_and_a_skewed_one_is_refused_as_skewed() -> None:
    calls, one = SignedCalls(), call()
    assert calls.read(one, NOW) is not None
    for seconds in (0, 1, 29):
        assert refusal(one, calls, NOW + timedelta(seconds=seconds)) == "not-authenticated"
    assert refusal(one, calls, NOW + timedelta(seconds=31)) == "clock-skewed"
    ahead = call(at=NOW + timedelta(seconds=29))
    assert calls.read(ahead, NOW) is not None
    assert refusal(ahead, calls, NOW + timedelta(seconds=58)) == "not-authenticated"
    assert refusal(call(at=NOW - timedelta(days=1)), calls) == "clock-skewed"
    # Nothing is remembered for longer than it counts.
    calls.read(call(at=NOW + timedelta(minutes=5)), NOW + timedelta(minutes=5))
    assert len(calls._taken) + len(calls._before) == 1


def test_a_key_of_the_secret_before_counts_and_is_to_be_renewed(settings: Settings) -> None:
    made = call()
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another secret, long enough to be one"
    signed = SignedCalls().read(made, NOW)
    assert signed is not None and not signed.today
    settings.SECRET_KEY_FALLBACKS = []
    assert refusal(made) == "not-authenticated"


def test_the_name_of_a_key_is_found_by_nothing_else() -> None:
    answer = granted(ask(document()))
    name = Machine.objects.get().credential_hash
    assert name in identities_of(hashes=[name])
    assert answer.key != name and len(name) == 64
    call_command("admit_machine")


# Admissions: an administrator admits exactly the displayed request, and a changed one counts as another.

LAB = {"resource_name": "lab1", "availability_set": "lab", "instance": COMPUTE | {"name": "lab1"}}


def tells(stated: str = "", **compute: Any) -> None:
    """The machine reports its instance metadata again, with this set."""
    machine = Machine.objects.get(vm_id=VM_ID)
    data = wire.InstanceData(compute=COMPUTE | compute, resource_name="web-vm77", availability_set=stated)
    place(AgentReport(machine.pk, (1, 1), NOW, data), {}, NOW)


@pytest.mark.parametrize(
    "other",
    [
        {"resource_name": "web-vm77"},
        {"resource_name": "", "instance": COMPUTE | {"name": "web-vm77"}},
        {"availability_set": "web"},
        {"availability_set": "scale_set:lab"},
        {"availability_set": ""},
        {"availability_set": "", "instance": LAB["instance"] | tagged("web")},
        {"availability_set": "", "instance": LAB["instance"] | {"vmScaleSetName": "web"}},
        {"instance": LAB["instance"] | {"resourceGroupName": "shop2"}},
        {"instance": LAB["instance"] | {"subscriptionId": OTHER_VM_ID}},
        {"instance": LAB["instance"] | {"location": "northeurope"}},
        {"instance": LAB["instance"] | {"privateIpAddresses": ["10.0.0.9"]}},
        {"instance": None},
        {"join_token": "of the set web"},
        {"join_token": "of no set"},
        {"address": "198.51.100.1"},
    ],
)
def test_other_details_are_another_request(other: dict[str, Any]) -> None:
    tokens = {"of the set web": token("web"), "of no set": token()}
    assert waits(ask(**LAB))
    admit_all()
    fields = LAB | other
    fields["join_token"] = tokens.get(fields.get("join_token", ""), "")
    if fields["join_token"] == tokens["of the set web"]:
        fields["availability_set"] = ""
    assert waits(ask(**fields))
    assert not Machine.objects.exists()
    assert Admission.objects.filter(admitted_at=None).count() == 1
    # What was admitted still is.
    granted(ask(**LAB))
    assert home() == "lab"


def test_the_token_of_one_set_is_no_way_into_another() -> None:
    lab = token("lab")
    fields = LAB | {"availability_set": "", "join_token": lab}
    assert waits(ask(**fields))
    assert Admission.objects.get().said["home"] == "availability_set:lab"
    admit_all()
    assert waits(ask(**fields | {"join_token": "", "availability_set": "web"}))
    assert waits(ask(**fields | {"join_token": "", "availability_set": ""}))
    granted(ask(**fields))
    assert home() == "lab"


@pytest.mark.parametrize("stated", ["web", ""])
def test_an_admitted_machine_stays_in_the_set_that_was_shown(stated: str) -> None:
    ask(**LAB)
    admit_all()
    ask(**LAB)
    tells(stated, **(tagged("web") if not stated else {}))
    assert home() == "lab"
    assert Machine.objects.get().set_warnings[0]["code"] == "states-another-set"
    tells("lab", resourceGroupName="other", subscriptionId=OTHER_VM_ID)
    assert home() == "lab" and AvailabilitySet.objects.count() == 1
    # Until a person decides otherwise.
    tells("web")
    move_machine(machine_id=Machine.objects.get().pk, set_id=None, actor=acting(admin()), now=NOW)
    assert home() == "web"


def test_a_machine_admitted_without_a_set_enters_no_named_one_by_its_own_word() -> None:
    alone = LAB | {"availability_set": ""}
    ask(**alone)
    assert Admission.objects.get().said["home"] == ""
    admit_all()
    ask(**alone)
    tells("web")
    machine = Machine.objects.select_related("availability_set").get()
    assert machine.availability_set.kind == "provisional"
    # A person names its set, and it stays there.
    change_set(set_id=machine.availability_set_id, actor=acting(admin()), now=NOW, name="lab")
    tells("web")
    assert home() == "lab"


def test_a_machine_that_enrols_again_with_its_key_stays_confined() -> None:
    ask(**LAB)
    admit_all()
    first = granted(ask(**LAB))
    granted(ask(**LAB | {"availability_set": "web"}, signed_by=key_of(first)))
    assert home() == "lab"


def test_a_known_machine_is_admitted_to_the_set_where_it_is() -> None:
    ask(document(), **LAB)
    assert waits(ask(ask="rebuilt", **LAB | {"availability_set": ""}))
    assert Admission.objects.get().said["home"] == "availability_set:lab"
    admit_all()
    assert waits(ask(ask="rebuilt", **LAB | {"availability_set": "web"}))
    granted(ask(ask="rebuilt", **LAB | {"availability_set": ""}))
    tells("web")
    assert home() == "lab"


def test_the_rule_of_a_set_admits_the_attested_into_that_set_alone(settings: Settings) -> None:
    ask(document(), **LAB)
    settings.ENROLMENT_POLICY = "admit"
    lab = AvailabilitySet.objects.get()
    admissions.set_rule(set_id=lab.pk, until=NOW + timedelta(days=1), actor=acting(admin()), now=NOW)
    stranger = LAB | {"resource_name": "lab2", "machine_id": OTHER_VM_ID}
    assert waits(ask(**stranger)), "by its own word alone"
    granted(ask(document(vmId=OTHER_VM_ID), **stranger))
    confined = Machine.objects.get(vm_id=OTHER_VM_ID).confined_to
    assert confined is not None and confined["name"] == "lab"
    # A rebuilt machine is admitted, too, but not while its predecessor is live or has just got its key.
    rebuilt: dict[str, Any] = LAB | {"availability_set": "web", "ask": "rebuilt"}
    assert waits(ask(document(), **rebuilt))
    later = NOW + timedelta(minutes=5)
    granted(ask(document(later), now=later, **rebuilt))
    assert home() == "lab"


def test_a_request_that_changes_while_it_waits_replaces_the_one_before() -> None:
    """The page shows one line for it, and the line that an administrator saw is gone."""
    ask(**LAB)
    shown = Admission.objects.get().pk
    for number in range(20):
        assert waits(ask(**LAB | {"resource_name": f"web-vm{number}"}))
    assert Admission.objects.get().resource_name == "web-vm19"
    actor = acting(admin())
    assert refused(lambda: admissions.admit(ids=[shown], actor=actor, now=NOW)).code == "not-found"
    assert not entries("machine_admitted")


def test_the_page_shows_the_set_and_the_resource_group_that_are_admitted(ada: Client) -> None:
    ask(**LAB | {"availability_set": "", "instance": LAB["instance"] | tagged("web")})
    (row,) = ada.get("/admissions/").context["rows"]
    assert (row.placed_set, row.stated_resource_group, row.resource_name) == ("availability_set:web", "shop", "lab1")


def test_what_a_known_machine_says_otherwise_contradicts_it(ada: Client) -> None:
    compute = LAB["instance"] | {"privateIpAddresses": ["10.0.0.4"]}
    ask(document(), **LAB | {"instance": compute})
    other = {"location": "northeurope", "resourceGroupName": "shop2", "privateIpAddresses": ["10.9.9.9"]}
    assert waits(ask(ask="thief", resource_name="other", availability_set="web", instance=compute | other))
    (row,) = ada.get("/admissions/").context["rows"]
    assert {reason.code for reason in row.contradictions} == {
        f"admission-other-{what}" for what in ("name", "region", "address", "group", "set")
    }
