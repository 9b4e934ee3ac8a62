"""A route to begin with, so that a first channel is told at once of what needs somebody."""

from datetime import UTC, datetime

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

NAME = "Whatever needs somebody"
# Neither what people do themselves (claims, decisions) nor what an announced event goes through on its way to its end.
MOMENTS = [
    "event.first_seen",
    "event.changed",
    "approval.proposed",
    "approval.overdue",
    "approval.refused",
    "event.ended",
    "source.quiet",
    "set.unwatched",
    "coverage.opened",
    "maintenance.announced",
    "maintenance.ended",
    "audit.failed",
    "storage.trouble",
    "channel.failing",
]


def offer(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    routes = apps.get_model("fleet", "Route")
    if routes.objects.exists():
        return
    now = datetime.now(UTC)
    routes.objects.create(position=1, name=NAME, moments=sorted(MOMENTS), created_at=now, changed_at=now)


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0036_needs_live"),
    ]

    operations = [
        migrations.RunPython(offer, migrations.RunPython.noop),
    ]
