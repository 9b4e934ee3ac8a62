"""Twenty callers that enrol one unknown machine at the same moment: one gets its key, by every way in."""

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
CALLERS = 20


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


def race(callers: ThreadGroup, calls: list[Callable[[], object]]) -> wire.EnrolAnswer:
    assert len(calls) == CALLERS
    return one_of(callers.at_once(*calls))


def test_one_join_token_admits_one_of_twenty(callers: ThreadGroup, settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "token"
    shown = token()
    race(callers, [partial(ask, join_token=shown, ask=str(number)) for number in range(CALLERS)])
    assert JoinToken.objects.get().uses == 1
    assert Admission.objects.count() == admissions.MOST_OF_A_MACHINE


def test_agents_without_a_secret_are_admitted_once(callers: ThreadGroup, settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "token"
    shown = token()
    race(callers, [partial(ask, join_token=shown, ask="") for _ in range(CALLERS)])
    assert Admission.objects.count() == 1


def test_join_tokens_of_two_sets_put_the_machine_into_one(callers: ThreadGroup, settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "token"
    tokens = [token("web"), token("db")]
    calls = [
        partial(ask, join_token=tokens[number % 2], ask=str(number), availability_set="") for number in range(CALLERS)
    ]
    race(callers, calls)
    machine = Machine.objects.select_related("availability_set", "join_token").get()
    assert machine.join_token is not None and machine.confined_to is not None
    assert machine.join_token.set_name == f"availability_set:{machine.availability_set.name}"
    assert sum(JoinToken.objects.values_list("uses", flat=True)) == 1


def test_attested_documents_admit_one_of_twenty(callers: ThreadGroup) -> None:
    race(callers, [partial(ask, document(), ask=str(number)) for number in range(CALLERS)])


def test_the_rule_of_a_set_admits_one_of_twenty(callers: ThreadGroup, settings: Settings) -> None:
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


def test_an_admission_admits_one_of_twenty(callers: ThreadGroup) -> None:
    """Agents of 0.1.0 have no secret: all of one address with one token are one asker."""
    shown = token()
    ask(join_token=shown, ask="")
    admit_all()
    race(callers, [partial(ask, join_token=shown, ask="") for _ in range(CALLERS)])


def test_two_ways_in_at_once_admit_one(callers: ThreadGroup) -> None:
    """One was admitted by a person, the others bring a document that Azure signed."""
    ask(ask="0")
    admit_all()
    calls = [partial(ask, document() if number else None, ask=str(number)) for number in range(CALLERS)]
    race(callers, calls)


def test_requests_that_wait_at_the_same_moment_are_one_request(callers: ThreadGroup) -> None:
    results = callers.at_once(*[ask] * CALLERS)
    assert all(isinstance(one, wire.EnrolPending) for one in results)
    assert Admission.objects.count() == 1


def test_of_twenty_machines_that_share_a_name_one_has_it(callers: ThreadGroup, settings: Settings) -> None:
    settings.ENROLMENT_POLICY = "token"
    shown = token("web")
    calls = [partial(ask, join_token=shown, ask="", machine_id=f"vm-{number:02}") for number in range(CALLERS)]
    results = callers.at_once(*calls)
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
    calls = []
    for number in range(CALLERS):
        compute = COMPUTE | {
            "name": f"vm{number}",
            "vmScaleSetName": "workers",
            "placementGroupId": f"group-{number:02}",
        }
        vm = {"machine_id": f"vm-{number:02}", "resource_name": f"vm{number}", "availability_set": ""}
        calls.append(partial(ask, join_token=shown, ask="", instance=compute, **vm))
    assert all(isinstance(one, wire.EnrolAnswer) for one in callers.at_once(*calls))
    homes = {
        machine.vm_id: machine.availability_set.key for machine in Machine.objects.select_related("availability_set")
    }
    assert homes == {f"vm-{number:02}": f"{whole.key}/group-{number:02}" for number in range(CALLERS)}
