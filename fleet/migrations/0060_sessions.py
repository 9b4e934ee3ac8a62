from datetime import timedelta

import django.db.models.deletion
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import migrations, models
from django.utils import timezone

from fleet.domain.secrets import hash_of

WAYS = {
    'fleet.dashboard.people.sign_on.SignOnBackend': 'sign-on',
    'fleet.dashboard.people.proxy.HeaderBackend': 'proxy',
}


def list_sessions(apps, schema_editor):
    """Sessions that go on already are listed with what is known of them."""
    known = apps.get_model('fleet', 'PersonSession')
    people = set(apps.get_model('auth', 'User').objects.values_list('pk', flat=True))
    age = timedelta(seconds=settings.SESSION_COOKIE_AGE)
    store, rows = SessionStore(), []
    going_on = apps.get_model('sessions', 'Session').objects.filter(expire_date__gt=timezone.now())
    for session in going_on.iterator(chunk_size=500):
        told = store.decode(session.session_data)
        user_id = str(told.get(SESSION_KEY, ''))
        if not user_id.isdigit() or int(user_id) not in people:
            continue
        rows.append(
            known(
                user_id=int(user_id),
                key_hash=hash_of(session.session_key),
                way=WAYS.get(told.get(BACKEND_SESSION_KEY), ''),
                # When it was written last.
                last_seen_at=session.expire_date - age,
            )
        )
    known.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)


class Migration(migrations.Migration):
    dependencies = [
        ('fleet', '0059_acts_by_way'),
        ('sessions', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='PersonSession',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key_hash', models.TextField(unique=True)),
                ('way', models.TextField(blank=True, default='')),
                ('browser', models.TextField(blank=True, default='')),
                ('system', models.TextField(blank=True, default='')),
                ('address', models.TextField(blank=True, default='')),
                ('last_address', models.TextField(blank=True, default='')),
                ('began_at', models.DateTimeField(blank=True, null=True)),
                ('last_seen_at', models.DateTimeField()),
                (
                    'user',
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={'indexes': [models.Index(fields=['last_seen_at'], name='person_session_by_age')]},
        ),
        migrations.AddField(
            model_name='apitoken',
            name='allowed_from',
            field=models.JSONField(db_default=[], default=list),
        ),
        migrations.AddField(
            model_name='apitoken',
            name='told_days',
            field=models.SmallIntegerField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name='apitoken',
            index=models.Index(
                condition=models.Q(('revoked_at__isnull', True)), fields=['expires_at'], name='token_by_expiry'
            ),
        ),
        migrations.RunPython(list_sessions, migrations.RunPython.noop, elidable=True),
    ]
