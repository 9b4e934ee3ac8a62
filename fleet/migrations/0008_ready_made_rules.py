"""Two rules to begin with, both off: what Microsoft's sample for scheduled events approves by itself.

Source: "Scheduled Events for Linux VMs in Azure", Microsoft, dated 01/25/2023.
"""

from datetime import UTC, datetime

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

READY_MADE = [
    {
        "position": 1,
        "name": "User-initiated events",
        "reason": "Somebody asked for it: waiting until NotBefore gains nothing.",
        "action": "approve_now",
        "sources": ["User"],
        "accepts": ["lost-for-good"],
    },
    {
        "position": 2,
        "name": "Freezes of 0 to 8 seconds",
        "reason": "Our machines stand a pause of up to 8 seconds at any time.",
        "action": "approve_now",
        "event_types": ["Freeze"],
        "min_duration_seconds": 0,
        "max_duration_seconds": 8,
    },
]


def offer(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    rules = apps.get_model("fleet", "Rule")
    if rules.objects.exists():
        return
    now = datetime.now(UTC)
    for fields in READY_MADE:
        rules.objects.create(**fields, enabled=False, created_at=now, changed_at=now)


class Migration(migrations.Migration):

    dependencies = [
        ("fleet", "0007_deciding"),
    ]

    operations = [
        migrations.RunPython(offer, migrations.RunPython.noop),
    ]
