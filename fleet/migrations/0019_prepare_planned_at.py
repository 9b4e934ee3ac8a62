"""Column for the time at which a machine plans to prepare. A process of an earlier release writes rows without it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0018_route_wordings")]

    operations = [
        migrations.AddField("preparation", "prepare_planned_at", models.DateTimeField(blank=True, null=True)),
    ]
