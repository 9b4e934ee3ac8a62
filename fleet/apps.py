"""The one Django app. It is the place where the Celery app and the system checks become known to every process."""

from django.apps import AppConfig

from fleet import celery, checks

__all__ = ["FleetConfig", "celery", "checks"]


class FleetConfig(AppConfig):
    name = "fleet"
    label = "fleet"
    verbose_name = "Drydock"
    default_auto_field = "django.db.models.BigAutoField"
