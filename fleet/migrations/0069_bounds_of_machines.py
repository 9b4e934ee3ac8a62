"""How much of what a machine brought was counted against its bounds within an hour."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0068_requirements_kept")]

    operations = [
        migrations.AddField(
            model_name="presencerow",
            name="bounded_since",
            field=models.DateTimeField(blank=True, null=True),
        ),
        *(
            migrations.AddField(
                model_name="presencerow", name=name, field=models.IntegerField(db_default=0, default=0)
            )
            for name in ("new_caches", "new_statements", "quarantined")
        ),
        migrations.AddIndex(
            model_name="presencerow",
            index=models.Index(
                fields=["bounded_since"], name="presence_quarantined", condition=models.Q(("quarantined__gt", 0))
            ),
        ),
    ]
