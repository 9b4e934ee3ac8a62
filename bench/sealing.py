"""Rows a second through the seals, and verified again: `manage.py with_servers -- python -m bench.sealing`.

It wants an empty database of its own: `with_servers` starts one where `DATABASE_URL` is not set.
"""

import os
import resource
import time
from datetime import UTC, datetime

import django
from django.core.management import call_command
from django.db import connection

ROWS = int(os.environ.get("ROWS", "500000"))
FILL = """
INSERT INTO fleet_entry (at, kind, actor, via, text, why, before, after, data, request_id, address)
SELECT now(), 'set_changed', 'ada', 'page', 'ada said that it belongs to the service “shop” (' || number || ').',
       'because', '{"service": ""}', '{"service": "shop"}', '{}', md5(number::text), '192.0.2.7'
FROM generate_series(1, %s) AS number
"""


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleet.settings")
    django.setup()
    from fleet.audit import seals as seal  # noqa: PLC0415
    from fleet.audit import seals as verify  # noqa: PLC0415

    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute(FILL, [ROWS])
    began = time.monotonic()
    sealed = seal.seal(now=datetime.now(UTC), via="bench", most_seals=1_000)
    seconds = time.monotonic() - began
    print(f"sealed: {sealed.rows} rows in {seconds:.1f} s, {sealed.rows / seconds:,.0f} rows/s")
    began = time.monotonic()
    found = verify.verify(now=datetime.now(UTC), tell=print)
    seconds = time.monotonic() - began
    print(f"verified: {found.rows} rows in {seconds:.1f} s, {found.rows / seconds:,.0f} rows/s")
    print(f"most memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


if __name__ == "__main__":
    main()
