"""The backend's settings, with nothing but the baseline's one view."""

from fleet.settings import *  # noqa: F403

ROOT_URLCONF = "bench.drf"
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
