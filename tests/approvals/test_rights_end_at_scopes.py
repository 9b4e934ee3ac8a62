"""Scoped users: they approve only in sets within their scopes, and never in an unnamed set. Other acts are in
`tests/access`.
"""

import pytest
from django.contrib.auth.models import User

from fleet.models import AvailabilitySet, Scope
from tests.approvals.asking import refused
from tests.factories import Fleet, announced, listing, operator, seconds
from tests.words import code_of

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
    assert (error.code, error.reason.code) == ("not-permitted", "scope-ends-before")
    assert error.reason.values["scopes"] == [list(scope)]


def test_an_unnamed_set_is_for_people_whose_right_is_not_limited(fleet: Fleet) -> None:
    fleet.enrol("stray", availability_set="")
    fleet.later(1)
    fleet.say("stray", listing(resources=["stray"], not_before=fleet.now + seconds(900)))
    assert code_of(refused(lambda: fleet.approve(by=limited(operator("olga"), ("name", "*"))))) == "scope-unnamed-set"
    assert fleet.approve(by=operator("otto")).state == "GRANTED"
