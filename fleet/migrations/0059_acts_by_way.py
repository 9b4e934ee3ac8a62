from django.db import migrations, models

from fleet.models.partitions import AddIndexToPartitions

ACTING = ("page", "api", "rule", "command", "slack", "pagerduty")


class Migration(migrations.Migration):
    # Nobody waits while an index is built.
    atomic = False

    dependencies = [
        ("fleet", "0058_sets_that_ask_again"),
    ]

    operations = [
        AddIndexToPartitions(
            model_name="entry",
            index=models.Index(
                fields=["via", "-at", "-id"], name="entry_acts_by_via", condition=models.Q(via__in=ACTING)
            ),
        ),
    ]
