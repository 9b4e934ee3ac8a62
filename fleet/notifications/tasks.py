"""Celery tasks and worker thread of notifications, and pings to an external watchdog service.

The URL of the watchdog works as at healthchecks: a ping reports success. With WATCHDOG_REPORT_FAILURES, a ping to
`/fail` below that URL reports failures immediately.
"""

import math
import threading
import time
from contextlib import closing, suppress
from datetime import datetime

import structlog
from celery import shared_task
from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection, connections, transaction

from fleet.domain.db_timeouts import CHANNELS_AT_ONCE, use_profile
from fleet.domain.desk import RelayHealth
from fleet.models import LastRun
from fleet.models.reconcile import seconds_since_run
from fleet.notifications import delivery, router
from fleet.notifications.grouping import ROUTED_WITHIN, NotificationHealth
from fleet.notifications.queries import notification_health, router_lag
from fleet.notifications.sender.jobs import EVERYWHERE, HttpJob
from fleet.notifications.sender.pool import send
from fleet.operations import clock
from fleet.operations.locks import Lock, try_take
from fleet.projections.desk.status_bar import overview

LIMIT_SECONDS = 10.0
WATCHDOG = "watchdog"

log = structlog.get_logger(__name__)


def troubles(*, now: datetime) -> tuple[str, ...]:
    """Return the codes of current failures for the watchdog. An installation without agents or channels counts as
    healthy.
    """
    seen, health = overview(now=now), notification_health(now=now)
    is_late = router_lag(now) > ROUTED_WITHIN.total_seconds()
    codes = {
        "no-live-agents": seen.presence.all and not seen.presence.live,
        "nobody-reconciles": seen.relay is RelayHealth.STANDS_STILL,
        "nobody-routes": health is NotificationHealth.STANDS_STILL or is_late,
        "all-channels-fail": health is NotificationHealth.ALL_FAIL,
        "clocks-wrong": seen.wrong_clocks or not clock.is_clock_correct(),
    }
    return tuple(code for code, is_wrong in codes.items() if is_wrong)


@transaction.atomic
def is_ping_due(*, now: datetime, via: str) -> bool:
    """Return whether this process must ping the watchdog now, and record that it does. Only one process pings, once a
    minute.
    """
    # A little less than a minute, so that a caller each minute is never too early.
    if not try_take(Lock.WATCHDOG) or seconds_since_run(WATCHDOG, now=now) < 55:
        return False
    LastRun.objects.update_or_create(name=WATCHDOG, defaults={"ran_at": now, "via": via})
    return True


def ping(*, via: str) -> bool:
    """Ping the watchdog if this is due and nothing has failed. Return whether this call sent a ping."""
    now = clock.now()
    return bool(settings.WATCHDOG_URL) and is_ping_due(now=now, via=via) and _report(now)


def _report_in_thread(now: datetime) -> None:
    with closing(connection), suppress(OperationalError, InterfaceError):
        _report(now)


def _report(now: datetime) -> bool:
    wrong = troubles(now=now)
    if wrong and not settings.WATCHDOG_REPORT_FAILURES:
        return False
    url = f"{settings.WATCHDOG_URL}/fail" if wrong else settings.WATCHDOG_URL
    # The installation's own setting: the URL may be in a private network.
    job = HttpJob("POST", url, body=", ".join(wrong).encode(), allow=EVERYWHERE, limit_seconds=LIMIT_SECONDS)
    answer = send(job, now=now)
    if not answer.ok:
        log.warning("watchdog.unheard", status=answer.status, error=answer.error.value)
    return True


# The worker of a process: it routes new entries, and sends to each channel in a thread of its own.

# The worker keeps running if something is due this soon, and checks at this interval meanwhile.
LINGER_SECONDS = 3.0
LOOK_SECONDS = 0.5
# Celery routes every two seconds; after this long without a run, the web process does.
QUIET_SECONDS = 5.0


class Worker:
    """Worker thread that routes and sends; one for each process. `start` may be called from any thread and returns at
    once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()
        self._sending: set[int] = set()
        self._renewed = 0.0

    def start(self, *, via: str) -> None:
        """Start the worker thread, or wake it if it is running. It routes and sends new entries. `via` names the kind
        of process.
        """
        with self._lock:
            self._woken.set()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, args=(via,), name="notifications", daemon=True)
                self._thread.start()

    def _run(self, via: str) -> None:
        use_profile("messages")
        quiet_since = time.monotonic()
        try:
            while not self._ends(quiet_since):
                self._woken.clear()
                pause, busy = self._round(via)
                if busy:
                    quiet_since = time.monotonic()
                self._woken.wait(pause)
        except DatabaseError as error:
            log.warning("notifications.failing", error=f"{type(error).__name__}: {error}")
        finally:
            connections.close_all()

    def _ends(self, quiet_since: float) -> bool:
        """Return whether the worker has been idle long enough to end. The lock prevents `start` from relying on a
        thread that is just ending.
        """
        with self._lock:
            if self._woken.is_set() or time.monotonic() - quiet_since < LINGER_SECONDS:
                return False
            self._thread = None
            return True

    def _round(self, via: str) -> tuple[float, bool]:
        """Route and send once. Return the seconds until the next round, and whether there is still work."""
        if not clock.may_clock_decide():
            # Another process routes and sends after this one has been quiet for a while.
            return LOOK_SECONDS, bool(self._sending)
        now = clock.now()
        with self._lock:
            sending = sorted(self._sending)
        if sending and time.monotonic() - self._renewed >= delivery.RENEW_SECONDS:
            delivery.renew(sending, now=now)
            self._renewed = time.monotonic()
        routed = router.route(now=now, via=via)
        schedule = delivery.schedule()
        for channel_id, due_at in schedule:
            if due_at <= now:
                self._begin(channel_id)
        if routed.behind:
            # New entries cannot be read yet, because an earlier transaction is still open.
            return 0.05, True
        seconds = min(((due_at - now).total_seconds() for _, due_at in schedule if due_at > now), default=math.inf)
        return min(max(seconds, 0.02), LOOK_SECONDS), seconds <= LINGER_SECONDS or bool(self._sending)

    def _begin(self, channel_id: int) -> None:
        with self._lock:
            if channel_id in self._sending or len(self._sending) >= CHANNELS_AT_ONCE:
                return
            self._sending.add(channel_id)
        threading.Thread(target=self._work_off, args=(channel_id,), name=f"channel {channel_id}", daemon=True).start()

    def _work_off(self, channel_id: int) -> None:
        use_profile("messages")
        try:
            delivery.work_off(channel_id, clock=clock.now)
        except DatabaseError as error:
            log.warning("channel.failing", channel=channel_id, error=f"{type(error).__name__}: {error}")
        finally:
            connections.close_all()
            with self._lock:
                self._sending.discard(channel_id)
            self._woken.set()


worker = Worker()


def tell_if_quiet() -> None:
    """Start the worker in this process if no process has routed for a while. The web process calls this while Celery is
    unavailable.
    """
    if clock.may_clock_decide() and seconds_since_run(router.NAME, now=clock.now()) >= QUIET_SECONDS:
        worker.start(via="web")
    now = clock.now()
    # At most one process pings within a minute. In a thread of its own, because the caller must not wait for the
    # response.
    if settings.WATCHDOG_URL and is_ping_due(now=now, via="web"):
        threading.Thread(target=_report_in_thread, args=(now,), name="watchdog", daemon=True).start()


# Celery's tasks: they start the worker in this process and return at once, so that no order waits for notifications.


@shared_task(name="fleet.notifications.tasks.tell", ignore_result=True)
def tell() -> None:
    """Route and send new entries. Scheduled by Celery beat, and sent whenever an entry is committed that may cause
    notifications.
    """
    worker.start(via="celery")


@shared_task(name="fleet.notifications.tasks.watch", ignore_result=True)
def watch() -> None:
    """Ping the external watchdog. Scheduled by Celery beat."""
    ping(via="celery")
