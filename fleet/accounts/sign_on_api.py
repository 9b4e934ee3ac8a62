"""Single sign-on, for admins: the mapping with its dry run, and whose the accounts at the provider are."""

import json
from typing import Any

from fleet.accounts import sign_on, sign_on_queries
from fleet.accounts.api import admin_call
from fleet.accounts.serializers import (
    ChangeGrantSerializer,
    GrantRequestSerializer,
    LinkSerializer,
    MappingDryRunRequestSerializer,
)
from fleet.api.calls import Call
from fleet.api.schema import list_call
from fleet.domain.sign_on import Grant

UNKNOWN = ("not-found", "There is no such line in the mapping.")
UNKNOWN_ACCOUNT = ("not-found", "There is no such account.")


@list_call("list_mapping", sign_on_queries.mapping, needs="admin")
class Mapping(Call):
    """List the mapping of roles and groups

    Each line gives users with a role or group at the provider a group and scopes here. The highest group counts.
    """

    @admin_call("make_mapping_line", location="sign-on/mapping/{id}/", body=GrantRequestSerializer)
    def post(self) -> sign_on_queries.GrantRow | None:
        """Map a role or group

        It applies from the next request on, also to known accounts.
        """
        row = sign_on.create(actor=self.actor, now=self.now, **self.wanted)
        return sign_on_queries.grant(row.pk)


class MappingLine(Call):
    @admin_call("get_mapping_line", missing=UNKNOWN)
    def get(self, grant_id: int) -> sign_on_queries.GrantRow | None:
        """Get a line of the mapping

        A role or group at the provider, with its group and scopes here.
        """
        return sign_on_queries.grant(grant_id)

    @admin_call("change_mapping_line", body=ChangeGrantSerializer, missing=UNKNOWN)
    def patch(self, grant_id: int) -> sign_on_queries.GrantRow | None:
        """Change a line of the mapping

        What is omitted stays as it is. The last administrator stays one.
        """
        sign_on.change(actor=self.actor, grant_id=grant_id, now=self.now, **self.wanted)
        return sign_on_queries.grant(grant_id)

    @admin_call("delete_mapping_line", problems=UNKNOWN[:1])
    def delete(self, grant_id: int) -> None:
        """Delete a line of the mapping

        Users without another mapping lose access immediately. The last administrator stays one.
        """
        sign_on.delete(actor=self.actor, grant_id=grant_id, now=self.now)


class MappingDryRun(Call):
    @admin_call("try_mapping", body=MappingDryRunRequestSerializer)
    def post(self) -> sign_on_queries.MappingTrial:
        """Try a mapping

        What another mapping would change, or which rights the claims of a token give. Nothing is written.
        """
        lines: Any = self.wanted.get("mapping")
        grants = None if lines is None else [Grant(one["value"], one["group"], tuple(one["scopes"])) for one in lines]
        claims = self.wanted.get("claims")
        return sign_on_queries.dry_run(grants, pasted="" if claims is None else json.dumps(claims))


@list_call("list_sign_on_accounts", sign_on_queries.page_of_accounts, needs="admin")
class SignOnAccounts(Call):
    """List accounts at the provider

    Newest first, also those that are linked to no user.
    """

    @admin_call(
        "link_sign_on_account",
        location="sign-on/accounts/{id}/",
        body=LinkSerializer,
        problems=("unknown-person",),
    )
    def post(self) -> sign_on_queries.SignOnRow | None:
        """Link an account at the provider to a user

        Before or after its first sign-in. The mapping decides its rights from the next sign-in on.
        """
        return sign_on_queries.account(sign_on.link(actor=self.actor, now=self.now, **self.wanted).pk)


class SignOnAccount(Call):
    @admin_call("get_sign_on_account", missing=UNKNOWN_ACCOUNT)
    def get(self, sign_on_id: int) -> sign_on_queries.SignOnRow | None:
        """Get an account at the provider

        Its user here, its roles or groups, and when the provider last confirmed it.
        """
        return sign_on_queries.account(sign_on_id)

    @admin_call("unlink_sign_on_account", problems=UNKNOWN_ACCOUNT[:1])
    def delete(self, sign_on_id: int) -> None:
        """Unlink an account at the provider

        Its sessions end, and the rights that the mapping gave.
        """
        sign_on.unlink(actor=self.actor, sign_on_id=sign_on_id, now=self.now)
