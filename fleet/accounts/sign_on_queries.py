"""Queries on single sign-on for administrators: the mapping, accounts at the provider, and dry runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from django.conf import settings
from django.contrib.auth.models import User

from fleet.accounts.models import ROLE, WHERE, SignOn, SignOnGrant
from fleet.accounts.queries import ScopeRow
from fleet.domain.people import ADMIN, Rights
from fleet.domain.reasons import Reason, read_reason
from fleet.domain.shapes import from_row
from fleet.domain.sign_on import ClaimFault, Grant, identity_of, rights_by
from fleet.domain.texts import parse_json
from fleet.domain.timeline import EntryKind
from fleet.models import Entry
from fleet.models.people import prefetch_rights, rights_of
from fleet.projections.pages import Page, Segment, read_page
from fleet.projections.timeline.entries import named
from fleet.projections.visibility import visible

MOST = 500
# Longer than any token that a browser can carry.
MOST_PASTED = 64 * 1024


@dataclass(frozen=True, slots=True)
class GrantRow:
    """One entry of the mapping: the group and scopes for users with this role or group at the provider."""

    id: int
    value: Annotated[str, ROLE]
    group: str
    scopes: Annotated[tuple[ScopeRow, ...], WHERE]


@dataclass(frozen=True, slots=True)
class SignOnRow:
    """An account at the single sign-on provider and the user linked to it."""

    id: int
    subject: Annotated[str, "Its permanent id: Entra's object id, elsewhere `sub`."]
    name: Annotated[str, "Its name there at the last sign-in."]
    person: Annotated[str, "The user here; empty if it is linked to none."]
    values: Annotated[tuple[str, ...], "Its roles or groups at the last sign-in."]
    refused: Annotated[Reason | str | None, "Why it was refused, as a sentence; null if it was admitted."]
    seen_at: Annotated[datetime | None, "Its last sign-in; null if it was only announced."]
    checked_at: Annotated[datetime | None, "When the provider last confirmed it."]
    valid_until: Annotated[datetime | None, "When its sessions end without another confirmation."]


@dataclass(frozen=True, slots=True)
class WouldBe:
    """The rights of an account now, and the rights that a mapping would give it."""

    name: Annotated[str, "The name of the account."]
    person: Annotated[str, "The user here."]
    values: Annotated[tuple[str, ...], "Its roles or groups."]
    current_group: Annotated[str, "The group now; empty: none."]
    current_scopes: Annotated[tuple[ScopeRow, ...], "Where they may act now."]
    group: Annotated[str, "The group by the mapping; empty: none."]
    scopes: Annotated[tuple[ScopeRow, ...], WHERE]

    @property
    def changes(self) -> Annotated[bool, "Whether anything would change."]:
        return (self.current_group, self.current_scopes) != (self.group, self.scopes)


@dataclass(frozen=True, slots=True)
class MappingTrial:
    """Result of a dry run: the changes that a mapping would make."""

    rows: Annotated[tuple[WouldBe, ...], "Known accounts, those first that would change; at most 500."]
    changed: Annotated[int, "How many of them would change."]
    pasted: Annotated[WouldBe | None, "The account of the claims; null without claims."]
    fault: Annotated[Reason | None, "What is wrong with the claims, as a sentence."]
    leaves_no_admin: Annotated[bool, "Whether no administrator would be left."]


def mapping(*, cursor: str | None = None, size: int | None = None) -> Page[GrantRow]:
    """Return a page of the mapping, ordered by the role or group. One query."""
    page = read_page([Segment(visible(SignOnGrant), "value")], cursor=cursor, size=size)
    return page.map(lambda rows: [_line(row) for row in rows])


def grant(grant_id: int) -> GrantRow | None:
    """Return the entry of the mapping with this id, or None. One query."""
    row = visible(SignOnGrant).filter(pk=grant_id).first()
    return None if row is None else _line(row)


def accounts(*, cursor: str | None = None, size: int | None = None) -> Page[SignOnRow]:
    """Return a page of the accounts at the provider, newest first. One query."""
    segment = Segment(visible(SignOn).select_related("user"), "pk", descending=True)
    return read_page([segment], cursor=cursor, size=size).map(lambda rows: [_account(row) for row in rows])


def account(sign_on_id: int) -> SignOnRow | None:
    """Return the account at the provider with this row id, or None. One query."""
    row = visible(SignOn).select_related("user").filter(pk=sign_on_id).first()
    return None if row is None else _account(row)


def dry_run(grants: Iterable[Grant] | None = None, *, pasted: str = "") -> MappingTrial:
    """Return the rights that known accounts would have if `grants` replaced the current mapping (None: the current
    mapping). `pasted` is JSON with the claims of one token, whose rights are returned, too. Nothing is changed or
    stored. Up to six queries.
    """
    lines = [row.grant for row in visible(SignOnGrant)] if grants is None else list(grants)
    known = list(visible(SignOn).select_related("user").filter(seen_at__isnull=False).order_by("name", "pk")[:MOST])
    prefetch_rights([row.user for row in known if row.user is not None])
    rows = [_would(row, rights_by(lines, row.values)) for row in known]
    rows.sort(key=lambda row: (not row.changes, row.person or row.name))
    trial, fault = _pasted(pasted, lines) if pasted.strip() else (None, None)
    admins = {row.person for row in rows if row.person and row.group == ADMIN}
    others = (
        visible(User)
        .filter(is_active=True, groups__name=ADMIN)
        .exclude(pk__in=[row.user_id for row in known if row.user_id])
    )
    return MappingTrial(
        rows=tuple(rows),
        changed=sum(row.changes for row in rows),
        pasted=trial,
        fault=fault,
        leaves_no_admin=not admins and not others.exists(),
    )


def emergency_account_used(*, since: datetime) -> tuple[str, datetime] | None:
    """Return the user name and time of the latest use of the emergency account since this time. Two queries."""
    entry = visible(Entry).filter(kind=EntryKind.EMERGENCY_SIGN_IN.value, at__gte=since).order_by("-pk").first()
    return (str(named([entry])[0]["data"].get("person", "")), entry.at) if entry else None


def _line(row: SignOnGrant) -> GrantRow:
    return GrantRow(row.pk, row.value, row.group, _scopes(row.grant.scopes))


def _account(row: SignOn) -> SignOnRow:
    return from_row(
        SignOnRow,
        row,
        subject=row.subject.removeprefix(settings.OIDC_SUBJECT_PREFIX),
        person=row.user.get_username() if row.user else "",
        refused=read_reason(row.refused) if row.refused else None,
    )


def _would(row: SignOn, granted: Rights | None) -> WouldBe:
    now = rights_of(row.user) if row.user is not None else Rights()
    after = granted or Rights()
    return WouldBe(
        name=row.name or row.subject.removeprefix(settings.OIDC_SUBJECT_PREFIX),
        person=row.user.get_username() if row.user else "",
        values=tuple(row.values),
        current_group=now.role,
        current_scopes=_scopes(now.scopes),
        group=after.role,
        scopes=_scopes(after.scopes),
    )


def _pasted(text: str, lines: list[Grant]) -> tuple[WouldBe | None, Reason | None]:
    """Return the rights for claims in JSON, or the reason why they are invalid. Encoded tokens are rejected, because
    they may still be valid.
    """
    try:
        claims: Any = parse_json(text[:MOST_PASTED])
    except ValueError:
        claims = None
    if not isinstance(claims, Mapping):
        return None, Reason("claims-unreadable")
    try:
        identity = identity_of(claims, issuer=settings.OIDC_ISSUER, claim=settings.OIDC_CLAIM)
    except ClaimFault as fault:
        return None, fault.reason
    row = visible(SignOn).select_related("user").filter(issuer=identity.issuer, subject=identity.subject).first()
    stranger = SignOn(issuer=identity.issuer, subject=identity.subject)
    account = row or stranger
    account.name, account.values = identity.name, list(identity.values)
    return _would(account, rights_by(lines, identity.values)), None


def _scopes(pairs: Iterable[tuple[str, str]]) -> tuple[ScopeRow, ...]:
    return tuple(ScopeRow(kind, pattern) for kind, pattern in sorted(pairs))
