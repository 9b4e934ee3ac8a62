"""The Celery app. A task is only a hint: the row is the queue, and what a lost task would have done is found again."""

import os
from typing import Any

from celery import Celery
from celery.signals import worker_init

from fleet.domain import patience

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleet.settings")

app = Celery("fleet")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["fleet.relay", "fleet.notify"])
# Beside the tasks: what counts them.
app.autodiscover_tasks(["fleet.relay"], related_name="counts")


@worker_init.connect(dispatch_uid="fleet.celery")
def _act_as_relay(**_: Any) -> None:
    """Before its threads or processes are there: all of them are as patient as the relay is."""
    patience.all_act_as("relay")
