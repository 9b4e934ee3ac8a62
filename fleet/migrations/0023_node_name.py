"""Column for the name of a machine's Kubernetes node. A process of an earlier release writes rows without it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0022_events_of_sets")]

    operations = [
        migrations.AddField("machine", "node_name", models.TextField(blank=True, db_default="", default="")),
        migrations.AddIndex(
            "machine",
            models.Index(fields=["node_name"], name="machine_by_node_name", opclasses=["text_pattern_ops"]),
        ),
    ]
