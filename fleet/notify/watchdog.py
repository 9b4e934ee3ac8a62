"""Who tells when Drydock is dead? A service outside, which hears from us once a minute as long as all of it works.

The address is in the form of healthchecks: a ping to it says that all is well; with WATCHDOG_FAIL, one to `/fail` below
it says at once what is not.
"""

import threading
from contextlib import closing, suppress
from datetime import datetime

import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from fleet.domain.desk import RelayHealth
from fleet.domain.messages.alarms import ROUTED_WITHIN, TellHealth
from fleet.notify.sender.jobs import EVERYWHERE, HttpJob
from fleet.notify.sender.pool import send
from fleet.operations import clock
from fleet.operations.messages import watchdog
from fleet.projections.desk.fleet import overview
from fleet.projections.messages.alarms import tell_alarm
from fleet.projections.messages.gauges import router_lag

LIMIT_SECONDS = 10.0

log = structlog.get_logger(__name__)


def troubles(*, now: datetime) -> tuple[str, ...]:
    """What does not work, as codes; nothing where all does. An installation without agents or channels is well."""
    found = []
    seen = overview(now=now)
    if seen.presence.all and not seen.presence.live:
        found.append("no-live-agents")
    if seen.relay is RelayHealth.STANDS_STILL:
        found.append("nobody-reconciles")
    health = tell_alarm(now=now).health
    if health is TellHealth.STANDS_STILL or router_lag(now) > ROUTED_WITHIN.total_seconds():
        found.append("nobody-routes")
    if health is TellHealth.ALL_FAIL:
        found.append("all-channels-fail")
    if seen.wrong_clocks or not clock.is_right():
        found.append("clocks-wrong")
    return tuple(found)


def ping(*, via: str) -> bool:
    """One ping, unless somebody else made one within the minute or not all is well; whether one went out."""
    now = clock.now()
    if not settings.WATCHDOG_URL or not watchdog.mine(now=now, via=via):
        return False
    return _tell(now)


def ping_apart() -> None:
    """The same for a loop that must not wait for whoever listens."""
    now = clock.now()
    if settings.WATCHDOG_URL and watchdog.mine(now=now, via="web"):
        threading.Thread(target=_tell_apart, args=(now,), name="watchdog", daemon=True).start()


def _tell_apart(now: datetime) -> None:
    with closing(connection), suppress(OperationalError, InterfaceError):
        _tell(now)


def _tell(now: datetime) -> bool:
    wrong = troubles(now=now)
    if wrong and not settings.WATCHDOG_FAIL:
        return False
    url = f"{settings.WATCHDOG_URL}/fail" if wrong else settings.WATCHDOG_URL
    # The installation itself names it: it may stand inside.
    job = HttpJob("POST", url, body=", ".join(wrong).encode(), allow=EVERYWHERE, limit_seconds=LIMIT_SECONDS)
    answer = send(job, now=now)
    if not answer.ok:
        log.warning("watchdog.unheard", status=answer.status, error=answer.error.value)
    return True
