"""Models under the names of the house; their tables stay as they are."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0011_drills")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RenameModel("Head", "LatestDocument"),
                migrations.AlterModelTable("latestdocument", "fleet_head"),
                migrations.AlterField(
                    "latestdocument",
                    "machine",
                    models.OneToOneField(
                        on_delete=models.PROTECT,
                        primary_key=True,
                        related_name="latest_document",
                        serialize=False,
                        to="fleet.machine",
                    ),
                ),
                migrations.RenameModel("Sweep", "LastRun"),
                migrations.AlterModelTable("lastrun", "fleet_sweep"),
            ],
        ),
    ]
