from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models.functions import Upper


class Migration(migrations.Migration):
    # Nobody waits while indexes are built.
    atomic = False

    dependencies = [
        ("fleet", "0049_poll_gaps"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="entry",
            index=models.Index(fields=["kind", "-at", "-id"], name="entry_by_kind"),
        ),
        AddIndexConcurrently(
            model_name="entry",
            index=models.Index(fields=["-at", "-id"], name="entry_told", condition=~models.Q(kind="event_sighted")),
        ),
        AddIndexConcurrently(
            model_name="machine",
            index=models.Index(fields=["resource_name", "id"], name="machine_by_name"),
        ),
        AddIndexConcurrently(
            model_name="machine",
            index=models.Index(Upper("resource_name"), name="machine_by_name_in_any_case"),
        ),
        AddIndexConcurrently(
            model_name="machine",
            index=models.Index(fields=["enrolled_at", "id"], name="machine_by_enrolment"),
        ),
    ]
