"""Single sign-on, for admins: the mapping with its dry run, and whose the accounts at the provider are."""

import json
from typing import Any

from fleet.accounts import sign_on as changing
from fleet.accounts import sign_on as linking
from fleet.accounts import sign_on_queries
from fleet.accounts.api import pairs
from fleet.accounts.serializers import (
    ChangeGrantSerializer,
    GrantRequestSerializer,
    GrantShape,
    LinkSerializer,
    MappingDryRunRequestSerializer,
    MappingDryRunShape,
    SignOnShape,
)
from fleet.api.calls import Call
from fleet.api.schema import describe
from fleet.domain.sign_on import Grant
from fleet.projections.pages import Page

UNKNOWN = ("not-found", "There is no such line in the mapping.")
UNKNOWN_ACCOUNT = ("not-found", "There is no such account.")


class Mapping(Call):
    @describe(
        "list_mapping",
        "What roles and groups of the provider are here",
        "Each line gives whoever has a role or group there a group and scopes here. Of several the highest counts.",
        needs="admin",
        page=GrantShape,
    )
    def get(self) -> Page[sign_on_queries.GrantRow]:
        return sign_on_queries.page_of_mapping(**self.place)

    @describe(
        "make_mapping_line",
        "Map a role or group",
        "It counts from the next request on, for whoever is known already, too.",
        needs="admin",
        answer=GrantShape,
        status=201,
        location="sign-on/mapping/{id}/",
        body=GrantRequestSerializer,
    )
    def post(self) -> sign_on_queries.GrantRow | None:
        row = changing.create(actor=self.actor, now=self.now, value=self.wanted["value"], **said(self.wanted))
        return sign_on_queries.grant(row.pk)


class MappingLine(Call):
    @describe(
        "get_mapping_line",
        "One line of the mapping",
        "A role or group there, and what it is here.",
        needs="admin",
        answer=GrantShape,
        missing=UNKNOWN,
    )
    def get(self, grant_id: int) -> sign_on_queries.GrantRow | None:
        return sign_on_queries.grant(grant_id)

    @describe(
        "change_mapping_line",
        "Another group and other scopes for a role or group",
        "What is left out stays as it is. The last admin stays one.",
        needs="admin",
        answer=GrantShape,
        body=ChangeGrantSerializer,
        missing=UNKNOWN,
    )
    def patch(self, grant_id: int) -> sign_on_queries.GrantRow | None:
        group, scopes = self.wanted.get("group"), self.wanted.get("scopes")
        places = None if scopes is None else pairs(scopes)
        changing.change(actor=self.actor, grant_id=grant_id, group=group, scopes=places, now=self.now)
        return sign_on_queries.grant(grant_id)

    @describe(
        "delete_mapping_line",
        "Take a role or group out of the mapping",
        "Whoever has nothing else is out at once. The last admin stays one.",
        needs="admin",
        problems=UNKNOWN[:1],
    )
    def delete(self, grant_id: int) -> None:
        changing.delete(actor=self.actor, grant_id=grant_id, now=self.now)


class MappingDryRun(Call):
    @describe(
        "try_mapping",
        "Who would be what",
        "By another mapping, or for the claims of a token. Nothing is written.",
        needs="admin",
        answer=MappingDryRunShape,
        body=MappingDryRunRequestSerializer,
    )
    def post(self) -> sign_on_queries.MappingTrial:
        lines: Any = self.wanted.get("mapping")
        grants = None if lines is None else [Grant(one["value"], **said(one)) for one in lines]
        claims = self.wanted.get("claims")
        return sign_on_queries.dry_run(grants, pasted="" if claims is None else json.dumps(claims))


class SignOnAccounts(Call):
    @describe(
        "list_sign_on_accounts",
        "Accounts at the provider, and whose they are",
        "The newest first, also those that nobody has let in.",
        needs="admin",
        page=SignOnShape,
    )
    def get(self) -> Page[sign_on_queries.SignOnRow]:
        return sign_on_queries.page_of_accounts(**self.place)

    @describe(
        "link_sign_on_account",
        "Say whose an account at the provider is",
        "Before or after it first came. From its next login on the mapping says what that person may.",
        needs="admin",
        answer=SignOnShape,
        status=201,
        location="sign-on/accounts/{id}/",
        body=LinkSerializer,
        problems=("unknown-person",),
    )
    def post(self) -> sign_on_queries.SignOnRow | None:
        return sign_on_queries.account(linking.link(actor=self.actor, now=self.now, **self.wanted).pk)


class SignOnAccount(Call):
    @describe(
        "get_sign_on_account",
        "One account at the provider",
        "Whose it is, its roles or groups, and when the provider last said yes.",
        needs="admin",
        answer=SignOnShape,
        missing=UNKNOWN_ACCOUNT,
    )
    def get(self, sign_on_id: int) -> sign_on_queries.SignOnRow | None:
        return sign_on_queries.account(sign_on_id)

    @describe(
        "unlink_sign_on_account",
        "An account at the provider is nobody's any more",
        "Its sessions end, and what the mapping gave.",
        needs="admin",
        problems=UNKNOWN_ACCOUNT[:1],
    )
    def delete(self, sign_on_id: int) -> None:
        linking.unlink(actor=self.actor, sign_on_id=sign_on_id, now=self.now)


def said(wanted: dict[str, Any]) -> dict[str, Any]:
    return {"group": wanted["group"], "scopes": tuple(pairs(wanted["scopes"]))}
