"""Scoped users: they act only in sets within their scopes, and never in an unnamed set."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from fleet.domain.approvals.conditions import When
from fleet.models import AvailabilitySet, Scope
from fleet.operations.approvals import claims, conditions
from tests.approvals.asking import refused
from tests.factories import EVENT, Fleet, acting, announced, approver, listing, operator, seconds
from tests.words import sentence

pytestmark = pytest.mark.django_db


def limited(person: User, *scopes: tuple[str, str]) -> User:
    """The person with these scopes alone, freshly loaded."""
    for kind, pattern in scopes:
        Scope.objects.create(user=person, kind=kind, pattern=pattern)
    return User.objects.get(pk=person.pk)


@pytest.mark.parametrize(
    ("scope", "may"),
    [
        (("name", "WEB"), True),
        (("name", "w*"), True),
        (("name", "db*"), False),
        (("service", "shop"), True),
        (("service", "bank"), False),
        (("resource_group", "SHOP"), True),
        (("resource_group", "b?nk"), False),
    ],
)
def test_a_scope_goes_by_name_service_or_resource_group(fleet: Fleet, scope: tuple[str, str], may: bool) -> None:
    announced(fleet)
    AvailabilitySet.objects.update(service="shop")
    person = limited(operator(), scope)
    if may:
        assert fleet.approve(by=person).state == "GRANTED"
        return
    error = refused(lambda: fleet.approve(by=person))
    where = f"{scope[0].replace('_', ' ')} {scope[1]}"
    assert (error.code, sentence(error)) == (
        "not-permitted",
        f"You cannot act in the set web. Your access covers: {where}. Ask an administrator.",
    )


def test_every_act_ends_there(fleet: Fleet) -> None:
    announced(fleet)
    outside = limited(approver("axel"), ("name", "db*"))
    planned = fleet.approve(when=When.TIME, due_at=fleet.now + seconds(60))
    actor = acting(outside, why="x")
    acts: list[Callable[[], object]] = [
        lambda: claims.claim(event_id=EVENT, actor=actor, now=fleet.now),
        lambda: claims.hold(event_id=EVENT, actor=actor, now=fleet.now),
        lambda: claims.lift(event_id=EVENT, actor=actor, now=fleet.now),
        lambda: conditions.withdraw(approval_id=planned.pk, actor=actor, now=fleet.now),
        lambda: conditions.consent(approval_id=planned.pk, actor=actor, now=fleet.now),
    ]
    for act in acts:
        error = refused(act)
        assert (error.code, sentence(error)) == (
            "not-permitted",
            "You cannot act in the set web. Your access covers: name db*. Ask an administrator.",
        )


def test_an_unnamed_set_is_for_people_whose_right_is_not_limited(fleet: Fleet) -> None:
    fleet.enrol("stray", availability_set="")
    fleet.later(1)
    fleet.say("stray", listing(resources=["stray"], not_before=fleet.now + seconds(900)))
    error = refused(lambda: fleet.approve(by=limited(operator("olga"), ("name", "*"))))
    assert error.code == "not-permitted"
    assert "This set has no name yet" in sentence(error)
    assert fleet.approve(by=operator("otto")).state == "GRANTED"
