import django.db.models.deletion
from django.db import migrations, models
from django.db.models.functions import Now

# Sixteen minutes: `fleet.domain.intake.LEAP`. A trigger, since processes of the release before write polls, too.
FORWARD = """
    CREATE FUNCTION fleet_poll_leaps() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO fleet_pollgap (machine_id, begins_at, ends_at)
        VALUES (NEW.machine_id, COALESCE(OLD.last_poll_at, OLD.watched_from), NEW.last_poll_at);
        RETURN NULL;
    END $$;
    CREATE TRIGGER fleet_poll_leaps AFTER UPDATE OF last_poll_at ON fleet_presencerow FOR EACH ROW
        WHEN (NEW.last_poll_at > COALESCE(OLD.last_poll_at, OLD.watched_from) + interval '16 minutes')
        EXECUTE FUNCTION fleet_poll_leaps();
"""
BACKWARD = "DROP FUNCTION fleet_poll_leaps() CASCADE;"


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0048_spool_marks'),
    ]

    operations = [
        # Of machines that are there, from now on; the value is stored once, not in each row.
        migrations.AddField(
            model_name='presencerow',
            name='watched_from',
            field=models.DateTimeField(blank=True, db_default=Now(), null=True),
        ),
        migrations.AlterField(
            model_name='presencerow',
            name='watched_from',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name='PollGap',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('begins_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('machine', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='poll_gaps', to='fleet.machine')),
            ],
            options={
                'indexes': [models.Index(fields=['machine', '-ends_at'], name='poll_gap_newest')],
            },
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
