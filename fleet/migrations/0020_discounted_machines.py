"""An administrator can discount the reports of a machine."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0019_prepare_planned_at")]

    operations = [
        migrations.AddField("machine", "discounted_at", models.DateTimeField(blank=True, null=True)),
    ]
