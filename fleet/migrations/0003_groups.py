"""The groups of people, so that the first admin finds them."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def make_groups(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for name in ("viewer", "operator", "admin"):
        apps.get_model("auth", "Group").objects.get_or_create(name=name)


class Migration(migrations.Migration):
    dependencies = [("fleet", "0002_timeline_is_append_only"), ("auth", "0012_alter_user_first_name_max_length")]

    operations = [migrations.RunPython(make_groups, migrations.RunPython.noop)]
