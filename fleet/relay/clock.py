"""Beat keeps time by the database's clock: with its own, one that was set forward and back would send nothing until the
earlier time had come again, or tasks that had expired before they were sent.
"""

from typing import Any

from celery import signals

from fleet.operations import clock


@signals.beat_init.connect(dispatch_uid="fleet.relay.clock")
def _use_database_clock(sender: Any, **_: Any) -> None:
    sender.app.now = clock.now
