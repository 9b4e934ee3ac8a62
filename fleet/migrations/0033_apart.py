"""What tells a set from another of its name; computed once for those that are there."""

from collections import defaultdict

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from fleet.domain.sets import PROVISIONAL, told_apart


def tell_apart(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    sets = apps.get_model("fleet", "AvailabilitySet").objects
    twins = defaultdict(list)
    for row in sets.filter(merged_into=None).exclude(kind=PROVISIONAL).order_by("pk"):
        twins[row.name.lower()].append(row)
    for found in twins.values():
        places = [(row.kind, row.resource_group, row.subscription) for row in found]
        for row, apart in zip(found, told_apart(places), strict=True):
            if apart:
                sets.filter(pk=row.pk).update(apart=apart)


class Migration(migrations.Migration):
    dependencies = [("fleet", "0032_look_at_all")]

    operations = [
        migrations.AddField("availabilityset", "apart", models.TextField(blank=True, db_default="", default="")),
        migrations.RunPython(tell_apart, migrations.RunPython.noop, elidable=True),
    ]
