"""People as admins see them, and as they see themselves."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Count, F, Q

from fleet.accounts.models import PersonSession, contents_of, going_on
from fleet.domain.people import Rights
from fleet.domain.pseudonyms import FORMER, erased_name, pseudonym
from fleet.domain.reasons import Reason
from fleet.domain.secrets import hash_of
from fleet.domain.shapes import from_row
from fleet.models import ApiToken, OutsideAccount, Scope
from fleet.models.people import prefetch_rights, rights_of
from fleet.operations.access import AccessStates, AccountState
from fleet.projections.pages import Page, Segment, ordered, read_page
from fleet.projections.people import OwnSettings, own_settings
from fleet.projections.visibility import visible


@dataclass(frozen=True, slots=True)
class ScopeRow:
    """Sets in which a person may act: `kind` is `name`, `service` or `resource_group`."""

    kind: str
    pattern: str

    @property
    def label(self) -> Reason:
        return Reason("scope", kind=self.kind, pattern=self.pattern)


@dataclass(frozen=True, slots=True)
class PersonRow:
    """`group` is the one that counts; empty for somebody in none. No scopes at all: everywhere. The timeline and logs
    name the `pseudonym`.
    """

    username: str
    pseudonym: str
    group: str
    superuser: bool
    active: bool
    scopes: tuple[ScopeRow, ...]
    joined_at: datetime
    last_login_at: datetime | None
    tokens: int
    # The name was erased.
    forgotten: bool = False
    # It is no person, but a service account; `owner` answers for it, empty where nobody does any more.
    service: bool = False
    owner: str = ""
    purpose: str = ""

    @property
    def right(self) -> str:
        return "superuser" if self.superuser else self.group or "no group"


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token without its secret. `prefix` is its public beginning, by which it is named."""

    prefix: str
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    ended_at: datetime | None
    # Networks from which its calls count; none: from everywhere.
    allowed_from: tuple[str, ...] = ()

    def soon_over(self, now: datetime) -> bool:
        """Whether it counts now, and no longer in a week."""
        return self.usable(now) and self.expires_at is not None and self.expires_at <= now + timedelta(days=7)

    def usable(self, now: datetime) -> bool:
        return self.ended_at is None and (self.expires_at is None or self.expires_at > now)


@dataclass(frozen=True, slots=True)
class CarriedToken:
    """The token that a call came with."""

    name: str
    scopes: tuple[str, ...]
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Me:
    """Who asks, and what they may. `token` is None for a session."""

    person: PersonRow
    settings: OwnSettings
    token: CarriedToken | None


def listing(
    *, order: str = "", cursor: str | None = None, size: int | None = None, q: str = "", services: bool = False
) -> Page[PersonRow]:
    """By name, without those who were forgotten; `services` alone or everybody. Three queries."""
    known = visible(User).exclude(username__startswith=FORMER)
    known = known.filter(service_account__isnull=False) if services else known
    users = known.filter(username__icontains=q) if q else known
    return read_page(ordered(users, order, [Segment(users, "username")]), cursor=cursor, size=size).map(_rows)


def detail(*, username: str) -> PersonRow | None:
    """One person by the exact name. Up to four queries."""
    found = _rows(list(visible(User).filter(username=username)))
    return found[0] if found else None


def me(*, user_id: int, token: ApiToken | None = None) -> Me:
    """The person of this row id, with the token that the call carried. Five queries."""
    person = _rows([visible(User).get(pk=user_id)])[0]
    carried = from_row(CarriedToken, token) if token else None
    return Me(person=person, settings=own_settings(user_id=user_id), token=carried)


def tokens(*, username: str, with_ended: bool = False) -> tuple[TokenRow, ...]:
    """Somebody's tokens, newest first, at most 500. One query."""
    rows = visible(ApiToken).filter(user__username=username).order_by("-created_at", "-pk")
    if not with_ended:
        rows = rows.filter(revoked_at__isnull=True)
    return tuple(from_row(TokenRow, row, ended_at=row.revoked_at) for row in rows[:500])


def page_of_tokens(
    *, username: str, with_ended: bool = False, cursor: str | None = None, size: int | None = None
) -> Page[TokenRow]:
    """Somebody's tokens, newest first. One query."""
    rows = visible(ApiToken).filter(user__username=username)
    if not with_ended:
        rows = rows.filter(revoked_at__isnull=True)
    found = read_page([Segment(rows, "created_at", descending=True)], cursor=cursor, size=size)
    return found.map(lambda shown: [from_row(TokenRow, row, ended_at=row.revoked_at) for row in shown])


def token_of_service(*, prefix: str) -> TokenRow | None:
    """A token of a service account by its public beginning. One query."""
    row = visible(ApiToken).filter(user__service_account__isnull=False, prefix=prefix.strip()).first()
    return from_row(TokenRow, row, ended_at=row.revoked_at) if row else None


def token(*, username: str, prefix: str) -> TokenRow | None:
    """One of somebody's tokens by its public beginning, also one that was ended. One query."""
    row = visible(ApiToken).filter(user__username=username, prefix=prefix.strip()).first()
    return from_row(TokenRow, row, ended_at=row.revoked_at) if row else None


def _rows(users: Sequence[User]) -> tuple[PersonRow, ...]:
    ids = [user.pk for user in users]
    groups: dict[int, set[str]] = defaultdict(set)
    for user_id, name in User.groups.through.objects.filter(user__in=ids).values_list("user_id", "group__name"):
        groups[user_id].add(name)
    scopes: dict[int, list[ScopeRow]] = defaultdict(list)
    for row in visible(Scope).filter(user__in=ids).order_by("kind", "pattern"):
        scopes[row.user_id].append(ScopeRow(kind=row.kind, pattern=row.pattern))
    live = Count("api_tokens", filter=Q(api_tokens__revoked_at__isnull=True))
    known = visible(User).filter(pk__in=ids).annotate(live=live)
    owner = ("service_account__owner__username", "service_account__owner__is_active")
    rows = known.values_list("pk", "live", "service_account__purpose", *owner)
    counts = {pk: count for pk, count, *_ in rows}
    services = {pk: (purpose, name if may else "") for pk, _, purpose, name, may in rows if purpose is not None}
    return tuple(
        PersonRow(
            username=user.get_username(),
            pseudonym=pseudonym(user.pk),
            group=Rights(frozenset(groups[user.pk])).role,
            superuser=user.is_superuser,
            active=user.is_active,
            scopes=tuple(scopes[user.pk]),
            joined_at=user.date_joined,
            last_login_at=user.last_login,
            tokens=counts.get(user.pk, 0),
            forgotten=user.get_username() == erased_name(user.pk),
            service=user.pk in services,
            purpose=services.get(user.pk, ("", ""))[0],
            owner=services.get(user.pk, ("", ""))[1],
        )
        for user in users
    )


@dataclass(frozen=True, slots=True)
class OutsideRow:
    """Somebody's account in Slack or PagerDuty (`kind`); `person` is whose it is here, empty where nobody has said."""

    id: int
    kind: str
    team: str
    account: str
    name: str
    person: str
    seen_at: datetime | None
    linked_at: datetime | None


def outside_accounts(*, username: str | None = None, most: int = 500) -> tuple[OutsideRow, ...]:
    """One person's accounts elsewhere; without a name everybody's, those first that are nobody's and were seen last.
    One query.
    """
    rows = visible(OutsideAccount).select_related("user")
    if username is not None:
        rows = rows.filter(user__username=username)
    ordered = rows.order_by(F("user__username").asc(nulls_first=True), F("seen_at").desc(nulls_last=True), "pk")
    return tuple(
        from_row(OutsideRow, row, person=row.user.get_username() if row.user else "") for row in ordered[:most]
    )


# What the access of open calls rests on, read for many calls at once: sessions, tokens, accounts and their rights.

# Columns of a token that change while it is used, and say nothing of what it may do.
OF_USE = ("last_used_at", "notified_days")


def access_states(
    *, accounts: Collection[int], sessions: Collection[str], tokens: Collection[str], now: datetime
) -> AccessStates:
    """Up to four queries, however many are asked for, and one for each level of tokens that were made by tokens."""
    people = list(
        visible(User).filter(pk__in=list(accounts), is_active=True).select_related("sign_on", "service_account__owner")
    )
    prefetch_rights(people)
    return AccessStates(
        {one.pk: _account_state(one, now) for one in people},
        contents_of(sessions, now=now) if sessions else {},
        _token_states(tokens, now) if tokens else {},
    )


def _account_state(person: User, now: datetime) -> AccountState:
    signed_on = getattr(person, "sign_on", None)
    good = signed_on is not None and signed_on.issuer == settings.OIDC_ISSUER and signed_on.good_until
    service = getattr(person, "service_account", None)
    owner = service.owner if service is not None else None
    rest = (person.password, bool(good and good > now), owner and (owner.pk, owner.is_active))
    return AccountState(rights_of(person), rest)


def _token_states(prefixes: Collection[str], now: datetime) -> dict[str, Any]:
    """Without those that have ended, or that were made by one that has."""
    counts = Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))
    names = [field.attname for field in ApiToken._meta.concrete_fields if field.attname not in OF_USE]
    rows = {row["prefix"]: row for row in visible(ApiToken).filter(counts, prefix__in=list(prefixes)).values(*names)}
    # By whom each was made, level by level: nearly always by none.
    makers = {prefix: row["made_with_id"] for prefix, row in rows.items() if row["made_with_id"] is not None}
    while makers:
        found = dict(visible(ApiToken).filter(counts, pk__in=set(makers.values())).values_list("pk", "made_with_id"))
        for prefix in [prefix for prefix, maker in makers.items() if maker not in found]:
            del rows[prefix], makers[prefix]
        makers = {prefix: found[maker] for prefix, maker in makers.items() if found[maker] is not None}
    return rows


# Second factors of people, as they see them: never a secret.

APP, PASSKEY = "totp", "webauthn"


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor: `kind` is `totp` or `webauthn`, `name` what its person calls a passkey."""

    id: int
    kind: str
    name: str
    created_at: datetime
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class Factors:
    """What somebody has beside a password. `codes_left` are recovery codes that were not used."""

    app: Factor | None
    passkeys: tuple[Factor, ...]
    codes_left: int

    @property
    def usable(self) -> bool:
        return self.app is not None or bool(self.passkeys)


def factors_of(*, user_id: int) -> Factors:
    """One person's second factors. One query."""
    rows = list(visible(Authenticator).filter(user=user_id).order_by("pk"))
    found = [
        Factor(row.pk, row.type, str(row.data.get("name", "")), row.created_at, row.last_used_at)
        for row in rows
        if row.type in (APP, PASSKEY)
    ]
    codes = next((row for row in rows if row.type not in (APP, PASSKEY)), None)
    return Factors(
        app=next((one for one in found if one.kind == APP), None),
        passkeys=tuple(one for one in found if one.kind == PASSKEY),
        codes_left=10 - int(codes.data.get("used_mask", 0)).bit_count() if codes else 0,
    )


# Sessions of people in browsers, as they and admins see them.


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session that goes on. `way` is how its person came in; that, `began_at` and `address` are not known of one
    from before 0.2.0. `this`: the one in which somebody asks.
    """

    id: int
    browser: str
    system: str
    way: str
    address: str
    last_address: str
    began_at: datetime | None
    last_seen_at: datetime
    this: bool

    @property
    def elsewhere(self) -> bool:
        """Whether it is used from another address than that of its login."""
        return bool(self.address) and self.address != self.last_address


def session_rows(
    *, username: str, session_key: str, now: datetime, cursor: str | None = None, size: int | None = None
) -> Page[SessionRow]:
    """Somebody's sessions that go on, those first that were seen last. One query."""
    own = hash_of(session_key) if session_key else ""
    rows = going_on(visible(PersonSession).filter(user__username=username), now=now)
    found = read_page([Segment(rows, "last_seen_at", descending=True)], cursor=cursor, size=size)
    return found.map(lambda shown: [from_row(SessionRow, row, this=row.key_hash == own) for row in shown])
