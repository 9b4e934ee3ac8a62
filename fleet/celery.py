"""The Celery app. A task only triggers work that database rows describe; work of a lost task is found again in the
rows.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any

from celery import Celery
from celery.signals import beat_init, celeryd_init, setup_logging, worker_init, worker_shutting_down
from django.conf import settings

from fleet import database
from fleet.domain import db_timeouts
from fleet.domain.db_timeouts import TELLING
from fleet.logs import line_of

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleet.settings")
# How long a worker may take to end after its signal.
STOP_SECONDS = 10


class App(Celery):
    """Celery app that prints no banners of worker and beat if logs are JSON lines."""

    @cached_property
    def Worker(self) -> Any:  # noqa: N802 - Celery's own name
        return self._without_banner(super().Worker)

    @cached_property
    def Beat(self) -> Any:  # noqa: N802 - Celery's own name
        return self._without_banner(super().Beat)

    def _without_banner(self, program: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **options: Any) -> Any:
            return program(*args, **options | ({"quiet": True} if _lines_are_json() else {}))

        return made


def _lines_are_json() -> bool:
    return bool(settings.LOG_FORMAT == "json")


app = App("fleet")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["fleet.relay", "fleet.accounts", "fleet.notifications", "fleet.audit"])
# Counters of tasks, the trace of the decision that a task belongs to, and the clock of beat.
app.autodiscover_tasks(["fleet.relay"], related_name="counts")


@worker_init.connect(dispatch_uid="fleet.celery")
def _act_as_relay(sender: Any = None, **_: Any) -> None:
    """Set the timeouts and the maximum number of database connections before threads or processes start. All use the
    profile `relay`: one connection for each task, one for the worker itself, and those of notifications.
    """
    db_timeouts.use_profile_everywhere("relay")
    database.opens_at_most(int(sender.concurrency) + 1 + TELLING, kind="worker")


@beat_init.connect(dispatch_uid="fleet.celery")
def _act_as_beat(**_: Any) -> None:
    """Set short timeouts for beat. It uses one connection to read the database's clock, and must not wait long
    for it.
    """
    db_timeouts.use_profile_everywhere("relay")
    database.opens_at_most(1, kind="beat")


@worker_shutting_down.connect(dispatch_uid="fleet.celery")
def _end_in_time(**_: Any) -> None:
    """Stop a worker in time even if Redis hangs. Otherwise Celery would send several commands, each several times,
    which takes more than half a minute. No work is lost, because database rows show what remains to be done.
    """
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.alarm(STOP_SECONDS)


@setup_logging.connect(dispatch_uid="fleet.celery")
def _log_as_set(**_: Any) -> None:
    """Do nothing. A receiver of this signal prevents Celery from setting up logging, which Django has done already."""


@celeryd_init.connect(dispatch_uid="fleet.celery")
def _say_the_end_as_a_line(**_: Any) -> None:
    """Write the messages of Celery's signal handlers as JSON lines. They bypass `logging`, which a signal handler must
    not use.
    """
    if _lines_are_json():
        line = line_of("json")
        # Only workers have this module, and it is loaded at this point.
        worker = sys.modules["celery.apps.worker"]
        vars(worker)["safe_say"] = lambda words, file=None: os.write(2, f"{line(words)}\n".encode())
