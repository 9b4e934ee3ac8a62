"""Single sign-on: accounts at the provider, and the mapping from the provider's roles and groups to Drydock's groups
and scopes. Administrators maintain the mapping.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from fleet.accounts import services as account_services
from fleet.accounts import sessions
from fleet.accounts.models import SignOn, SignOnGrant
from fleet.accounts.services import ScopedSerializer
from fleet.accounts.sessions import end_access, record_change
from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.people import Rights
from fleet.domain.policy import rules
from fleet.domain.policy.rules import Fault
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.sign_on import LONGEST_SUBJECT, Grant, Identity, ToldByProxy, rights_by
from fleet.domain.texts import tidy
from fleet.domain.timeline import EntryKind
from fleet.models.people import prefetch_rights, rights_of, service_of
from fleet.operations import control
from fleet.operations.audited import Audit, AuditedForm, Sent, Values, delete_audited, save_audited
from fleet.operations.rights import require_administrator, require_reach, user_named
from fleet.operations.timeline.entries import tell

MOST_GRANTS = 200
# Backend of sessions that began at a reverse proxy.
PROXY_BACKEND = "fleet.accounts.post_login.HeaderBackend"
NOT_MAPPED = Reason("sign-on-not-mapped")


def grants() -> list[Grant]:
    """Return all entries of the mapping. One query."""
    return [row.grant for row in SignOnGrant.objects.order_by("value")]


class ChangeGrantForm(AuditedForm):
    class Meta(AuditedForm.Meta):
        model, fields = SignOnGrant, ("group", "scopes")


class GrantForm(AuditedForm):
    class Meta(AuditedForm.Meta):
        model, fields = SignOnGrant, ("value", "group", "scopes")


class ChangeGrantSerializer(ScopedSerializer):
    class Meta:
        model, fields = SignOnGrant, ("group", "scopes")
        extra_kwargs = {"group": {"required": False}}


class GrantRequestSerializer(ScopedSerializer):
    class Meta:
        model, fields = SignOnGrant, ("value", "group", "scopes")
        # Lines of a dry run may be those that there are.
        extra_kwargs = {"value": {"validators": ()}}


class GrantAudit(Audit):
    """Timeline entries about the mapping; scopes are written as text."""

    def values(self, row: Any) -> Values:
        return {"group": row.group, "scopes": [f"{kind}: {pattern}" for kind, pattern in row.scopes]}


def _grants(did: str) -> Audit:
    kind = EntryKind.MAPPING_CHANGED
    return GrantAudit((), created=kind, deleted=kind, data=lambda row: {"value": row.value, "did": did})


MADE, CHANGED, DELETED = map(_grants, ("made", "changed", "deleted"))


@transaction.atomic
def create(sent: Sent, *, actor: Actor, now: datetime) -> SignOnGrant:
    """Create an entry of the mapping. It applies immediately to all known accounts. Raises Refused as `save_audited`
    does.
    """
    require_administrator(actor)
    account_services.lock()

    def check(row: SignOnGrant) -> Iterator[Fault]:
        lines = SignOnGrant.objects.values_list("value", flat=True)
        if row.value in lines:
            yield "value", Reason("grant-taken", value=row.value)
        if len(lines) >= MOST_GRANTS:
            yield "", Reason("too-many-grants", most=MOST_GRANTS)

    row = save_audited(sent, actor, MADE, row=SignOnGrant(created_at=now), now=now, check=check)
    _apply_mapping(now)
    return row


@transaction.atomic
def change(sent: Sent, *, actor: Actor, grant_id: int, now: datetime) -> SignOnGrant:
    """Change the group or scopes of an entry of the mapping. Raises Refused: `not-found`, and as `save_audited`
    does.
    """
    row = save_audited(sent, actor, CHANGED, row=_changeable(grant_id, actor), now=now)
    _apply_mapping(now)
    return row


@transaction.atomic
def delete(*, actor: Actor, grant_id: int, now: datetime) -> SignOnGrant:
    """Delete an entry of the mapping. Users to whom no other entry applies lose access. Raises Refused:
    `not-permitted`, `not-found`, `validation`.
    """
    row = _changeable(grant_id, actor)
    delete_audited(row, actor, DELETED, now=now)
    _apply_mapping(now)
    return row


def tried(sent: Sent, *, grant_id: int | None = None) -> Grant:
    """Validate an entry of the mapping for a dry run and return it; nothing is saved. With `grant_id`, it is the saved
    entry with the submitted changes. Raises Refused: `not-found`, `validation`.
    """
    row = SignOnGrant()
    if grant_id is not None:
        line = SignOnGrant.objects.filter(pk=grant_id).first()
        row = require_found(line, "not-found", Reason("grant-unknown"))
    rules.refuse([*sent.apply(row)])
    return row.grant


def _changeable(grant_id: int, actor: Actor) -> SignOnGrant:
    require_administrator(actor)
    account_services.lock()
    line = SignOnGrant.objects.select_for_update().filter(pk=grant_id).first()
    return require_found(line, "not-found", Reason("grant-unknown"))


def _apply_mapping(now: datetime) -> None:
    """Apply the mapping to all known accounts. Users who still have rights stay signed in. Raises Refused `validation`
    if no administrator would remain.
    """
    had_admins, lines = account_services.any_admin(), grants()
    known = list(SignOn.objects.filter(user__isnull=False, seen_at__isnull=False).select_related("user").order_by("pk"))
    prefetch_rights([one.user for one in known if one.user is not None])
    ended = [one.user for one in known if settle(one, rights_by(lines, one.values), now=now) and one.user is not None]
    # A reverse proxy signs its users in again with their next request, by the mapping as it is then.
    sessions.end_for_good(ended, backend=PROXY_BACKEND if settings.PROXY_SIGN_IN.networks else "")
    if had_admins and not account_services.any_admin():
        raise Refused("validation", Reason("last-admin"))


def settle(row: SignOn, granted: Rights | None, *, now: datetime) -> bool:
    """Give the user of a provider account the rights `granted` by the mapping. Return whether the user lost all rights;
    the caller must then end their sessions.
    """
    if row.user is None:
        return False
    if not row.user.is_superuser and rights_of(row.user) != (granted or Rights()):
        account_services.apply_rights(row.user, granted or Rights(), now=now, actor=DRYDOCK)
    if granted is None and not row.refused:
        row.refused, row.valid_until, row.next_check_at = NOT_MAPPED.stored, now, None
        row.keep_refresh_token("")
        row.save()
        return True
    return False


# Users of single sign-on: created if the mapping gives them rights, linked by administrators, and refused if the
# provider or the mapping refuses them.

# Interval of queries to the provider: a revocation there applies within 15 minutes.
ASKED_EVERY = timedelta(minutes=10)
# A session without a refresh token is renewed by a new sign-in, which most providers do without interaction.
WITHOUT_REFRESH = timedelta(minutes=15)
# Backend of sessions that began at the provider.
BACKEND = "fleet.accounts.single_sign_on.SignOnBackend"
# Session key: the statement of the proxy at the start of the session.
SAID_BY_PROXY = "told_by_proxy"
# Time for which every page shows a use of the emergency account.
TOLD_FOR = timedelta(hours=24)
# Limit of refused accounts that are kept for administrators, who may link them.
MOST_STRANGERS = 200
REFUSED_BY_PROVIDER = Reason("sign-on-ended-there")
BLOCKED = Reason("sign-on-blocked")


def arrive(identity: Identity, *, now: datetime, refresh_token: str = "") -> User:
    """Return the user for an identity that the provider confirmed, with the rights of the current mapping. Create the
    user if necessary.

    Raises Refused `not-permitted` if the mapping grants no rights or the user is disabled. The account is recorded all
    the same, so that administrators see it.
    """
    person, reason = _arrived(identity, refresh_token, now)
    if person is None:
        raise Refused("not-permitted", reason)
    return person


@transaction.atomic
def _arrived(identity: Identity, refresh_token: str, now: datetime) -> tuple[User | None, Reason]:
    account_services.lock()
    row = _row(identity.issuer, identity.subject)
    row.name, row.values, row.seen_at = identity.name, list(identity.values), now
    granted = rights_by(grants(), identity.values)
    blocked = row.user is not None and (not row.user.is_active or service_of(row.user) is not None)
    if granted is None or blocked:
        reason = BLOCKED if blocked else NOT_MAPPED
        _out(row, reason, now=now, signs_in=True)
        if row.user is None:
            strangers = SignOn.objects.filter(user=None).order_by("-seen_at", "-pk").values_list("pk", flat=True)
            SignOn.objects.filter(pk__in=list(strangers[MOST_STRANGERS:])).delete()
        return None, reason
    if row.user is None:
        row.user = account_services.make_for_sign_on(identity.name, granted, now=now, actor=DRYDOCK)
        row.linked_at = now
    settle(row, granted, now=now)
    _in(row, refresh_token, now=now)
    return row.user, NOT_MAPPED


def arrive_by_proxy(told: ToldByProxy, *, now: datetime) -> User:
    """Return the user whom the reverse proxy names; the name must match exactly. If the proxy also sends groups, the
    mapping determines the rights. Raises Refused `not-permitted`.
    """
    person, reason = _arrived_by_proxy(told, now)
    if person is None:
        raise Refused("not-permitted", reason)
    return person


@transaction.atomic
def _arrived_by_proxy(told: ToldByProxy, now: datetime) -> tuple[User | None, Reason]:
    account_services.lock()
    person = User.objects.filter(username=told.name).first()
    if person is None:
        return None, Reason("person-unknown", name=told.name)
    if not person.is_active or told.name == settings.EMERGENCY_ACCOUNT or service_of(person) is not None:
        return None, BLOCKED
    if told.groups is not None and not person.is_superuser:
        granted = rights_by(grants(), told.groups)
        if rights_of(person) != (granted or Rights()):
            account_services.apply_rights(person, granted or Rights(), now=now, actor=DRYDOCK)
        if granted is None:
            sessions.end_for_good([person])
            return None, NOT_MAPPED
    return person, BLOCKED


def good(person: User, *, now: datetime) -> bool:
    """Return whether single sign-on sessions of this user are still valid. Needs no query if `sign_on` was loaded with
    `select_related`.
    """
    row: SignOn | None = getattr(person, "sign_on", None)
    until = row.valid_until if row is not None and row.issuer == settings.OIDC_ISSUER else None
    return until is not None and until > now


def proxy_statement(statement: ToldByProxy) -> list[Any]:
    """Convert the user and groups that a proxy sent to the form in which a session stores them."""
    return [statement.name, None if statement.groups is None else list(statement.groups)]


def is_confirmed_by_proxy(said: Any, told: ToldByProxy | None) -> bool:
    """Return whether the proxy confirms its session in this request. `said` is what the proxy sent when the session
    began, `told` what it sent now (None: nothing).
    """
    return bool(settings.PROXY_SIGN_IN.networks) and told is not None and said == proxy_statement(told)


def grace_ends_at(person: Any, *, now: datetime) -> datetime | None:
    """Return when the user's sessions expire because the provider could not be reached for the last checks; None if the
    checks are up to date. No query: it uses the loaded `sign_on` of the user.
    """
    row: SignOn | None = person._state.fields_cache.get("sign_on") if isinstance(person, User) else None
    if row is None or row.next_check_at is None or row.checked_at is None:
        return None
    return row.valid_until if row.checked_at < now - ASKED_EVERY - timedelta(minutes=1) else None


def password_counts(username: str) -> bool:
    """Return whether this user name may sign in with a password: if local passwords are enabled, or for the emergency
    account.
    """
    return bool(settings.LOCAL_PASSWORDS or (settings.EMERGENCY_ACCOUNT and username == settings.EMERGENCY_ACCOUNT))


@transaction.atomic
def record_emergency_sign_in(person: User, *, address: str, now: datetime) -> None:
    """Write a timeline entry if `person` is the emergency account. Pages and notifications then report the sign-in."""
    if settings.EMERGENCY_ACCOUNT and person.get_username() == settings.EMERGENCY_ACCOUNT:
        tell(EntryKind.EMERGENCY_SIGN_IN, DRYDOCK, at=now, person=person.get_username(), from_address=address)


@transaction.atomic
def confirm(sign_on_id: int, identity: Identity | None, *, refresh_token: str, now: datetime) -> None:
    """Record that the provider confirmed an account. `identity` has the new claims, or is None if the provider sent
    none.
    """
    account_services.lock()
    row = _locked(Q(pk=sign_on_id))
    if row is None or row.user is None or not row.refresh_token:
        return
    if identity is not None:
        row.name, row.values = identity.name, list(identity.values)
    granted = rights_by(grants(), row.values)
    if granted is None or not row.user.is_active:
        _out(row, BLOCKED if granted else NOT_MAPPED, now=now)
        return
    settle(row, granted, now=now)
    _in(row, refresh_token, now=now)


@transaction.atomic
def refuse(account: Q, *, now: datetime, reason: Reason = REFUSED_BY_PROVIDER, signs_in: bool = False) -> None:
    """End the sessions of an account that the provider or its token refused. The account gets no rights until it is
    confirmed again. With `signs_in`, the refusal happened at sign-in, and tokens and calendar feeds end, too.
    """
    account_services.lock()
    row = _locked(account)
    if row is not None:
        row.values = []
        _out(row, reason, now=now, signs_in=signs_in)


@transaction.atomic
def link(*, actor: Actor, username: str, subject: str, now: datetime) -> SignOn:
    """Link an account at the provider to a user, as an administrator; the account need not have signed in before.
    `subject` identifies the account: for Entra ID, its object id.

    From the next sign-in on, the mapping determines the user's rights. Raises Refused: `not-permitted`,
    `unknown-person`, `validation`.
    """
    require_administrator(actor)
    account_services.lock()
    person = user_named(username)
    require_reach(actor, person)
    if username == settings.EMERGENCY_ACCOUNT:
        raise Refused("validation", Reason("sign-on-break-glass", name=username))
    if service_of(person) is not None:
        raise Refused("validation", Reason("service-no-login", name=username))
    if not settings.OIDC_ISSUER:
        raise Refused("validation", Reason("sign-on-no-provider"))
    subject = settings.OIDC_SUBJECT_PREFIX + tidy(subject)
    if not len(settings.OIDC_SUBJECT_PREFIX) < len(subject) <= LONGEST_SUBJECT or not subject.isprintable():
        raise Refused("validation", Reason("sign-on-subject"))
    row = _row(settings.OIDC_ISSUER, subject.lower() if settings.OIDC_SUBJECT_PREFIX else subject)
    if row.user is not None and row.user != person:
        raise Refused("validation", Reason("sign-on-taken", name=row.user.get_username()))
    if SignOn.objects.filter(user=person).exclude(pk=row.pk).exists():
        raise Refused("validation", Reason("sign-on-has-one", name=username))
    if row.user is None:
        row.user, row.linked_at, row.refused = person, now, ""
        row.save()
        control.note(control.SIGN_ON, person, actor.person, now=now)
        before, after = {"account": None}, {"account": row.subject}
        record_change("signed-on", person, actor, now, before=before, after=after)
    return row


@transaction.atomic
def unlink(*, actor: Actor, sign_on_id: int, now: datetime) -> None:
    """Unlink an account at the provider (row id) from its user, and end its sessions. Raises Refused: `not-permitted`,
    `not-found`.
    """
    require_administrator(actor)
    account_services.lock()
    account = _locked(Q(pk=sign_on_id, user__isnull=False))
    row = require_found(account, "not-found", Reason("sign-on-unknown"))
    had_admins = account_services.any_admin()
    if row.user is not None:
        before, after = {"account": row.subject}, {"account": None}
        record_change("signed-off", row.user, actor, now, before=before, after=after)
        account_services.apply_rights(row.user, Rights(), now=now, actor=DRYDOCK)
        sessions.end_for_good([row.user])
    if had_admins and not account_services.any_admin():
        raise Refused("validation", Reason("last-admin"))
    row.delete()


def _locked(account: Q) -> SignOn | None:
    return SignOn.objects.select_for_update(of=("self",)).select_related("user").filter(account).first()


def _row(issuer: str, subject: str) -> SignOn:
    return _locked(Q(issuer=issuer, subject=subject)) or SignOn(issuer=issuer, subject=subject)


def _in(row: SignOn, refresh_token: str, *, now: datetime) -> None:
    row.refused, row.checked_at = "", now
    row.keep_refresh_token(refresh_token)
    if refresh_token:
        row.next_check_at = now + ASKED_EVERY
        row.valid_until = now + ASKED_EVERY + timedelta(seconds=settings.OIDC_GRACE_SECONDS)
    else:
        row.next_check_at, row.valid_until = None, now + WITHOUT_REFRESH
    row.save()


def _out(row: SignOn, reason: Reason, *, now: datetime, signs_in: bool = False) -> None:
    """Remove the rights and end the sessions of an account's user. API tokens end only with `signs_in` (refused at
    sign-in): an error of the provider during a background check must not stop scripts permanently.
    """
    row.refused, row.valid_until, row.next_check_at = reason.stored, now, None
    row.keep_refresh_token("")
    if row.user is not None:
        # Permanent: a later accepted sign-in restores none of it.
        if signs_in:
            end_access(row.user, now=now, actor=DRYDOCK)
        else:
            sessions.end_for_good([row.user])
        if not row.user.is_superuser:
            account_services.apply_rights(row.user, Rights(), now=now, actor=DRYDOCK)
    row.save()
