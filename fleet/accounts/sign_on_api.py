"""Single sign-on, for admins: the mapping with its dry run, and whose the accounts at the provider are."""

import json
from typing import Any

from rest_framework import serializers

from fleet.accounts import sign_on, sign_on_queries
from fleet.accounts.api import admin_call
from fleet.accounts.models import SignOnGrant
from fleet.accounts.sign_on import MOST_GRANTS, ChangeGrantSerializer, GrantRequestSerializer
from fleet.accounts.sign_on_queries import GrantRow, MappingTrial, SignOnRow, WouldBe
from fleet.api.calls import Call
from fleet.api.schema import detail_call, list_call
from fleet.api.shapes.derive import shape
from fleet.domain.people import GROUPS
from fleet.domain.sign_on import LONGEST_SUBJECT
from fleet.operations.inputs import RequestSerializer

UNKNOWN = ("not-found", "There is no such line in the mapping.")
UNKNOWN_ACCOUNT = ("not-found", "There is no such account.")

shape(GrantRow, group=serializers.ChoiceField(GROUPS, help_text="The group that the role or group gives here."))
shape(SignOnRow)
shape(WouldBe)
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


@list_call("list_mapping", sign_on_queries.mapping, needs="admin")
class Mapping(Call):
    """List the mapping of roles and groups

    Each line gives users with a role or group at the provider a group and scopes here. The highest group counts.
    """

    @admin_call("make_mapping_line", location="sign-on/mapping/{id}/", body=GrantRequestSerializer)
    def post(self) -> GrantRow | None:
        """Map a role or group

        It applies from the next request on, also to known accounts.
        """
        row = sign_on.create(self.wanted, actor=self.actor, now=self.now)
        return sign_on_queries.grant(row.pk)


@detail_call("get_mapping_line", sign_on_queries.grant, needs="admin", missing=UNKNOWN)
class MappingLine(Call):
    """Get a line of the mapping

    A role or group at the provider, with its group and scopes here.
    """

    @admin_call("change_mapping_line", body=ChangeGrantSerializer, missing=UNKNOWN)
    def patch(self, grant_id: int) -> GrantRow | None:
        """Change a line of the mapping

        What is omitted stays as it is. The last administrator stays one.
        """
        sign_on.change(self.wanted, actor=self.actor, grant_id=grant_id, now=self.now)
        return sign_on_queries.grant(grant_id)

    @admin_call("delete_mapping_line", problems=UNKNOWN[:1])
    def delete(self, grant_id: int) -> None:
        """Delete a line of the mapping

        Users without another mapping lose access immediately. The last administrator stays one.
        """
        sign_on.delete(actor=self.actor, grant_id=grant_id, now=self.now)


class MappingDryRun(Call):
    @admin_call("try_mapping", body=MappingDryRunRequestSerializer)
    def post(self) -> MappingTrial:
        """Try a mapping

        What another mapping would change, or which rights the claims of a token give. Nothing is written.
        """
        lines: Any = self.wanted.get("mapping")
        grants = None if lines is None else [SignOnGrant(**line).grant for line in lines]
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
    def post(self) -> SignOnRow | None:
        """Link an account at the provider to a user

        Before or after its first sign-in. The mapping decides its rights from the next sign-in on.
        """
        return sign_on_queries.account(sign_on.link(actor=self.actor, now=self.now, **self.wanted).pk)


@detail_call("get_sign_on_account", sign_on_queries.account, needs="admin", missing=UNKNOWN_ACCOUNT)
class SignOnAccount(Call):
    """Get an account at the provider

    Its user here, its roles or groups, and when the provider last confirmed it.
    """

    @admin_call("unlink_sign_on_account", problems=UNKNOWN_ACCOUNT[:1])
    def delete(self, sign_on_id: int) -> None:
        """Unlink an account at the provider

        Its sessions end, and the rights that the mapping gave.
        """
        sign_on.unlink(actor=self.actor, sign_on_id=sign_on_id, now=self.now)
