"""Oneself, one's tokens, and for admins everybody."""

from datetime import timedelta
from typing import Any

from drf_spectacular.utils import OpenApiParameter

from fleet.api.authentication import person_of
from fleet.api.calls import Call
from fleet.api.describe import describe, ordering
from fleet.api.repeats import ONE_SIGHT
from fleet.api.shapes.people import (
    ChangePersonSerializer,
    ChoicesSerializer,
    MakePersonSerializer,
    MakeTokenSerializer,
    MeShape,
    NewPerson,
    NewPersonShape,
    NewToken,
    NewTokenShape,
    Password,
    PasswordShape,
    PersonShape,
    TokenShape,
)
from fleet.domain.people import Right
from fleet.operations.people import accounts, profiles, tokens
from fleet.projections import people
from fleet.projections.pages import Page

NAME = OpenApiParameter("q", str, description="Part of a name.")
WITH_ENDED = OpenApiParameter("ended", bool, description="`true`: those that were ended, too.")
UNKNOWN = ("unknown-person",)
NO_TOKEN = ("not-found", "None of your tokens begins like this.")


class Me(Call):
    def me(self) -> people.Me:
        """Who calls."""
        token: Any = self.request.auth
        return people.me(user_id=person_of(self.request).pk, token=token)

    @describe(
        "get_me",
        "Who calls, and what they may",
        (
            "The person behind the token or the session, their rights and settings, and the token's scopes. A"
            " quick way to see whether a token works."
        ),
        answer=MeShape,
    )
    def get(self) -> people.Me:
        return self.me()

    @describe(
        "change_me",
        "One's own settings",
        (
            "What is left out stays as it is. Settings change pages alone: answers of this API are in UTC"
            " whatever `time_zone` says."
        ),
        needs="read",
        answer=MeShape,
        body=ChoicesSerializer,
    )
    def patch(self) -> people.Me:
        profiles.choose(actor=self.actor, now=self.now, **self.wanted)
        return self.me()


class Tokens(Call):
    @describe(
        "list_tokens",
        "One's own tokens, newest first",
        ("The secrets are not kept and cannot be shown."),
        page=TokenShape,
        parameters=[WITH_ENDED],
    )
    def get(self) -> Page[people.TokenRow]:
        with_ended = self.request.query_params.get("ended", "false").lower() == "true"
        username = person_of(self.request).get_username()
        return people.page_of_tokens(username=username, with_ended=with_ended, **self.place)

    @describe(
        "make_token",
        "A token for oneself, shown this once",
        "It may no more than its person; of the token that asks for it no more, no longer, and from nowhere else.",
        needs="read",
        answer=NewTokenShape,
        status=201,
        location="tokens/{prefix}/",
        keyless=ONE_SIGHT,
        body=MakeTokenSerializer,
    )
    def post(self) -> NewToken:
        carried: Any = self.request.auth
        row, plain = tokens.make_own_token(
            actor=self.actor,
            name=self.wanted["name"],
            scopes=self.wanted["scopes"],
            expires_in=timedelta(seconds=self.wanted["expires_in_seconds"]),
            allowed_from=self.wanted["allowed_from"],
            now=self.now,
            carried=carried,
        )
        rows = people.tokens(username=row.user.get_username())
        return NewToken(next(each for each in rows if each.prefix == row.prefix), plain)


class Token(Call):
    @describe(
        "get_token",
        "One of one's own tokens; for admins, of a service account's, too",
        "Without its secret: what it may, until when, and when it was last used. Also one that was ended.",
        answer=TokenShape,
        missing=NO_TOKEN,
    )
    def get(self, prefix: str) -> people.TokenRow | None:
        own = people.token(username=person_of(self.request).get_username(), prefix=prefix)
        scopes = getattr(self.request.auth, "scopes", ("admin",))
        may = "admin" in scopes and people.rights(self.request.user).may(Right.ADMINISTER)
        return own or (people.token_of_service(prefix=prefix) if may else None)

    @describe(
        "end_token",
        "End a token at once: one's own, and for admins anybody's",
        ("Calls with it are refused from now on. Tokens are named by their `prefix`."),
        needs="read",
    )
    def delete(self, prefix: str) -> None:
        carried: Any = self.request.auth
        tokens.end_token(prefix=prefix, actor=self.actor, now=self.now, carried=carried)


class People(Call):
    @describe(
        "list_people",
        "People by name",
        ("Everybody who may come in or might once, with their group and the sets in which they may act."),
        needs="admin",
        page=PersonShape,
        parameters=[NAME, ordering("username")],
    )
    def get(self) -> Page[people.PersonRow]:
        return people.listing(q=self.request.query_params.get("q", ""), **self.place)

    @describe(
        "make_person",
        "A new person; the password is shown this once",
        ("The password is made up and shown this once; they change it on their own page."),
        needs="admin",
        answer=NewPersonShape,
        status=201,
        location="people/{username}/",
        keyless=ONE_SIGHT,
        body=MakePersonSerializer,
    )
    def post(self) -> NewPerson | None:
        row, password = accounts.make_person(
            username=self.wanted["username"],
            group=self.wanted["group"],
            scopes=pairs(self.wanted["scopes"]),
            actor=self.actor,
            now=self.now,
        )
        found = people.detail(username=row.get_username())
        return NewPerson(found, password) if found else None


class Person(Call):
    @describe(
        "get_person",
        "One person",
        ("Their group, the sets in which they may act, and how many tokens they have."),
        needs="admin",
        answer=PersonShape,
        missing=UNKNOWN,
    )
    def get(self, username: str) -> people.PersonRow | None:
        return people.detail(username=username)

    @describe(
        "change_person",
        "Somebody's group and scopes, and whether they may come in",
        (
            "What is left out stays as it is. Whoever may not come in any more loses their sessions and tokens"
            " at once. The last admin stays one."
        ),
        needs="admin",
        answer=PersonShape,
        body=ChangePersonSerializer,
        missing=UNKNOWN,
    )
    def patch(self, username: str) -> people.PersonRow | None:
        if "scopes" in self.wanted:
            self.wanted["scopes"] = pairs(self.wanted["scopes"])
        accounts.change_person(username=username, actor=self.actor, now=self.now, **self.wanted)
        return people.detail(username=username)


class PersonPassword(Call):
    @describe(
        "reset_password",
        "A new password for somebody who lost theirs, shown this once",
        ("The old one ends, and with it every session of theirs. The new one is made up."),
        needs="admin",
        answer=PasswordShape,
        keyless=ONE_SIGHT,
    )
    def post(self, username: str) -> Password:
        return Password(username, accounts.reset_password(username=username, actor=self.actor, now=self.now))


def pairs(scopes: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(scope["kind"], scope["pattern"]) for scope in scopes]
