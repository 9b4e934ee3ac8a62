"""Runbooks of sets and services, and silences of events and sets."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0023_node_name")]

    operations = [
        migrations.AddField("availabilityset", "runbook", models.TextField(blank=True, db_default="", default="")),
        migrations.AddField("availabilityset", "silenced_until", models.DateTimeField(blank=True, null=True)),
        migrations.AddField("scheduledevent", "silenced_until", models.DateTimeField(blank=True, null=True)),
        migrations.CreateModel(
            "Service",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.TextField(unique=True)),
                ("runbook", models.TextField(blank=True, db_default="", default="")),
            ],
        ),
    ]
