"""Simple rows, made without a walk: people, tokens, machines. States are reached by walking (`tests.factories`)."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import factory
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from factory.django import DjangoModelFactory

from fleet.domain.people import TOKEN_SCOPES
from fleet.domain.secrets import hash_of, new_secret, prefix_of
from fleet.models import ApiToken, AvailabilitySet, Machine


class PersonFactory(DjangoModelFactory[User]):
    """A person; the password is `harbour-` and the name. `groups` are names. One of this name stays the same row."""

    class Meta:
        model = User
        django_get_or_create = ("username",)
        skip_postgeneration_save = True

    username = factory.Sequence("person{}".format)
    password = factory.LazyAttribute(lambda person: make_password(f"harbour-{person.username}"))

    @factory.post_generation
    def groups(self, create: bool, names: Iterable[str] | None) -> None:
        if names is not None:
            self.groups.set([Group.objects.get_or_create(name=name)[0] for name in names])


class TokenFactory(DjangoModelFactory[ApiToken]):
    """A bearer token of all scopes that lasts for a day; `secret` is what its caller sends."""

    class Meta:
        model = ApiToken

    class Params:
        secret = factory.LazyFunction(lambda: new_secret("dd"))

    user = factory.SubFactory(PersonFactory)
    name = "tests"
    scopes = factory.LazyFunction(lambda: list(TOKEN_SCOPES))
    prefix = factory.LazyAttribute(lambda token: prefix_of(token.secret))
    secret_hash = factory.LazyAttribute(lambda token: hash_of(token.secret))
    created_at = factory.LazyFunction(lambda: datetime.now(UTC))
    expires_at = factory.LazyAttribute(lambda token: token.created_at + timedelta(days=1))


def bearer(user: User, *scopes: str, **columns: object) -> dict[str, str]:
    """Headers of a caller with a new token of this person."""
    secret = new_secret("dd")
    TokenFactory(secret=secret, user=user, scopes=list(scopes), **columns)
    return {"Authorization": f"Bearer {secret}"}


class SetFactory(DjangoModelFactory[AvailabilitySet]):
    """An availability set with a name of its own."""

    class Meta:
        model = AvailabilitySet

    kind = "availability_set"
    name = factory.Sequence("set{}".format)
    key = factory.LazyAttribute(lambda row: f"{row.kind}|||{row.name}".lower())
    created_at = factory.LazyFunction(lambda: datetime.now(UTC))


class MachineFactory(DjangoModelFactory[Machine]):
    """A machine that enrolled just now and was not heard yet, in a set of its own unless one is given."""

    class Meta:
        model = Machine

    vm_id = factory.LazyFunction(lambda: str(uuid4()))
    resource_name = factory.Sequence("vm{}".format)
    availability_set = factory.SubFactory(SetFactory)
    enrolled_at = factory.LazyFunction(lambda: datetime.now(UTC))
