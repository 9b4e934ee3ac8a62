"""Control of accounts: the people who created or owned an account, or received its password or sign-on. Two accounts
that the same person controls count as one person where a decision takes two.
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
    """Record that this person made the account, owns it or was given what signs in as it, inside a transaction that
    makes it so. Nothing where it is their own, or no person did it.
    """
    if person is not None and person.pk != account.pk:
        AccountLink.objects.create(account=account, person=person, kind=kind, since=now)


def note_password(account: User, actor: Actor, *, now: datetime) -> None:
    """Record who knows an account's new password: the earlier passwords no longer sign in."""
    AccountLink.objects.filter(account=account, kind=PASSWORD, until=None).update(until=now)
    note(PASSWORD, account, actor.person, now=now)


def one_person(proposer: User | None, other: User, *, at: datetime, also: Collection[int] = ()) -> Reason | None:
    """Return why `other` cannot be the second person for a proposal made `at` a time; None where they can.

    People who ever controlled the proposing account, directly or through a chain, cannot; `also` are more of them (row
    ids). Nor can an account whose password one of these still knows, or knew at that time.
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
    """These accounts (row ids) and all who ever stood behind them; with `held_at` those alone who know a password, or
    made a token, of theirs that counts now or did then. Two or three queries for each step of the chain.
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
