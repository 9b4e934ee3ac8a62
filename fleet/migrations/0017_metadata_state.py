"""Columns for what an agent states of its metadata service, and for the notice that a scale set configures. A process of
an earlier release writes rows without them.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0016_names_0_2")]

    operations = [
        migrations.AddField("availabilityset", "terminate_notice_seconds", models.IntegerField(blank=True, null=True)),
        *(
        migrations.AddField("presencerow", name, models.TextField(blank=True, db_default="", default=""))
        for name in ("poll_problem", "events_version", "instance_version")
        ),
    ]
