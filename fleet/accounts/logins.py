"""Throttle of failed sign-ins. It slows down guessing, and guesses from elsewhere do not delay the rightful user.

An attempt is counted before its password is checked, so that parallel guesses are counted, too. Success resets the
count. Attempts from a device on which the user signed in before are counted per device; all others by name and address,
by address, and by name.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network

import structlog
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from fleet.accounts.sessions import browser_of
from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.secrets import hash_of, new_secret
from fleet.domain.timeline import EntryKind
from fleet.models import KnownDevice, LoginAttempts
from fleet.operations.timeline.entries import tell


@dataclass(frozen=True, slots=True)
class Limit:
    """Throttle rule, with times in seconds. The first `free` attempts have no delay. The next has a delay of `first`,
    which doubles with each attempt up to `most`. After the time `forgotten` without an attempt, counting starts again.
    """

    free: int
    first: int
    most: int
    forgotten: int

    def wait(self, count: int) -> int:
        """Return the required delay after the last of `count` attempts."""
        return min(self.first * 2 ** min(count - self.free, 30), self.most) if count >= self.free else 0


# A name on a device with an earlier sign-in.
DEVICE = Limit(10, 1, 60, 3600)
# All other attempts.
NAME_AND_ADDRESS = Limit(5, 1, 300, 3600)
ADDRESS = Limit(50, 1, 60, 300)
NAME = Limit(20, 30, 3600, 3600)
# After this many failures in a row, the password is accepted only on known devices, until a success there or a new
# password.
MOST_IN_A_ROW = 100
FOR_GOOD = 100 * 365 * 86400
IN_A_ROW = Limit(MOST_IN_A_ROW, FOR_GOOD, FOR_GOOD, FOR_GOOD)

# Second factors: per user, and per challenge, after which the password is requested again.
FACTOR = Limit(20, 3600, 3600, 3600)
CHALLENGE = Limit(5, FOR_GOOD, FOR_GOOD, FOR_GOOD)

DEVICE_DAYS = 90
MOST_DEVICES = 10
# Old counts that a new count removes at a time, and their age.
REMOVED = 100
OLD = timedelta(days=1)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One sign-in attempt. `wait` is 0.0 if the password may be checked. Otherwise it is the delay in seconds, or None
    if sign-in is currently possible only on known devices. `keys` are the counters that counted the attempt.
    """

    wait: float | None
    keys: tuple[str, ...] = ()
    known_device: bool = False


@transaction.atomic
def begin(*, username: str, address: str, device: str = "", now: datetime) -> Attempt:
    """Count a sign-in attempt before its password is checked, unless it must wait. `device` is the secret in the device
    cookie of the browser. The caller checks the password only if `wait` of the result is 0.0.
    """
    known = _known(username, device, now)
    limits = {known: DEVICE} if known else _limits(username, address)
    attempt, rows = _count(limits, now)
    if attempt.wait is None:
        log.warning("login.known_devices_only", address=address)
        return attempt
    if attempt.wait > 0:
        # Log neither the name nor the password: users type one into the field of the other.
        log.warning("login.throttled", address=address, seconds=round(attempt.wait))
        return attempt
    if any(limits[row.key] is IN_A_ROW and row.count == MOST_IN_A_ROW for row in rows):
        # Names without an account are not reported.
        for person in User.objects.filter(username=username):
            tell(EntryKind.LOGINS_REFUSED, DRYDOCK, at=now, person=person.get_username(), count=MOST_IN_A_ROW)
    if any(row.count == 1 for row in rows):
        old = LoginAttempts.objects.filter(since__lt=now - OLD, at__lt=now - OLD, count__lt=MOST_IN_A_ROW)
        LoginAttempts.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:REMOVED])).delete()
    return replace(attempt, known_device=bool(known))


def _count(limits: Mapping[str, Limit], now: datetime) -> tuple[Attempt, list[LoginAttempts]]:
    """Count an attempt by these keys, unless one of them must wait. Return the attempt, and the locked rows."""
    rows, waits = _locked(limits, now), [0.0]
    for row in rows:
        limit, passed = limits[row.key], (now - (row.at or row.since)).total_seconds()
        if passed >= limit.forgotten:
            row.count, row.since = 0, now
        wait = limit.wait(row.count)
        if wait == FOR_GOOD:
            return Attempt(None), rows
        waits.append(wait - passed)
    if max(waits) > 0:
        return Attempt(max(waits)), rows
    for row in rows:
        row.count, row.at = row.count + 1, now
    LoginAttempts.objects.bulk_update(rows, ["count", "since", "at"])
    return Attempt(0.0, tuple(limits)), rows


@transaction.atomic
def succeeded(attempt: Attempt, *, user: User, address: str) -> None:
    """Reset the failure counters of this user after a successful sign-in. Counters that are shared with other names or
    addresses are reduced by this attempt.
    """
    own = [key for key, limit in _limits(user.get_username(), address).items() if limit in (NAME_AND_ADDRESS, IN_A_ROW)]
    if attempt.known_device:
        own = [*attempt.keys, *own]
    LoginAttempts.objects.filter(key__in=own).delete()
    shared = [key for key in attempt.keys if key not in own]
    LoginAttempts.objects.filter(key__in=shared, count__gt=0).update(count=F("count") - 1)


@transaction.atomic
def know_device(
    *, user: User, device: str, now: datetime, actor: Actor | None = None, way: str = "", agent: str = ""
) -> str:
    """Record this browser as a known device of a user after a sign-in by the method `way`. `device` is the secret in
    its cookie, if any. If `actor` is given, the user is notified of a new device.

    Return the secret for the cookie of a new device, or an empty string if the device is already known.
    """
    if _known(user.get_username(), device, now):
        return ""
    secret = new_secret("device")
    KnownDevice.objects.create(user=user, secret_hash=hash_of(secret), made_at=now)
    newest = KnownDevice.objects.filter(user=user).order_by("-made_at", "-pk").values_list("pk", flat=True)
    KnownDevice.objects.filter(pk__in=list(newest[MOST_DEVICES:])).delete()
    if actor is not None:
        names = {**browser_of(agent), "way": way, "from_address": actor.address}
        tell(EntryKind.NEW_DEVICE, actor, at=now, person=user.get_username(), **names)
    return secret


@transaction.atomic
def begin_factor(*, user: User, challenge: str, now: datetime) -> Attempt:
    """Count an attempt at a second factor. In the result, `wait` is None if this `challenge` accepts no more attempts;
    the user must then enter the password again.
    """
    limits = {_key("factor", f"{user.pk}"): FACTOR, _key("challenge", challenge): CHALLENGE}
    attempt, _ = _count(limits, now)
    if attempt.wait:
        log.warning("login.factor_throttled", person=user.get_username(), seconds=round(attempt.wait))
    return attempt


def factor_succeeded(attempt: Attempt) -> None:
    """Reset the counters of an attempt at a second factor that was right."""
    LoginAttempts.objects.filter(key__in=attempt.keys).delete()


def release(*, username: str) -> None:
    """Reset the failure counters of this user name, after a new password or on request of an administrator."""
    keys = [_key("name", username), _key("row", username)]
    keys += [_key("factor", f"{pk}") for pk in User.objects.filter(username=username).values_list("pk", flat=True)]
    LoginAttempts.objects.filter(key__in=keys).delete()


def _locked(keys: Collection[str], now: datetime) -> list[LoginAttempts]:
    new = [LoginAttempts(key=key, count=0, since=now, at=now) for key in keys]
    LoginAttempts.objects.bulk_create(new, ignore_conflicts=True)
    # A fixed order prevents deadlocks between concurrent attempts.
    return list(LoginAttempts.objects.select_for_update().filter(key__in=list(keys)).order_by("key"))


def _known(username: str, device: str, now: datetime) -> str:
    """Return the counter key of this name on this device, or an empty string if the device is unknown."""
    if not device:
        return ""
    since = now - timedelta(days=DEVICE_DAYS)
    row = KnownDevice.objects.filter(user__username=username, secret_hash=hash_of(device), made_at__gt=since).first()
    return _key("device", f"{row.pk}") if row else ""


def _limits(username: str, address: str) -> dict[str, Limit]:
    place = _place(address)
    return {
        _key("both", f"{username}\n{place}"): NAME_AND_ADDRESS,
        _key("address", place): ADDRESS,
        _key("name", username): NAME,
        _key("row", username): IN_A_ROW,
    }


def _place(address: str) -> str:
    """Return the address to count by: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    return str(ip_network(f"{address}/64", strict=False)) if isinstance(parsed, IPv6Address) else address


def _key(kind: str, text: str) -> str:
    return hashlib.sha256(f"{kind}\n{text.casefold()}".encode()).hexdigest()
