"""Queries on users, service accounts, tokens, sessions and single sign-on: for administrators, and for users about
themselves.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Unpack

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Count, OuterRef, Prefetch, Q, QuerySet, Subquery

from fleet.accounts.factors import APP, CODES, PASSKEY
from fleet.accounts.models import ROLE, WHERE, PersonSession, SignOn, SignOnGrant, contents_of, open_sessions
from fleet.domain.people import ADMIN, Rights
from fleet.domain.pseudonyms import FORMER, erased_name, pseudonym
from fleet.domain.reasons import Reason, read_reason
from fleet.domain.secrets import hash_of
from fleet.domain.shapes import InApi, from_row
from fleet.domain.sign_on import ClaimFault, Grant, identity_of, rights_by
from fleet.domain.texts import parse_json
from fleet.domain.timeline import EntryKind
from fleet.models import ApiToken, Entry, OutsideAccount, Scope
from fleet.models.people import ALLOWED_FROM, prefetch_rights, rights_of, service_of
from fleet.operations.access import AccessStates, AccountState
from fleet.projections.pages import At, OrderedAt, Page, Segment, read_list, read_page
from fleet.projections.people import OwnSettings, own_settings
from fleet.projections.timeline.entries import named
from fleet.projections.visibility import visible


@dataclass(frozen=True, slots=True)
class ScopeRow:
    """One scope of a user: a pattern for the sets in which they may act. `kind` is `name`, `service` or
    `resource_group`.
    """

    kind: str
    pattern: str

    @property
    def label(self) -> Reason:
        return Reason("scope", kind=self.kind, pattern=self.pattern)


@dataclass(frozen=True, slots=True)
class PersonRow:
    """A user or a service account, with group and scopes."""

    username: str
    pseudonym: Annotated[str, "How logs and the sealed entries of the timeline name them, permanently."]
    group: str
    superuser: Annotated[bool, "Whether they may do whatever an administrator may."]
    active: Annotated[bool, "Whether they have access."]
    scopes: Annotated[tuple[ScopeRow, ...], "Sets in which they may act; none: everywhere."]
    joined_at: datetime
    last_login_at: datetime | None
    tokens: Annotated[int, "How many tokens they have that have not ended."]
    erased: Annotated[bool, "Whether the name and all personal data were erased."] = False
    is_service_account: Annotated[bool, "Whether it is a service account, which authenticates by tokens only."] = False
    owner: Annotated[str, "The user who owns a service account; empty if there is none who has access."] = ""
    purpose: Annotated[str, "What a service account is for."] = ""

    @property
    def right(self) -> str:
        return "superuser" if self.superuser else self.group or "no group"


@dataclass(frozen=True, slots=True)
class TokenRow:
    """An API token without the secret."""

    prefix: Annotated[str, "Its public beginning, by which it is named."]
    name: str
    scopes: Annotated[tuple[str, ...], "What it permits, within the rights of its user: `read`, `approve`, `admin`."]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: Annotated[datetime | None, "To the minute."]
    ended_at: datetime | None
    allowed_from: Annotated[tuple[str, ...], ALLOWED_FROM] = ()

    def soon_over(self, now: datetime) -> bool:
        """Return whether the token is valid now and expires within a week."""
        return self.usable(now) and self.expires_at is not None and self.expires_at <= now + timedelta(days=7)

    def usable(self, now: datetime) -> bool:
        return self.ended_at is None and (self.expires_at is None or self.expires_at > now)


@dataclass(frozen=True, slots=True)
class CarriedToken:
    """The API token with which the current call was made."""

    name: str
    scopes: Annotated[tuple[str, ...], "What it permits: `read`, `approve`, `admin`."]
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Me:
    """The caller and their rights."""

    person: Annotated[PersonRow, InApi.FLATTENED]
    settings: Annotated[OwnSettings, InApi.FLATTENED]
    token: Annotated[CarriedToken | None, "The token of this call; null for a session."]


def listing(*, q: str = "", services: bool = False, **at: Unpack[OrderedAt]) -> Page[PersonRow]:
    """Return a page of accounts by name, without erased users: service accounts only if `services`, else all. `q`
    filters by name. Three queries.
    """
    users = _people().exclude(username__startswith=FORMER)
    users = users.filter(service_account__isnull=False) if services else users
    users = users.filter(username__icontains=q) if q else users
    return read_list(Segment(users, "username"), **at).map(lambda rows: [_row(user) for user in rows])


def detail(*, username: str) -> PersonRow | None:
    """Return the account with exactly this name, or None. Up to three queries."""
    user = _people().filter(username=username).first()
    return _row(user) if user else None


def me(*, user_id: int, token: ApiToken | None = None) -> Me:
    """Return the caller (row id of the user), with the API token of the call if there is one. Four queries."""
    carried = from_row(CarriedToken, token) if token else None
    return Me(person=_row(_people().get(pk=user_id)), settings=own_settings(user_id=user_id), token=carried)


def tokens(*, username: str, with_ended: bool = False, **at: Unpack[At]) -> Page[TokenRow]:
    """Return a page of the API tokens of a user, newest first; with `with_ended`, also expired and revoked ones. One
    query.
    """
    rows = visible(ApiToken).filter(user__username=username)
    if not with_ended:
        rows = rows.filter(revoked_at__isnull=True)
    return read_page([Segment(rows, "created_at", descending=True)], **at).map(_tokens)


def token(*, prefix: str, username: str | None = None) -> TokenRow | None:
    """Return the API token with this prefix, also if it is expired or revoked. With `username` it must belong to this
    user, without to a service account. One query.
    """
    whose = Q(user__service_account__isnull=False) if username is None else Q(user__username=username)
    rows = _tokens(visible(ApiToken).filter(whose, prefix=prefix.strip()))
    return rows[0] if rows else None


def _tokens(rows: Iterable[ApiToken]) -> list[TokenRow]:
    return [from_row(TokenRow, row, ended_at=row.revoked_at) for row in rows]


def _people() -> QuerySet[User]:
    """Return all accounts with the related rows that `_row` needs. Three queries."""
    tokens = visible(ApiToken).filter(user=OuterRef("pk"), revoked_at__isnull=True).order_by()
    live = Subquery(tokens.values("user").annotate(count=Count("pk")).values("count"))
    scopes = Prefetch("scopes", visible(Scope).order_by("kind", "pattern"))
    return visible(User).select_related("service_account__owner").prefetch_related("groups", scopes).annotate(live=live)


def _row(user: Any) -> PersonRow:
    service = service_of(user)
    owner = service.owner if service else None
    return PersonRow(
        username=user.get_username(),
        pseudonym=pseudonym(user.pk),
        group=Rights(frozenset(group.name for group in user.groups.all())).role,
        superuser=user.is_superuser,
        active=user.is_active,
        scopes=tuple(ScopeRow(scope.kind, scope.pattern) for scope in user.scopes.all()),
        joined_at=user.date_joined,
        last_login_at=user.last_login,
        tokens=user.live or 0,
        erased=user.get_username() == erased_name(user.pk),
        is_service_account=service is not None,
        purpose=service.purpose if service else "",
        owner=owner.get_username() if owner and owner.is_active else "",
    )


def outside_accounts(*, username: str) -> list[OutsideAccount]:
    """Return the Slack and PagerDuty accounts of a user, at most 500. One query."""
    return list(visible(OutsideAccount).filter(user__username=username).order_by("-seen_at", "pk")[:500])


# State of access behind open streams, read for many at once: sessions, tokens, accounts and their rights.

# Columns of a token that change with its use, and do not affect its rights.
OF_USE = ("last_used_at", "notified_days")


def access_states(
    *, accounts: Collection[int], sessions: Collection[str], tokens: Collection[str], now: datetime
) -> AccessStates:
    """Return the current access state of these accounts (user ids), sessions (keys) and tokens (prefixes). The caller
    compares states to end streams whose access changed. Up to four queries in total, and one for each level of tokens
    that were created with other tokens.
    """
    active = visible(User).filter(pk__in=list(accounts), is_active=True)
    people = list(active.select_related("sign_on", "service_account__owner"))
    prefetch_rights(people)
    contents = contents_of(sessions, now=now) if sessions else {}
    valid = _token_states(tokens, now) if tokens else {}
    return AccessStates({one.pk: _account_state(one, now) for one in people}, contents, valid)


def _account_state(person: User, now: datetime) -> AccountState:
    signed_on = getattr(person, "sign_on", None)
    good = signed_on is not None and signed_on.issuer == settings.OIDC_ISSUER and signed_on.valid_until
    service = getattr(person, "service_account", None)
    owner = service.owner if service is not None else None
    rest = (person.password, bool(good and good > now), owner and (owner.pk, owner.is_active))
    return AccountState(rights_of(person), rest)


def _token_states(prefixes: Collection[str], now: datetime) -> dict[str, Any]:
    """Return the valid tokens by prefix. A token that was created with another token is valid only while that one
    is.
    """
    counts = Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))
    names = [field.attname for field in ApiToken._meta.concrete_fields if field.attname not in OF_USE]
    rows = {row["prefix"]: row for row in visible(ApiToken).filter(counts, prefix__in=list(prefixes)).values(*names)}
    # Follow the creating tokens level by level; most tokens have none.
    makers = {prefix: row["made_with_id"] for prefix, row in rows.items() if row["made_with_id"] is not None}
    while makers:
        valid = dict(visible(ApiToken).filter(counts, pk__in=set(makers.values())).values_list("pk", "made_with_id"))
        for prefix in [prefix for prefix, maker in makers.items() if maker not in valid]:
            del rows[prefix], makers[prefix]
        makers = {prefix: valid[maker] for prefix, maker in makers.items() if valid[maker] is not None}
    return rows


# Second factors of users.


@dataclass(frozen=True, slots=True)
class Factors:
    """Second factors of a user, as rows of django-allauth, and the number of unused recovery codes."""

    app: Authenticator | None
    passkeys: list[Authenticator]
    codes_left: int

    @property
    def usable(self) -> bool:
        return self.app is not None or bool(self.passkeys)


def factors_of(*, user_id: int) -> Factors:
    """Return the second factors of a user (row id). One query."""
    rows = list(visible(Authenticator).filter(user=user_id).order_by("pk"))
    single = {row.type: row for row in rows if row.type != PASSKEY}
    codes_left = 10 - int(single[CODES].data.get("used_mask", 0)).bit_count() if CODES in single else 0
    return Factors(single.get(APP), [row for row in rows if row.type == PASSKEY], codes_left)


# Browser sessions, for their users and for administrators.


@dataclass(frozen=True, slots=True)
class SessionRow:
    """An open browser session. Sessions from before 0.2.0 have no `sign_in_method`, `signed_in_at` and `address`."""

    id: int
    browser: Annotated[str, "Such as `Firefox`; empty if the browser does not state it."]
    system: Annotated[str, "Such as `Linux`; empty if the browser does not state it."]
    sign_in_method: Annotated[
        str,
        "The sign-in method: `password`, `password-factor`, `passkey`, `sign-on`, `proxy`; empty for a session from"
        " before 0.2.0.",
    ]
    address: Annotated[str, "The address of the sign-in; empty if it is unknown."]
    last_address: Annotated[str, "The address of the last request."]
    signed_in_at: Annotated[datetime | None, "Null if it is unknown."]
    last_seen_at: Annotated[datetime, "Accurate to a few minutes."]
    is_current: Annotated[bool, "Whether this call came with it."]

    @property
    def elsewhere(self) -> bool:
        """Return whether the latest request came from another address than the sign-in."""
        return bool(self.address) and self.address != self.last_address


def session_rows(*, username: str, session_key: str, now: datetime, **at: Unpack[At]) -> Page[SessionRow]:
    """Return a page of the open sessions of a user, last seen first. `session_key` is that of the caller and marks the
    current session. One query.
    """
    own = hash_of(session_key) if session_key else ""
    rows = open_sessions(visible(PersonSession).filter(user__username=username), now=now)
    page = read_page([Segment(rows, "last_seen_at", descending=True)], **at)
    return page.map(lambda shown: [from_row(SessionRow, row, is_current=row.key_hash == own) for row in shown])


# Single sign-on, for administrators: the mapping, accounts at the provider, and dry runs.

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


def mapping(**at: Unpack[At]) -> Page[GrantRow]:
    """Return a page of the mapping, ordered by the role or group. One query."""
    return read_page([Segment(visible(SignOnGrant), "value")], **at).map(lambda rows: [_line(row) for row in rows])


def grant(grant_id: int) -> GrantRow | None:
    """Return the entry of the mapping with this id, or None. One query."""
    row = visible(SignOnGrant).filter(pk=grant_id).first()
    return None if row is None else _line(row)


def accounts(**at: Unpack[At]) -> Page[SignOnRow]:
    """Return a page of the accounts at the provider, newest first. One query."""
    segment = Segment(visible(SignOn).select_related("user"), "pk", descending=True)
    return read_page([segment], **at).map(lambda rows: [_account(row) for row in rows])


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
    others = visible(User).filter(is_active=True, groups__name=ADMIN)
    others = others.exclude(pk__in=[row.user_id for row in known if row.user_id])
    changed, leaves_no_admin = sum(row.changes for row in rows), not admins and not others.exists()
    return MappingTrial(tuple(rows), changed, trial, fault, leaves_no_admin)


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
    key = {"issuer": identity.issuer, "subject": identity.subject}
    account = visible(SignOn).select_related("user").filter(**key).first() or SignOn(**key)
    account.name, account.values = identity.name, list(identity.values)
    return _would(account, rights_by(lines, identity.values)), None


def _scopes(pairs: Iterable[tuple[str, str]]) -> tuple[ScopeRow, ...]:
    return tuple(ScopeRow(kind, pattern) for kind, pattern in sorted(pairs))
