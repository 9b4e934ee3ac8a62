from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("fleet", "0047_by_change"),
    ]

    operations = [
        migrations.AddField(
            model_name='spool',
            name='acknowledged_before',
            field=models.BigIntegerField(default=0, db_default=0),
        ),
    ]
