"""The keys that sign orders."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0008_ready_made_rules'),
    ]

    operations = [
        migrations.CreateModel(
            name='SigningKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key_id', models.TextField(unique=True)),
                ('public_key', models.TextField()),
                ('private_key', models.TextField()),
                ('made_at', models.DateTimeField()),
                ('introduced_by', models.TextField(blank=True, default='')),
                ('introduction', models.TextField(blank=True, default='')),
                ('retires_at', models.DateTimeField(blank=True, null=True)),
                ('retired_by', models.TextField(blank=True, default='')),
                ('retirement', models.TextField(blank=True, default='')),
            ],
        ),
    ]
