"""Indexes for the first open events of a set by time left, and for the last change of an event of a set, built while
agents and users continue to work.
"""

from django.contrib.postgres.operations import RemoveIndexConcurrently
from django.db import migrations, models

from fleet.migrations._together import AddIndexAgain


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("fleet", "0021_decommissioned_machines")]

    operations = [
        AddIndexAgain(
            "scheduledevent",
            models.Index(
                fields=["availability_set", "not_before", "id"],
                name="event_open_in_set",
                condition=models.Q(status__in=["SCHEDULED", "STARTED"]),
            ),
        ),
        AddIndexAgain(
            "scheduledevent",
            models.Index(fields=["availability_set", "-changed_at"], name="event_by_set_change"),
        ),
        RemoveIndexConcurrently("scheduledevent", "event_open_by_set"),
    ]
