"""The database itself refuses to change or delete a line of the timeline."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION fleet_entry_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'The timeline is append-only: % of fleet_entry is refused.', TG_OP;
END
$$;
CREATE TRIGGER fleet_entry_is_append_only BEFORE UPDATE OR DELETE ON fleet_entry
    FOR EACH STATEMENT EXECUTE FUNCTION fleet_entry_is_append_only();
"""

BACKWARD = """
DROP TRIGGER fleet_entry_is_append_only ON fleet_entry;
DROP FUNCTION fleet_entry_is_append_only();
"""


class Migration(migrations.Migration):
    dependencies = [("fleet", "0001_initial")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
