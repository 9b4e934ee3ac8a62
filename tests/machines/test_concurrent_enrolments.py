"""Callers that enrol one unknown machine at the same moment: one gets its key, by every way in."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

import pytest
from drydock_agent import wire
from pytest_django import Settings

from fleet.domain.reasons import Refused
from fleet.domain.sets import SetKey
from fleet.models import Admission, AvailabilitySet, JoinToken, Machine, UnusedKey
from fleet.operations.machines import admissions
from fleet.operations.sets import placement
from fleet.projections.machines import identities_of
from tests.approvals.asking import entries
from tests.approvals.racing import ThreadGroup, thread_group
from tests.factories import acting, admin, change_set
from tests.machines.forger import NOW, OTHER_VM_ID, SUBSCRIPTION
from tests.machines.newcomers import COMPUTE, admit_all, ask, document, key_of, token

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("azure")]
CALLERS = 10


@pytest.fixture
def callers() -> Iterator[ThreadGroup]:
    with thread_group(CALLERS) as found:
        yield found


def one_of(results: list[object]) -> wire.EnrolAnswer:
    """The one answer with a key among these results; it is the key that counts, and the only one that was given."""
    granted = [one for one in results if isinstance(one, wire.EnrolAnswer)]
    assert len(granted) == 1, results
    assert all(isinstance(one, wire.EnrolAnswer | wire.EnrolPending | Refused) for one in results)
    (answer,) = granted
    assert set(identities_of(hashes=[key_of(answer)])) == {key_of(answer)}
    assert Machine.objects.get().key_generation == answer.generation
    assert UnusedKey.objects.get().found_by == key_of(answer)
    assert (len(entries("machine_enrolled")), len(entries("machine_enrolled_again"))) == (1, 0)
    return answer


def calls(way: str, shown: str) -> Iterator[Callable[[], object]]:
    """What the callers send. Agents of 0.1.0 have no secret: all of one address with one token are one asker."""
    for number in range(CALLERS):
        secret = str(number)
        if way == "by join token":
            yield partial(ask, join_token=shown, ask=secret)
        elif way in ("without a secret", "admitted"):
            yield partial(ask, join_token=shown, ask="")
        else:
            yield partial(ask, None if way == "admitted or attested" and not number else document(), ask=secret)


@pytest.mark.parametrize(
    ("way", "policy"),
    [
        ("by join token", "token"), ("without a secret", "token"), ("attested", ""), ("admitted", ""),
        ("admitted or attested", ""),
    ],
)  # fmt: skip
def test_one_caller_gets_the_key(callers: ThreadGroup, settings: Settings, way: str, policy: str) -> None:
    settings.ENROLMENT_POLICY, shown = policy, token()
    if way.startswith("admitted"):
        ask(**{"ask": "0"} if way == "admitted or attested" else {"join_token": shown, "ask": ""})
        admit_all()
    one_of(callers.at_once(*calls(way, shown)))
    if policy == "token":
        assert JoinToken.objects.get().uses == 1
        assert Admission.objects.count() == (admissions.MOST_OF_A_MACHINE if way == "by join token" else 1)


def test_join_tokens_of_two_sets_put_the_machine_into_one(callers: ThreadGroup, settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "token"
    tokens = [token("web"), token("db")]
    both = [partial(ask, join_token=tokens[n % 2], ask=str(n), availability_set="") for n in range(CALLERS)]
    one_of(callers.at_once(*both))
    machine = Machine.objects.select_related("availability_set", "join_token").get()
    assert machine.join_token is not None and machine.confined_to is not None
    assert machine.join_token.set_name == f"availability_set:{machine.availability_set.name}"
    assert sum(JoinToken.objects.values_list("uses", flat=True)) == 1


def test_the_rule_of_a_set_admits_one_caller(callers: ThreadGroup, settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "admit"
    shown = token("web")
    ask(document(vmId=OTHER_VM_ID), machine_id=OTHER_VM_ID)
    admit_all()
    ask(document(vmId=OTHER_VM_ID), machine_id=OTHER_VM_ID)
    web = AvailabilitySet.objects.get(name="web")
    admissions.set_rule(set_id=web.pk, until=NOW + timedelta(days=1), actor=acting(admin()), now=NOW)
    results = callers.at_once(*[partial(ask, document(), join_token=shown, ask=str(n)) for n in range(CALLERS)])
    assert sum(isinstance(one, wire.EnrolAnswer) for one in results) == 1
    assert Machine.objects.count() == 2


def test_requests_that_wait_at_the_same_moment_are_one_request(callers: ThreadGroup) -> None:
    results = callers.at_once(*[ask] * CALLERS)
    assert all(isinstance(one, wire.EnrolPending) for one in results)
    assert Admission.objects.count() == 1


def test_of_machines_that_share_a_name_one_has_it(callers: ThreadGroup, settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "token"
    shown = token("web")
    asks = [partial(ask, join_token=shown, ask="", machine_id=f"vm-{number:02}") for number in range(CALLERS)]
    results = callers.at_once(*asks)
    assert all(isinstance(one, wire.EnrolAnswer) for one in results)
    assert Machine.objects.filter(called="", resource_name="vm1").count() == 1
    assert Machine.objects.filter(called="vm1").count() == CALLERS - 1


def test_of_two_sets_that_get_one_name_at_once_one_has_it(callers: ThreadGroup, settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "token"
    shown = token()
    for number in range(CALLERS):
        ask(join_token=shown, ask="", machine_id=f"vm-{number:02}", availability_set="", resource_name=f"vm{number}")
    sets = list(AvailabilitySet.objects.filter(kind="provisional"))
    assert len(sets) == CALLERS
    actor = acting(admin())
    results = callers.at_once(*[partial(change_set, set_id=one.pk, actor=actor, now=NOW, name="web") for one in sets])
    assert sum(isinstance(one, AvailabilitySet) for one in results) == 1
    assert {one.code for one in results if isinstance(one, Refused)} == {"set-exists"}
    assert AvailabilitySet.objects.filter(kind="availability_set", name="web").count() == 1


def test_placement_groups_that_come_at_once_are_sets_of_their_own(callers: ThreadGroup, settings: Settings) -> None:
    """An inventory lists the scale set without its groups: one group takes that row, and no other takes it away."""
    settings.ENROLMENT_POLICY = "token"
    shown = token()
    whole = SetKey("scale_set", "workers", SUBSCRIPTION, "shop")
    placement.ensure_set(whole, now=NOW)
    asks = []
    for number in range(CALLERS):
        group = {"vmScaleSetName": "workers", "placementGroupId": f"group-{number:02}"}
        vm = {"machine_id": f"vm-{number:02}", "resource_name": f"vm{number}", "availability_set": ""}
        asks.append(partial(ask, join_token=shown, ask="", instance=COMPUTE | group, **vm))
    assert all(isinstance(one, wire.EnrolAnswer) for one in callers.at_once(*asks))
    homes = dict(Machine.objects.values_list("vm_id", "availability_set__key"))
    assert homes == {f"vm-{number:02}": f"{whole.key}/group-{number:02}" for number in range(CALLERS)}
