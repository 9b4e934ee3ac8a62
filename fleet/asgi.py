"""The one ASGI application: `granian --interface asgi fleet.asgi:application`.

Agents, streams and probes are answered right here; everything else is Django's, as WSGI in threads of this process.
"""

import os
from datetime import UTC, datetime

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleet.settings")
# This loads Django's apps; the gateway's own modules import models, so they come after it.
django = get_wsgi_application()

from fleet.dashboard.failures import page_of  # noqa: E402
from fleet.gateway import celery_counts  # noqa: E402
from fleet.gateway.app import Gateway  # noqa: E402
from fleet.gateway.django_pages import Pages  # noqa: E402
from fleet.gateway.limits import GatewayLimits  # noqa: E402
from fleet.notify.teller import tell_if_quiet  # noqa: E402
from fleet.projections.desk import gauges, last_known  # noqa: E402

limits = GatewayLimits.from_settings()
# The gateway itself knows no projections: what it counts for Prometheus, what it keeps, and
# who tells people when Celery is gone, is handed to it here.
application = Gateway(
    pages=Pages(django, threads=limits.django_threads, queue=limits.django_queue, page_of=page_of),
    limits=limits,
    measure=lambda: [*gauges.measure(now=datetime.now(UTC)), *celery_counts.measure()],
    learn=lambda: last_known.refresh(now=datetime.now(UTC)),
    tell=tell_if_quiet,
)
