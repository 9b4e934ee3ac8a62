"""Control of accounts: who created or owned an account, knew its password or linked it to a provider.

Two accounts that the same person controls count as one person where a decision needs two.
"""

from collections.abc import Collection
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import F

from fleet.domain.actor import Actor
from fleet.domain.reasons import Reason
from fleet.models import AccountLink, ApiToken, ServiceAccount

MADE, OWNER, PASSWORD, SIGN_ON = "made", "owner", "password", "sign-on"


def note(kind: str, account: User, person: User | None, *, now: datetime) -> None:
    """Record that `person` created or owns `account`, or got a credential of it. Call it in the transaction of that
    change.

    Does nothing for the person's own account, or if no person made the change. `kind` is one of the constants here.
    """
    if person is not None and person.pk != account.pk:
        AccountLink.objects.create(account=account, person=person, kind=kind, since=now)


def note_password(account: User, actor: Actor, *, now: datetime) -> None:
    """Record who knows the new password of an account, and that earlier passwords are no longer valid."""
    AccountLink.objects.filter(account=account, kind=PASSWORD, until=None).update(until=now)
    note(PASSWORD, account, actor.person, now=now)


def one_person(proposer: User | None, other: User, *, at: datetime, also: Collection[int] = ()) -> Reason | None:
    """Return why `other` cannot be the second person for a proposal made at the time `at`; None if they can.

    They cannot if they ever controlled the proposing account, directly or through other accounts. `also` are further
    such people (row ids). Nor can an account whose password one of these people knows, or knew at that time.
    """
    if proposer is None:
        return None
    behind = _closure({proposer.pk, *also})
    if other.pk in behind:
        return Reason("consent-of-owner", name=other.get_username()) if other.pk in also else _why(proposer, other)
    holders = _closure({other.pk}, held_at=at)
    if behind & holders:
        return Reason("consent-of-held", name=other.get_username())
    return None


def _why(proposer: User, other: User) -> Reason:
    kinds = set(AccountLink.objects.filter(account=proposer, person=other).values_list("kind", flat=True))
    if OWNER in kinds or ServiceAccount.objects.filter(user=proposer, owner=other).exists():
        return Reason("consent-of-owner", name=other.get_username())
    if ApiToken.objects.filter(user=proposer, made_by=other).exists():
        return Reason("consent-of-token-maker", name=other.get_username())
    return Reason("consent-of-maker", name=other.get_username())


def _closure(accounts: Collection[int], *, held_at: datetime | None = None) -> set[int]:
    """Return these accounts (row ids) and all people who ever controlled them, directly or through other accounts.

    With `held_at`, only people who know or then knew a password, or created a token, that is or then was valid. Two or
    three queries for each step.
    """
    found, step = set(accounts), set(accounts)
    while step:
        links = AccountLink.objects.filter(account__in=step)
        tokens = ApiToken.objects.filter(user__in=step, made_by__isnull=False).exclude(made_by=F("user"))
        if held_at is not None:
            links = links.filter(kind=PASSWORD).exclude(until__lt=held_at)
            tokens = tokens.exclude(revoked_at__lt=held_at).exclude(expires_at__lt=held_at)
        people = {*links.values_list("person", flat=True), *tokens.values_list("made_by", flat=True)}
        if held_at is None:
            people |= set(
                ServiceAccount.objects.filter(user__in=step, owner__isnull=False).values_list("owner", flat=True)
            )
        step = {person for person in people if person is not None} - found
        found |= step
    return found
