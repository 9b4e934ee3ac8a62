"""What deciding needs: rules, claims, holds, waves, scopes, settings of people, and the seals of the timeline."""

import django.db.models.deletion
from django.conf import settings
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

# Until now deciding and granting were one moment.
DECIDED = "UPDATE fleet_approval SET decided_at = coalesce(granted_at, closed_at, now()) WHERE decided_at IS NULL"

SEALED = """
CREATE TRIGGER fleet_seal_is_append_only BEFORE UPDATE OR DELETE ON fleet_seal
    FOR EACH STATEMENT EXECUTE FUNCTION fleet_entry_is_append_only();
"""
UNSEALED = "DROP TRIGGER fleet_seal_is_append_only ON fleet_seal"


def make_approvers(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("auth", "Group").objects.get_or_create(name="approver")


class Migration(migrations.Migration):

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('fleet', '0006_caches'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Claim',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('via', models.TextField()),
                ('token_name', models.TextField(blank=True, default='')),
                ('comment', models.TextField(blank=True, default='')),
                ('at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Hold',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('rule_wording', models.TextField(blank=True, default='')),
                ('via', models.TextField()),
                ('token_name', models.TextField(blank=True, default='')),
                ('reason', models.TextField()),
                ('at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='NoApprovalWindow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.TextField()),
                ('reason', models.TextField()),
                ('starts_at', models.DateTimeField(blank=True, null=True)),
                ('ends_at', models.DateTimeField(blank=True, null=True)),
                ('weekdays', models.JSONField(blank=True, default=list)),
                ('from_time', models.TimeField(blank=True, null=True)),
                ('until_time', models.TimeField(blank=True, null=True)),
                ('time_zone', models.TextField(default='UTC')),
                ('set_pattern', models.TextField(blank=True, default='')),
                ('service', models.TextField(blank=True, default='')),
                ('resource_group', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField()),
                ('deleted_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Profile',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='profile', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('time_zone', models.TextField(blank=True, default='')),
                ('shortcuts', models.BooleanField(default=True)),
            ],
        ),
        migrations.CreateModel(
            name='Rule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.IntegerField(default=0)),
                ('name', models.TextField()),
                ('reason', models.TextField()),
                ('enabled', models.BooleanField(default=False)),
                ('action', models.TextField()),
                ('event_types', models.JSONField(blank=True, default=list)),
                ('sources', models.JSONField(blank=True, default=list)),
                ('min_duration_seconds', models.IntegerField(blank=True, null=True)),
                ('max_duration_seconds', models.IntegerField(blank=True, null=True)),
                ('unknown_duration', models.BooleanField(default=False)),
                ('set_pattern', models.TextField(blank=True, default='')),
                ('service', models.TextField(blank=True, default='')),
                ('resource_group', models.TextField(blank=True, default='')),
                ('weekdays', models.JSONField(blank=True, default=list)),
                ('from_time', models.TimeField(blank=True, null=True)),
                ('until_time', models.TimeField(blank=True, null=True)),
                ('time_zone', models.TextField(default='UTC')),
                ('min_notice_seconds', models.IntegerField(blank=True, null=True)),
                ('max_notice_seconds', models.IntegerField(blank=True, null=True)),
                ('accepts', models.JSONField(blank=True, default=list)),
                ('created_at', models.DateTimeField()),
                ('changed_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('deleted_at', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Scope',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.TextField()),
                ('pattern', models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name='Seal',
            fields=[
                ('number', models.BigIntegerField(primary_key=True, serialize=False)),
                ('sealed_at', models.DateTimeField()),
                ('last_xid', models.BigIntegerField()),
                ('last_id', models.BigIntegerField()),
                ('rows', models.BigIntegerField()),
                ('previous_hash', models.TextField()),
                ('hash', models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name='Wave',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('service', models.TextField(blank=True, default='')),
                ('state', models.TextField()),
                ('via', models.TextField()),
                ('token_name', models.TextField(blank=True, default='')),
                ('comment', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField()),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
                ('reason', models.TextField(blank=True, default='')),
            ],
        ),
        migrations.AddField(
            model_name='approval',
            name='consent_comment',
            field=models.TextField(blank=True, default=''),
        ),
        migrations.AddField(
            model_name='approval',
            name='consented_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='approval',
            name='consented_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='approval',
            name='decided_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.RunSQL(DECIDED, migrations.RunSQL.noop),
        migrations.AlterField(
            model_name='approval',
            name='decided_at',
            field=models.DateTimeField(),
        ),
        migrations.AddField(
            model_name='approval',
            name='due_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='approval',
            name='overrides',
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name='approval',
            name='rule_wording',
            field=models.TextField(blank=True, default=''),
        ),
        migrations.AddField(
            model_name='approval',
            name='turn',
            field=models.IntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='approval',
            name='when',
            field=models.TextField(default='now'),
        ),
        migrations.AddField(
            model_name='availabilityset',
            name='second_person',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='entry',
            name='address',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AddField(
            model_name='entry',
            name='after',
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='entry',
            name='before',
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='entry',
            name='request_id',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AddField(
            model_name='entry',
            name='token_name',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AddField(
            model_name='entry',
            name='why',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AddField(
            model_name='scheduledevent',
            name='drill',
            field=models.BooleanField(default=False),
        ),
        migrations.AddIndex(
            model_name='entry',
            index=models.Index(condition=models.Q(('via__in', ('page', 'api', 'rule', 'command'))), fields=['actor', '-at', '-id'], name='entry_by_actor'),
        ),
        migrations.AddIndex(
            model_name='entry',
            index=models.Index(condition=models.Q(('via__in', ('page', 'api', 'rule', 'command'))), fields=['-at', '-id'], name='entry_of_acts'),
        ),
        migrations.AddField(
            model_name='claim',
            name='by',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='claim',
            name='event',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='claims', to='fleet.scheduledevent'),
        ),
        migrations.AddField(
            model_name='hold',
            name='by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='hold',
            name='event',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='holds', to='fleet.scheduledevent'),
        ),
        migrations.AddField(
            model_name='noapprovalwindow',
            name='author',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='rule',
            name='author',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='hold',
            name='rule',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='holds', to='fleet.rule'),
        ),
        migrations.AddField(
            model_name='approval',
            name='rule',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='approvals', to='fleet.rule'),
        ),
        migrations.AddField(
            model_name='scope',
            name='user',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='scopes', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='wave',
            name='created_by',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='approval',
            name='wave',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='approvals', to='fleet.wave'),
        ),
        migrations.AddConstraint(
            model_name='claim',
            constraint=models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('event',), name='one_open_claim_per_event'),
        ),
        migrations.AddIndex(
            model_name='rule',
            index=models.Index(condition=models.Q(('deleted_at__isnull', True)), fields=['position', 'id'], name='rule_in_order'),
        ),
        migrations.AddConstraint(
            model_name='hold',
            constraint=models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('event',), name='one_open_hold_per_event'),
        ),
        migrations.AddConstraint(
            model_name='scope',
            constraint=models.UniqueConstraint(fields=('user', 'kind', 'pattern'), name='scope_once'),
        ),
        migrations.AddConstraint(
            model_name='scope',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['name', 'service', 'resource_group'])), name='scope_kind_known'),
        ),
        migrations.RunSQL(SEALED, UNSEALED),
        migrations.RunPython(make_approvers, migrations.RunPython.noop),
    ]
