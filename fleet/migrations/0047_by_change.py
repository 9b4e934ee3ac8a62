from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    # Nobody waits while indexes are built.
    atomic = False

    dependencies = [
        ("fleet", "0046_changes"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name='approval',
            index=models.Index(fields=['changed_at'], name='approval_by_change'),
        ),
        AddIndexConcurrently(
            model_name='approval',
            index=models.Index(fields=['-decided_at', '-id'], name='approval_newest'),
        ),
        AddIndexConcurrently(
            model_name='claim',
            index=models.Index(fields=['changed_at'], name='claim_by_change'),
        ),
        AddIndexConcurrently(
            model_name='coverage',
            index=models.Index(fields=['changed_at'], name='coverage_by_change'),
        ),
        AddIndexConcurrently(
            model_name='hold',
            index=models.Index(fields=['changed_at'], name='hold_by_change'),
        ),
        AddIndexConcurrently(
            model_name='maintenance',
            index=models.Index(fields=['changed_at'], name='maintenance_by_change'),
        ),
        AddIndexConcurrently(
            model_name='order',
            index=models.Index(fields=['changed_at'], name='order_by_change'),
        ),
        AddIndexConcurrently(
            model_name='scheduledevent',
            index=models.Index(fields=['changed_at'], name='event_by_change'),
        ),
        AddIndexConcurrently(
            model_name='scheduledevent',
            index=models.Index(fields=['not_before', 'id'], name='event_by_not_before'),
        ),
    ]
