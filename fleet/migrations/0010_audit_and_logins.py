"""The timeline cannot be truncated either, and failed logins are counted."""

from django.db import migrations, models

# Tests empty all tables between them; their databases set this parameter, and nothing else does.
FORWARD = """
CREATE OR REPLACE FUNCTION fleet_entry_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' AND current_setting('drydock.may_truncate', true) = 'tests' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'The timeline is append-only: % of % is refused.', TG_OP, TG_TABLE_NAME;
END
$$;
CREATE TRIGGER fleet_entry_is_not_emptied BEFORE TRUNCATE ON fleet_entry
    FOR EACH STATEMENT EXECUTE FUNCTION fleet_entry_is_append_only();
CREATE TRIGGER fleet_seal_is_not_emptied BEFORE TRUNCATE ON fleet_seal
    FOR EACH STATEMENT EXECUTE FUNCTION fleet_entry_is_append_only();
"""

BACKWARD = """
DROP TRIGGER fleet_seal_is_not_emptied ON fleet_seal;
DROP TRIGGER fleet_entry_is_not_emptied ON fleet_entry;
"""


class Migration(migrations.Migration):
    dependencies = [("fleet", "0009_signing_keys")]

    operations = [
        migrations.RunSQL(FORWARD, BACKWARD),
        migrations.CreateModel(
            name="LoginAttempts",
            fields=[
                ("key", models.TextField(primary_key=True, serialize=False)),
                ("count", models.IntegerField()),
                ("since", models.DateTimeField()),
            ],
            options={"indexes": [models.Index(fields=["since"], name="login_attempts_by_age")]},
        ),
    ]
