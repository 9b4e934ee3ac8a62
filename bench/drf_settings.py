"""The backend's settings, with nothing but the baseline's one view."""

from fleet.settings import *  # noqa: F403

ROOT_URLCONF = "bench.drf"
# The first states the length of answers, because the load generator reads no chunks; allauth demands the second.
MIDDLEWARE = ["django.middleware.common.CommonMiddleware", "allauth.account.middleware.AccountMiddleware"]
REST_FRAMEWORK = {
    # The view names its own.
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
}
# One round trip a request less: the baseline is to be as quick as it can be.
DATABASES = {"default": {**DATABASES["default"], "CONN_HEALTH_CHECKS": False}}  # noqa: F405
