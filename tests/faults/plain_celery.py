"""The control: an order that lives in a Celery task and nowhere else, with the product's own settings for Celery."""

import os

import requests
from celery import Celery

TASK = "plain.start_event"

# Test collection imports this module, and Drydock's own app must stay the current one of that process.
app = Celery("plain", broker=os.environ.get("PLAIN_BROKER", ""), set_as_current=False)
app.conf.update(
    task_default_queue="plain",
    task_ignore_result=True,
    task_acks_late=os.environ.get("PLAIN_ACKS") == "late",
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)


# What one would add to be careful: it is tried again until Azure answers.
@app.task(name=TASK, autoretry_for=(requests.RequestException,), max_retries=10, retry_backoff=1, retry_backoff_max=2)
def start_event(url: str, event_id: str) -> None:
    """Ask Azure, at the metadata service of one machine, to start an event."""
    requests.post(
        f"{url}/metadata/scheduledevents?api-version=2020-07-01",
        headers={"Metadata": "true"},
        json={"StartRequests": [{"EventId": event_id}]},
        timeout=30,
    ).raise_for_status()
