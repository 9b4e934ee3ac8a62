"""The backend's settings, with nothing but the baseline's one view."""

from fleet.settings import *  # noqa: F403

ROOT_URLCONF = "bench.drf"
# Doors of people want a middleware of their own, which the baseline is to do without.
INSTALLED_APPS = [app for app in INSTALLED_APPS if not app.startswith(("allauth", "django.contrib.admin"))]  # noqa: F405
# It states the length of answers; the load generator reads no chunks.
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
REST_FRAMEWORK = {
    # The view names its own.
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
}
# One round trip a request less: the baseline is to be as quick as it can be.
DATABASES = {"default": {**DATABASES["default"], "CONN_HEALTH_CHECKS": False}}  # noqa: F405
