"""ASGI application of the backend: `granian --interface asgi fleet.asgi:application`.

The gateway answers agents, streams and probes. Django answers all other requests, as WSGI in threads of this process.
"""

import logging
import os
import sys

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleet.settings")
# This loads Django's apps; the gateway's own modules import models, so they come after it.
try:
    django = get_wsgi_application()
except ImproperlyConfigured as error:
    # A setting is wrong: its one sentence helps, where it was found does not.
    logging.getLogger(__name__).critical("%s", error)
    sys.exit(1)

from fleet import database
from fleet.accounts.sessions import last_seen
from fleet.accounts.tasks import refresh_if_late
from fleet.api.views.machines import MAX_INVENTORY_BYTES
from fleet.dashboard.failures import page_of
from fleet.dashboard.machines import MAX_FORM_BYTES
from fleet.domain.db_timeouts import TELLING
from fleet.gateway import limits, metrics
from fleet.gateway.app import Gateway
from fleet.gateway.django_pages import Pages
from fleet.gateway.open_calls import OpenCalls
from fleet.notifications.tasks import tell_if_quiet
from fleet.operations import clock
from fleet.projections.desk import gauges

open_calls = OpenCalls()
values = metrics.at_most_every(metrics.SLOW_SECONDS, gauges.measure_values)
# The gateway does not import the annexes: their jobs, among them notifications while Celery is unavailable, and the
# metrics of the fleet are handed to it here.
application = Gateway(
    pages=Pages(
        django,
        threads=limits.DJANGO_THREADS,
        queue=limits.DJANGO_QUEUE,
        page_of=page_of,
        large={"/api/v1/inventory/": MAX_INVENTORY_BYTES, "/inventory/take/": MAX_FORM_BYTES},
        open_calls=open_calls,
    ),
    open_calls=open_calls,
    measure=lambda: [*gauges.measure(now=clock.now()), *values(), *metrics.measure()],
    jobs=[
        ("messages", tell_if_quiet, 1.0),
        ("last-seen", last_seen.write_if_due, 1.0),
        *([("sign-on", refresh_if_late, 30.0)] if settings.OIDC_ISSUER else []),
    ],
    # In addition to threads that stay there are those of the fallback for Celery, and the check for blind spots.
    opens=lambda own: database.opens_at_most(own + limits.DJANGO_THREADS + TELLING + 1, kind="web"),
)
