"""Calls about users, service accounts, tokens, sessions and single sign-on."""

import json
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from fleet.accounts import queries, services, sessions, sign_on, tokens
from fleet.accounts.models import SignOnGrant
from fleet.accounts.queries import GrantRow, MappingTrial, PersonRow, ScopeRow, SessionRow, SignOnRow, TokenRow
from fleet.accounts.sign_on import MOST_GRANTS, ChangeGrantSerializer, GrantRequestSerializer
from fleet.accounts.tokens import MakeTokenSerializer
from fleet.api.authentication import person_of
from fleet.api.calls import Call
from fleet.api.problems import Problem
from fleet.api.repeats import SHOWN_ONCE
from fleet.api.schema import describe, detail_call, list_call, ordering
from fleet.api.shapes.derive import SHAPES, shape
from fleet.domain.people import GROUPS, Right
from fleet.domain.shapes import InApi
from fleet.domain.sign_on import LONGEST_SUBJECT
from fleet.operations import profile
from fleet.operations.inputs import RequestSerializer
from fleet.projections.pages import Page
from fleet.projections.people import rights

admin_call = partial(describe, needs="admin")
NAME = OpenApiParameter("q", str, description="Part of a name.")
WITH_ENDED = OpenApiParameter("ended", bool, description="`true`: also those that have ended.")
UNKNOWN = ("unknown-person",)
NO_TOKEN = ("not-found", "None of your tokens has this prefix.")

SHAPES[ScopeRow] = services.ScopeSerializer
shape(PersonRow, group=serializers.ChoiceField([*GROUPS, ""], help_text="The highest group; empty for a user in none."))


@dataclass(frozen=True, slots=True)
class EndedSessions:
    """Number of sessions that ended."""

    ended: Annotated[int, "How many have ended."]


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token and its secret."""

    row: Annotated[TokenRow, InApi.FLATTENED]
    token: Annotated[str, "Shown only in this answer."]


@dataclass(frozen=True, slots=True)
class NewPerson:
    """A user and the password that was generated."""

    person: Annotated[PersonRow, InApi.FLATTENED]
    password: Annotated[str, "Shown only in this answer; users change it on their own page."]


@dataclass(frozen=True, slots=True)
class Password:
    """The new password of a user."""

    username: str
    password: Annotated[str, "Shown only in this answer."]


class EndSessionsSerializer(RequestSerializer):
    person = serializers.CharField(
        required=False,
        max_length=150,
        help_text="All of this person's, by an admin. Left out: one's own, but this one.",
    )


class Me(Call, at="me/"):
    def me(self) -> queries.Me:
        """Return the caller."""
        token: Any = self.request.auth
        return queries.me(user_id=person_of(self.request).pk, token=token)

    @describe("get_me")
    def get(self) -> queries.Me:
        """Get the caller and their rights

        The user of the token or the session, their rights and settings, and the token's scopes. A quick way to check
        whether a token works.
        """
        return self.me()

    @describe("change_me", needs="read", body=profile.ChoicesSerializer)
    def patch(self) -> queries.Me:
        """Change your settings

        Omitted fields stay as they are. Settings affect pages only: this API states times in UTC, whatever `time_zone`
        is.
        """
        profile.choose(self.wanted, actor=self.actor, now=self.now)
        return self.me()


class Tokens(Call, at="tokens/"):
    @describe("list_tokens", parameters=[WITH_ENDED])
    def get(self) -> Page[TokenRow]:
        """List your tokens, newest first

        Without their secrets, which are not stored.
        """
        with_ended = self.request.query_params.get("ended", "false").lower() == "true"
        return queries.tokens(username=person_of(self.request).get_username(), with_ended=with_ended, **self.place)

    @describe("make_token", needs="read", location="tokens/{prefix}/", keyless=SHOWN_ONCE, body=MakeTokenSerializer)
    def post(self) -> NewToken | None:
        """Create a token for yourself

        Its secret is shown only in this answer. It has at most the rights of its user. If the call comes with a token,
        the new one has at most its scopes and addresses, and ends with it.
        """
        return new_token(self)


class ServiceTokens(Call, at="service-accounts/<str:username>/tokens/"):
    @admin_call(
        "make_service_token", location="tokens/{prefix}/", keyless=SHOWN_ONCE, body=MakeTokenSerializer, missing=UNKNOWN
    )
    def post(self, username: str) -> NewToken | None:
        """Create a token for a service account

        Its secret is shown only in this answer. It has at most the rights of the account.
        """
        return new_token(self, username)


def new_token(call: Call, username: str | None = None) -> NewToken | None:
    """Create a token for the caller, or for a service account."""
    row, plain = tokens.create_token(call.wanted, actor=call.actor, now=call.now, username=username)
    token = queries.token(prefix=row.prefix, username=row.user.get_username())
    return NewToken(token, plain) if token else None


class Token(Call, at="tokens/<str:prefix>/"):
    @describe("get_token", missing=NO_TOKEN)
    def get(self, prefix: str) -> TokenRow | None:
        """Get one of your tokens

        Without its secret: scopes, expiry and last use, also of a revoked token. Administrators also get tokens of
        service accounts.
        """
        own = queries.token(username=person_of(self.request).get_username(), prefix=prefix)
        scopes = getattr(self.request.auth, "scopes", ("admin",))
        may = "admin" in scopes and rights(self.request.user).may(Right.ADMINISTER)
        return own or (queries.token(prefix=prefix) if may else None)

    @describe("end_token", needs="read")
    def delete(self, prefix: str) -> None:
        """Revoke a token

        Calls with it are rejected from now on. Users revoke their own tokens; administrators revoke all. Tokens are
        identified by their `prefix`.
        """
        tokens.end_token(prefix=prefix, actor=self.actor, now=self.now)


class People(Call, at="people/"):
    @admin_call("list_people", parameters=[NAME, ordering("username")])
    def get(self) -> Page[PersonRow]:
        """List users by name

        All who have or had access, with their group and the sets in which they may act.
        """
        return queries.listing(q=self.request.query_params.get("q", ""), **self.place)

    @admin_call("make_person", location="people/{username}/", keyless=SHOWN_ONCE, body=services.MakePersonSerializer)
    def post(self) -> NewPerson | None:
        """Create a user

        The password is generated and shown only in this answer. The user changes it on their account page.
        """
        row, password = services.make_person(self.wanted, actor=self.actor, now=self.now)
        person = queries.detail(username=row.get_username())
        return NewPerson(person, password) if person else None


@detail_call("get_person", queries.detail, needs="admin")
class Person(Call, at="people/<str:username>/"):
    """Get a user

    Their group, the sets in which they may act, and how many tokens they have.
    """

    @admin_call("change_person", body=services.ChangePersonSerializer, missing=UNKNOWN)
    def patch(self, username: str) -> PersonRow | None:
        """Change the group, scopes and access of a user

        Omitted fields stay as they are. A user who loses access loses all sessions and tokens immediately. Refused for
        the last administrator.
        """
        services.change_person(self.wanted, username=username, actor=self.actor, now=self.now)
        return queries.detail(username=username)


class PersonPassword(Call, at="people/<str:username>/password/"):
    @admin_call("reset_password", keyless=SHOWN_ONCE)
    def post(self, username: str) -> Password:
        """Set a new password for a user

        It is generated and shown only in this answer. The old password and all sessions of the user end.
        """
        return Password(username, services.reset_password(username=username, actor=self.actor, now=self.now))


class ServiceAccounts(Call, at="service-accounts/"):
    """Service accounts. Their rights change as those of users do, at `people/`."""

    @admin_call("list_service_accounts")
    def get(self) -> Page[PersonRow]:
        """List service accounts by name

        With the owner and the purpose of each.
        """
        return queries.listing(services=True, **self.place)

    @admin_call("make_service_account", location="people/{username}/", body=services.MakeServiceSerializer)
    def post(self) -> PersonRow | None:
        """Create a service account

        It never has a password: it authenticates by tokens, which administrators create.
        """
        row = services.make_service(self.wanted, actor=self.actor, now=self.now)
        return queries.detail(username=row.user.get_username())


class OneServiceAccount(Call, at="service-accounts/<str:username>/"):
    @admin_call("change_service_account", body=services.ChangeServiceSerializer, missing=UNKNOWN)
    def patch(self, username: str) -> PersonRow | None:
        """Change the owner and purpose of a service account

        Omitted fields stay as they are.
        """
        services.change_service(self.wanted, username=username, actor=self.actor, now=self.now)
        return queries.detail(username=username)


class Sessions(Call, at="sessions/"):
    def page(self, username: str) -> Page[SessionRow]:
        """Return the sessions of a user."""
        return queries.session_rows(username=username, session_key=key_of(self.request), now=self.now, **self.place)

    @describe("list_sessions")
    def get(self) -> Page[SessionRow]:
        """List your browser sessions, last seen first

        The browser, address and start of each. Calls with a token create no session.
        """
        return self.page(person_of(self.request).get_username())


class PersonSessions(Sessions, at="people/<str:username>/sessions/"):
    @admin_call("list_sessions_of_person", missing=UNKNOWN)
    def get(self, username: str) -> Page[SessionRow]:
        """List the browser sessions of a user

        The same list as that user gets.
        """
        if queries.detail(username=username) is None:
            raise Problem(*UNKNOWN)
        return self.page(username)


class Session(Call, at="sessions/<int:session_id>/"):
    @describe("end_session", needs="read")
    def delete(self, session_id: int) -> None:
        """End a browser session

        Its next request is rejected, and its streams end. Users end their own sessions; administrators end all.
        """
        sessions.end(actor=self.actor, session_id=session_id, now=self.now)


class EndSessions(Call, at="sessions/end/"):
    @describe("end_sessions", needs="read", problems=("unknown-person",), body=EndSessionsSerializer)
    def post(self) -> EndedSessions:
        """End all of your other sessions, or all sessions of a user

        A call with a token ends all of your sessions, because a token is no session. Only administrators may name
        another user.
        """
        username = self.wanted.get("person")
        but = key_of(self.request) if username is None else ""
        return EndedSessions(sessions.end_all(actor=self.actor, username=username, but=but, now=self.now))


def key_of(request: Request) -> str:
    """Return the key of the session of a call; empty for a token."""
    return str(request.session.session_key or "") if request.auth is None else ""


# Single sign-on, for admins: the mapping with its dry run, and whose the accounts at the provider are.

NO_LINE = ("not-found", "There is no such line in the mapping.")
NO_ACCOUNT = ("not-found", "There is no such account.")

shape(GrantRow, group=serializers.ChoiceField(GROUPS, help_text="The group that the role or group gives here."))
shape(MappingTrial, name="MappingDryRun")


class MappingDryRunRequestSerializer(RequestSerializer):
    mapping = serializers.ListField(
        child=GrantRequestSerializer(),
        required=False,
        max_length=MOST_GRANTS,
        help_text="Lines in the place of those that count.",
    )
    claims = serializers.DictField(required=False, help_text="Claims of a token. Nothing of them is kept.")


class LinkSerializer(RequestSerializer):
    username = serializers.CharField(max_length=150, help_text="A person here.")
    subject = serializers.CharField(
        max_length=LONGEST_SUBJECT, help_text="The account's object id at Entra ID; elsewhere its `sub`."
    )


@list_call("list_mapping", queries.mapping, needs="admin")
class Mapping(Call, at="sign-on/mapping/"):
    """List the mapping of roles and groups

    Each line gives users with a role or group at the provider a group and scopes here. The highest group counts.
    """

    @admin_call("make_mapping_line", location="sign-on/mapping/{id}/", body=GrantRequestSerializer)
    def post(self) -> GrantRow | None:
        """Map a role or group

        It applies from the next request on, also to known accounts.
        """
        row = sign_on.create(self.wanted, actor=self.actor, now=self.now)
        return queries.grant(row.pk)


@detail_call("get_mapping_line", queries.grant, needs="admin", missing=NO_LINE)
class MappingLine(Call, at="sign-on/mapping/<int:grant_id>/"):
    """Get a line of the mapping

    A role or group at the provider, with its group and scopes here.
    """

    @admin_call("change_mapping_line", body=ChangeGrantSerializer, missing=NO_LINE)
    def patch(self, grant_id: int) -> GrantRow | None:
        """Change a line of the mapping

        What is omitted stays as it is. The last administrator stays one.
        """
        sign_on.change(self.wanted, actor=self.actor, grant_id=grant_id, now=self.now)
        return queries.grant(grant_id)

    @admin_call("delete_mapping_line", problems=NO_LINE[:1])
    def delete(self, grant_id: int) -> None:
        """Delete a line of the mapping

        Users without another mapping lose access immediately. The last administrator stays one.
        """
        sign_on.delete(actor=self.actor, grant_id=grant_id, now=self.now)


class MappingDryRun(Call, at="sign-on/dry-run/"):
    @admin_call("try_mapping", body=MappingDryRunRequestSerializer)
    def post(self) -> MappingTrial:
        """Try a mapping

        What another mapping would change, or which rights the claims of a token give. Nothing is written.
        """
        lines: Any = self.wanted.get("mapping")
        grants = None if lines is None else [SignOnGrant(**line).grant for line in lines]
        claims = self.wanted.get("claims")
        return queries.dry_run(grants, pasted="" if claims is None else json.dumps(claims))


@list_call("list_sign_on_accounts", queries.accounts, needs="admin")
class SignOnAccounts(Call, at="sign-on/accounts/"):
    """List accounts at the provider

    Newest first, also those that are linked to no user.
    """

    @admin_call(
        "link_sign_on_account", location="sign-on/accounts/{id}/", body=LinkSerializer, problems=("unknown-person",)
    )
    def post(self) -> SignOnRow | None:
        """Link an account at the provider to a user

        Before or after its first sign-in. The mapping decides its rights from the next sign-in on.
        """
        return queries.account(sign_on.link(actor=self.actor, now=self.now, **self.wanted).pk)


@detail_call("get_sign_on_account", queries.account, needs="admin", missing=NO_ACCOUNT)
class SignOnAccount(Call, at="sign-on/accounts/<int:sign_on_id>/"):
    """Get an account at the provider

    Its user here, its roles or groups, and when the provider last confirmed it.
    """

    @admin_call("unlink_sign_on_account", problems=NO_ACCOUNT[:1])
    def delete(self, sign_on_id: int) -> None:
        """Unlink an account at the provider

        Its sessions end, and the rights that the mapping gave.
        """
        sign_on.unlink(actor=self.actor, sign_on_id=sign_on_id, now=self.now)
