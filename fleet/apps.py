"""The one app. Loading it loads what every process needs: the Celery app, so that it knows the broker, the system
checks, and the limits of connections to the database.
"""

from django.apps import AppConfig

from fleet import checks, database
from fleet.celery import app as celery_app


class FleetConfig(AppConfig):
    name = "fleet"
    verbose_name = "Drydock"
    celery = celery_app
    checks = checks
    database = database
