"""Messages state the wording of the route that sent them. Only databases that were migrated between 0.1.0 and 0.2.0 have
the table of former wordings.
"""

from django.db import migrations

MOVE = """
DO $$ BEGIN
    IF to_regclass('fleet_routeversion') IS NOT NULL THEN
        UPDATE fleet_message AS message
        SET data = jsonb_build_object('route', former.name, 'wording', former.wording)
        FROM fleet_routeversion AS former
        WHERE former.route_id = message.route_id AND former.version = message.route_version;
        DROP TABLE fleet_routeversion;
    END IF;
END $$
"""


class Migration(migrations.Migration):
    dependencies = [("fleet", "0017_metadata_state")]

    operations = [migrations.RunSQL(MOVE, migrations.RunSQL.noop)]
