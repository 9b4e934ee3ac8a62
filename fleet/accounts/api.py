"""Oneself, one's tokens, and for admins everybody."""

from datetime import timedelta
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from fleet.accounts import queries as account_queries
from fleet.accounts import service_accounts, tokens
from fleet.accounts import services as account_services
from fleet.accounts import sessions as ending
from fleet.accounts.queries import SessionRow, session_rows
from fleet.accounts.serializers import (
    ChangePersonSerializer,
    ChangeServiceSerializer,
    ChoicesSerializer,
    EndedSessions,
    EndedSessionsShape,
    EndSessionsSerializer,
    MakePersonSerializer,
    MakeServiceSerializer,
    MakeTokenSerializer,
    MeShape,
    NewPerson,
    NewPersonShape,
    NewToken,
    NewTokenShape,
    Password,
    PasswordShape,
    PersonShape,
    SessionShape,
    TokenShape,
)
from fleet.api.authentication import person_of
from fleet.api.calls import Call
from fleet.api.problems import Problem
from fleet.api.repeats import ONE_SIGHT
from fleet.api.schema import describe, ordering
from fleet.domain.people import Right
from fleet.operations import profile
from fleet.projections.pages import Page
from fleet.projections.people import rights

NAME = OpenApiParameter("q", str, description="Part of a name.")
WITH_ENDED = OpenApiParameter("ended", bool, description="`true`: those that were ended, too.")
UNKNOWN = ("unknown-person",)
NO_TOKEN = ("not-found", "None of your tokens begins like this.")


class Me(Call):
    def me(self) -> account_queries.Me:
        """Who calls."""
        token: Any = self.request.auth
        return account_queries.me(user_id=person_of(self.request).pk, token=token)

    @describe(
        "get_me",
        "Who calls, and what they may",
        (
            "The person behind the token or the session, their rights and settings, and the token's scopes. A"
            " quick way to see whether a token works."
        ),
        answer=MeShape,
    )
    def get(self) -> account_queries.Me:
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
    def patch(self) -> account_queries.Me:
        profile.choose(actor=self.actor, now=self.now, **self.wanted)
        return self.me()


class Tokens(Call):
    @describe(
        "list_tokens",
        "One's own tokens, newest first",
        ("The secrets are not kept and cannot be shown."),
        page=TokenShape,
        parameters=[WITH_ENDED],
    )
    def get(self) -> Page[account_queries.TokenRow]:
        with_ended = self.request.query_params.get("ended", "false").lower() == "true"
        username = person_of(self.request).get_username()
        return account_queries.page_of_tokens(username=username, with_ended=with_ended, **self.place)

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
        rows = account_queries.tokens(username=row.user.get_username())
        return NewToken(next(each for each in rows if each.prefix == row.prefix), plain)


class Token(Call):
    @describe(
        "get_token",
        "One of one's own tokens; for admins, of a service account's, too",
        "Without its secret: what it may, until when, and when it was last used. Also one that was ended.",
        answer=TokenShape,
        missing=NO_TOKEN,
    )
    def get(self, prefix: str) -> account_queries.TokenRow | None:
        own = account_queries.token(username=person_of(self.request).get_username(), prefix=prefix)
        scopes = getattr(self.request.auth, "scopes", ("admin",))
        may = "admin" in scopes and rights(self.request.user).may(Right.ADMINISTER)
        return own or (account_queries.token_of_service(prefix=prefix) if may else None)

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
    def get(self) -> Page[account_queries.PersonRow]:
        return account_queries.listing(q=self.request.query_params.get("q", ""), **self.place)

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
        row, password = account_services.make_person(
            username=self.wanted["username"],
            group=self.wanted["group"],
            scopes=pairs(self.wanted["scopes"]),
            actor=self.actor,
            now=self.now,
        )
        found = account_queries.detail(username=row.get_username())
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
    def get(self, username: str) -> account_queries.PersonRow | None:
        return account_queries.detail(username=username)

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
    def patch(self, username: str) -> account_queries.PersonRow | None:
        if "scopes" in self.wanted:
            self.wanted["scopes"] = pairs(self.wanted["scopes"])
        account_services.change_person(username=username, actor=self.actor, now=self.now, **self.wanted)
        return account_queries.detail(username=username)


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
        return Password(username, account_services.reset_password(username=username, actor=self.actor, now=self.now))


def pairs(scopes: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(scope["kind"], scope["pattern"]) for scope in scopes]


# Service accounts: accounts that are no people. What they may is changed as of people, at `people/`.


class ServiceAccounts(Call):
    @describe(
        "list_service_accounts",
        "Service accounts by name",
        "With who answers for each, and what it is for.",
        needs="admin",
        page=PersonShape,
    )
    def get(self) -> Page[account_queries.PersonRow]:
        return account_queries.listing(services=True, **self.place)

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
    def post(self) -> account_queries.PersonRow | None:
        scopes = pairs(self.wanted.pop("scopes"))
        row = service_accounts.make(actor=self.actor, now=self.now, scopes=scopes, **self.wanted)
        return account_queries.detail(username=row.user.get_username())


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
    def patch(self, username: str) -> account_queries.PersonRow | None:
        service_accounts.change(username=username, actor=self.actor, now=self.now, **self.wanted)
        return account_queries.detail(username=username)


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
        found = account_queries.token_of_service(prefix=row.prefix)
        return NewToken(found, plain) if found else None


# Sessions of people in browsers: one's own, and for admins those of anybody.

UNKNOWN = ("unknown-person",)


class Sessions(Call):
    @describe(
        "list_sessions",
        "One's own sessions in browsers, those first that were seen last",
        "Where one is logged in: in which browser, from where, since when. A call with a token is none of them.",
        page=SessionShape,
    )
    def get(self) -> Page[SessionRow]:
        username = person_of(self.request).get_username()
        return session_rows(username=username, session_key=key_of(self.request), now=self.now, **self.place)


class Session(Call):
    @describe(
        "end_session",
        "End a session at once: one's own, and for admins anybody's",
        "Its next request is refused, and its streams end.",
        needs="read",
    )
    def delete(self, session_id: int) -> None:
        carried: Any = self.request.auth
        ending.end(actor=self.actor, session_id=session_id, now=self.now, carried=carried)


class EndSessions(Call):
    @describe(
        "end_sessions",
        "End all of one's own sessions but this one; or all of somebody's, for admins",
        "By a token, which is no session, all of one's own end.",
        needs="read",
        problems=("unknown-person",),
        answer=EndedSessionsShape,
        body=EndSessionsSerializer,
    )
    def post(self) -> EndedSessions:
        carried: Any = self.request.auth
        username = self.wanted.get("person")
        if username is not None:
            found = ending.end_all(actor=self.actor, username=username, now=self.now, carried=carried)
        else:
            key = key_of(self.request)
            found = ending.end_others(actor=self.actor, session_key=key, now=self.now, carried=carried)
        return EndedSessions(found)


class PersonSessions(Call):
    @describe(
        "list_sessions_of_person",
        "Somebody's sessions in browsers, for admins",
        "As that person sees them.",
        needs="admin",
        page=SessionShape,
        missing=UNKNOWN,
    )
    def get(self, username: str) -> Page[SessionRow]:
        if account_queries.detail(username=username) is None:
            raise Problem(*UNKNOWN)
        return session_rows(username=username, session_key=key_of(self.request), now=self.now, **self.place)


def key_of(request: Request) -> str:
    """The key of the session that the call came with; empty for a token."""
    return str(request.session.session_key or "") if request.auth is None else ""
