"""Machines can be decommissioned, by an administrator or by rules of the settings."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0020_discounted_machines")]

    operations = [
        migrations.AddField("machine", "decommissioned_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField("machine", "unlisted_at", models.DateTimeField(blank=True, null=True)),
    ]
