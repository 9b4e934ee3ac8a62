import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0060_sessions'),
    ]

    operations = [
        migrations.CreateModel(
            name='UnusedKey',
            fields=[
                ('machine', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='unused_key', serialize=False, to='fleet.machine')),
                ('found_by', models.TextField(unique=True)),
                ('proved_by', models.JSONField(default=list)),
                ('ask_hash', models.TextField(blank=True, default='')),
                ('attested', models.BooleanField(default=False)),
                ('given_at', models.DateTimeField()),
                ('join_token', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='fleet.jointoken')),
            ],
        ),
    ]
