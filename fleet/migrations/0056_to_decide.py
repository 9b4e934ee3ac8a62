from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    # Nobody waits while indexes are built.
    atomic = False

    dependencies = [
        ("fleet", "0055_former_names"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="scheduledevent",
            index=models.Index(
                fields=["not_before", "id"], name="event_to_decide", condition=models.Q(status="SCHEDULED", drill=False)
            ),
        ),
        AddIndexConcurrently(
            model_name="scheduledevent",
            index=models.Index(
                fields=["first_seen_at", "id"],
                name="event_to_decide_by_age",
                condition=models.Q(status="SCHEDULED", drill=False),
            ),
        ),
        AddIndexConcurrently(
            model_name="scheduledevent",
            index=models.Index(
                fields=["not_before", "id"],
                name="event_open_drill",
                condition=models.Q(status__in=["SCHEDULED", "STARTED"], drill=True),
            ),
        ),
        AddIndexConcurrently(
            model_name="availabilityset",
            index=models.Index(fields=["service"], name="set_by_service"),
        ),
    ]
