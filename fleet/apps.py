"""The Django app. Loading it loads what every process needs: the Celery app with its broker, the system checks, the
limits of database connections, and the registrations of the annexes.
"""

from importlib import import_module

from django.apps import AppConfig

from fleet import checks, database
from fleet.celery import app as celery_app

# Parts that import the core and that the core never imports: each registers what the core shows of it.
ANNEXES = ("accounts", "notifications", "audit")


class FleetConfig(AppConfig):
    name = "fleet"
    verbose_name = "Drydock"
    celery = celery_app
    checks = checks
    database = database

    def import_models(self) -> None:
        super().import_models()
        for annex in ANNEXES:
            import_module(f"fleet.{annex}.models")

    def ready(self) -> None:
        for annex in ANNEXES:
            import_module(f"fleet.{annex}.registration")
