"""A process that only runs the notification worker, for tests that kill it: `python -m tests.messages.a_worker`."""

import os
import time
from datetime import timedelta

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleet.settings")
# The worker imports models, so it comes after this.
django.setup()

from fleet.notifications import delivery  # noqa: E402
from fleet.notifications.tasks import worker  # noqa: E402


def main() -> None:
    # A short lease, so that a test does not wait a quarter of a minute after each of many kills.
    delivery.LEASE, delivery.RENEW_SECONDS = timedelta(seconds=1), 0.3
    while True:
        worker.start(via="test")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
