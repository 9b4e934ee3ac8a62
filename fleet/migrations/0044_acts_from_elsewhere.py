from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models

ACTING = ("page", "api", "rule", "command", "slack", "pagerduty")


class Migration(migrations.Migration):
    # The timeline is the largest table: nobody waits while its indexes are built, and the old ones go last.
    atomic = False

    dependencies = [
        ("fleet", "0043_coming_back"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="entry",
            index=models.Index(
                fields=["actor", "-at", "-id"], name="entry_acts_by_actor", condition=models.Q(("via__in", ACTING))
            ),
        ),
        AddIndexConcurrently(
            model_name="entry",
            index=models.Index(fields=["-at", "-id"], name="entry_acts", condition=models.Q(("via__in", ACTING))),
        ),
        RemoveIndexConcurrently(model_name="entry", name="entry_by_actor"),
        RemoveIndexConcurrently(model_name="entry", name="entry_of_acts"),
    ]
