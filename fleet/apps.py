"""The one app. Loading it loads the Celery app, so that every process knows the broker, and the system checks."""

from django.apps import AppConfig

from fleet import checks
from fleet.celery import app as celery_app


class FleetConfig(AppConfig):
    name = "fleet"
    verbose_name = "Drydock"
    celery = celery_app
    checks = checks
