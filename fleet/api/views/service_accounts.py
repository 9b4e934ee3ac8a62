"""Service accounts: accounts that are no people. What they may is changed as of people, at `people/`."""

from datetime import timedelta
from typing import Any

from fleet.api.calls import Call
from fleet.api.describe import describe
from fleet.api.repeats import ONE_SIGHT
from fleet.api.shapes.people import (
    ChangeServiceSerializer,
    MakeServiceSerializer,
    MakeTokenSerializer,
    NewToken,
    NewTokenShape,
    PersonShape,
)
from fleet.api.views.people import UNKNOWN, pairs
from fleet.operations.people import service_accounts
from fleet.projections import people
from fleet.projections.pages import Page


class ServiceAccounts(Call):
    @describe(
        "list_service_accounts",
        "Service accounts by name",
        "With who answers for each, and what it is for.",
        needs="admin",
        page=PersonShape,
    )
    def get(self) -> Page[people.PersonRow]:
        return people.listing(services=True, **self.place)

    @describe(
        "make_service_account",
        "A new service account",
        "It has no password and never gets one: it comes in by tokens, which admins make.",
        needs="admin",
        answer=PersonShape,
        status=201,
        location="people/{username}/",
        body=MakeServiceSerializer,
    )
    def post(self) -> people.PersonRow | None:
        scopes = pairs(self.wanted.pop("scopes"))
        row = service_accounts.make(actor=self.actor, now=self.now, scopes=scopes, **self.wanted)
        return people.detail(username=row.user.get_username())


class OneServiceAccount(Call):
    @describe(
        "change_service_account",
        "Who answers for a service account, and what it is for",
        "What is left out stays as it is.",
        needs="admin",
        answer=PersonShape,
        body=ChangeServiceSerializer,
        missing=UNKNOWN,
    )
    def patch(self, username: str) -> people.PersonRow | None:
        service_accounts.change(username=username, actor=self.actor, now=self.now, **self.wanted)
        return people.detail(username=username)


class ServiceTokens(Call):
    @describe(
        "make_service_token",
        "A token for a service account, shown this once",
        "It may no more than the account, and counts no longer and from nowhere else than the token that asks for it.",
        needs="admin",
        answer=NewTokenShape,
        status=201,
        location="tokens/{prefix}/",
        keyless=ONE_SIGHT,
        body=MakeTokenSerializer,
        missing=UNKNOWN,
    )
    def post(self, username: str) -> NewToken | None:
        carried: Any = self.request.auth
        row, plain = service_accounts.make_token(
            username=username,
            name=self.wanted["name"],
            scopes=self.wanted["scopes"],
            expires_in=timedelta(seconds=self.wanted["expires_in_seconds"]),
            allowed_from=self.wanted["allowed_from"],
            actor=self.actor,
            now=self.now,
            carried=carried,
        )
        found = people.token_of_service(prefix=row.prefix)
        return NewToken(found, plain) if found else None
