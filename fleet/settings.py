"""Django's settings: those of the environment (`fleet.configuration`), and what follows from them or never changes."""

import os
import secrets
import ssl
from importlib.metadata import version
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from csp.constants import NONE, SELF
from drydock_agent import wire

from fleet.configuration import *
from fleet.configuration import table
from fleet.domain.sign_on import HeaderLogin, subject_prefix
from fleet.logs import configure_structlog, logging_config, say_all_in

# Lines of this process have their form before anything else can go wrong.
say_all_in(table["LOG_FORMAT"].value(os.environ))
# The names come with their types from the table; these are their values.
globals().update(found := {name: each.value(os.environ) for name, each in table.items()})
BASE_DIR = Path(__file__).resolve().parent.parent
# Next to the package in the source tree, inside it where installed: other folders next to it there belong to other
# packages.
INSTALLED_TEMPLATES = Path(__file__).resolve().parent / "templates"

# Addresses and servers

# Without a key each process creates one. This is safe, but sessions end with the process. A system check reports it.
if SECRET_KEY_IS_OURS := not found["SECRET_KEY"]:
    SECRET_KEY = secrets.token_urlsafe(48)
# (present name, former name) of each setting that only its former name sets; a check warns.
FORMER_SETTING_NAMES = [(name, each.former) for name, each in table.items() if each.is_former(os.environ)]
ALLOWED_HOSTS = [*ALLOWED_HOSTS, urlsplit(BASE_URL).hostname or "", "localhost", "127.0.0.1", "[::1]"]
CSRF_TRUSTED_ORIGINS = ["{0.scheme}://{0.netloc}".format(urlsplit(BASE_URL))]


def database(url: str) -> dict[str, Any]:
    """Return Django's database configuration for the URL. For an empty URL it is a dummy, which a system check
    reports.
    """
    if not url:
        return {"ENGINE": "django.db.backends.dummy"}
    found: dict[str, Any] = dict(environ.Env.db_url_config(url))
    # A network that drops packets in silence must not hold a request for minutes.
    quick = {"connect_timeout": 5, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
    found["OPTIONS"] = {**quick, "application_name": "drydock", **found.get("OPTIONS", {})}
    found["CONN_MAX_AGE"] = DATABASE_CONNECTION_SECONDS
    found["CONN_HEALTH_CHECKS"] = True
    return found


DATABASES = {"default": database(DATABASE_URL)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Drydock's own

DECOMMISSION_DAYS = {
    "gone": DECOMMISSION_GONE_DAYS,
    "terminated": DECOMMISSION_TERMINATED_DAYS,
    "unlisted": DECOMMISSION_UNLISTED_DAYS,
}
# What agents are compared with.
VERSION = version("drydock-fleet")
PROTOCOL = wire.PROTOCOL
# Days by kind of rows (`fleet.audit.archive_format.ArchiveKind`, and documents of events); None is for ever.
RETENTION_DAYS = {
    "observations": DOCUMENT_RETENTION_DAYS,
    "event_documents": EVENT_DOCUMENT_RETENTION_DAYS,
    "entries": TIMELINE_RETENTION_DAYS,
    "notifications": CACHE_NOTIFICATION_RETENTION_DAYS,
    "messages": NOTIFICATION_RETENTION_DAYS,
}
OIDC_SUBJECT_PREFIX = subject_prefix(OIDC_ISSUER)
PROXY_SIGN_IN = HeaderLogin(
    networks=tuple(ip_network(network, strict=False) for network in PROXY_SIGN_IN_FROM),
    secret=PROXY_SIGN_IN_SECRET,
    name=PROXY_SIGN_IN_USER_HEADER.lower(),
    groups=PROXY_SIGN_IN_GROUPS_HEADER.lower(),
)

# Django

INSTALLED_APPS = [
    "fleet",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "csp",
    "django_filters",
    "django_htmx",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "js_lib_bootstrap5",
    "lucide",
    "rest_framework",
]
MIDDLEWARE = [
    "fleet.request_context.AskedMiddleware",
    "fleet.request_context.VisibilityMiddleware",
    "fleet.accounts.post_login.LastSeenMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "fleet.accounts.post_login.ProxyMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "fleet.dashboard.failures.PageForEveryFailure",
]
ROOT_URLCONF = "fleet.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [INSTALLED_TEMPLATES if INSTALLED_TEMPLATES.is_dir() else BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "libraries": {
                "drydock": "fleet.dashboard.tags",
                "accounts": "fleet.accounts.text",
                "audit": "fleet.audit.text",
                "notifications": "fleet.notifications.labels",
            },
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "fleet.dashboard.pages.common",
                "fleet.accounts.single_sign_on.notices",
            ],
        },
    },
]
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "fleet.accounts.single_sign_on.SignOnBackend",
    "fleet.accounts.post_login.HeaderBackend",
]
LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True

# People

LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "account_login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
SESSION_COOKIE_AGE = SESSION_SECONDS
SESSION_COOKIE_NAME = "drydock_session"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BASE_URL.startswith("https://")
CSRF_FAILURE_VIEW = "fleet.dashboard.failures.forged"
CSRF_COOKIE_NAME = "drydock_csrf"
# Only this very host can have set it, where the connection is encrypted.
DEVICE_COOKIE_NAME = ("__Host-" if SESSION_COOKIE_SECURE else "") + "drydock_device"

# The door is django-allauth's, with our adapters. Its own throttle lets strangers lock people out: one throttle, ours.

ACCOUNT_ADAPTER = "fleet.accounts.post_login.AccountAdapter"
ACCOUNT_RATE_LIMITS = False
ACCOUNT_SESSION_REMEMBER = True
# A login may be in the middle of something: the view says where it leads.
ACCOUNT_AUTHENTICATED_LOGIN_REDIRECTS = False
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_DEFAULT_HTTP_PROTOCOL = urlsplit(BASE_URL).scheme
SOCIALACCOUNT_ADAPTER = "fleet.accounts.single_sign_on.SignOnAdapter"
# Providers' tokens are stored only for their refresh, in a table of their own.
SOCIALACCOUNT_STORE_TOKENS = False
MFA_ADAPTER = "fleet.accounts.post_login.FactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_TOTP_ISSUER = "Drydock"
MFA_PASSKEY_LOGIN_ENABLED = True

# The permissions of our pages in a browser. Bootstrap's style sheet has its small images as `data:`.

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "connect-src": [SELF],
        "font-src": [SELF],
        "img-src": [SELF, "data:"],
        "manifest-src": [SELF],
        "worker-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    },
}
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 31_536_000 if BASE_URL.startswith("https://") else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_PROXY else None
# Plain HTTP that a proxy passes on is redirected to BASE_URL. Without a proxy the scheme is unknown, and each answer
# would redirect to itself; a check reports it.
SECURE_SSL_REDIRECT = BASE_URL.startswith("https://") and BEHIND_PROXY
SECURE_SSL_HOST = urlsplit(BASE_URL).netloc
# What else lies below our host name is not ours to promise.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

# Static files: collected, compressed and named by content where STATIC_ROOT is set, else right from the packages.

STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = STATIC_ROOT is None
# What `make site` has built from docs/, at /docs/.
WHITENOISE_ROOT = Path(__file__).resolve().parent / "site"
WHITENOISE_INDEX_FILE = True
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "staticfiles": {
        "BACKEND": (
            "whitenoise.storage.CompressedManifestStaticFilesStorage"
            if STATIC_ROOT
            else "django.contrib.staticfiles.storage.StaticFilesStorage"
        ),
    },
}

# REST

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "fleet.accounts.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "fleet.api.problems.exception_handler",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Drydock",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "DESCRIPTION": (
        "Scheduled events of Azure, decided once. Everything that a page can do, through the same operations and the"
        " same guards. Times are RFC 3339 in UTC with `Z`; `seconds_left` counts from `server_time`. Errors are problem"
        " documents (RFC 9457)."
    ),
    "SCHEMA_PATH_PREFIX": "/api/v1/",
    # Enums are listed where they are used, not as components of their own.
    "POSTPROCESSING_HOOKS": [],
    "COMPONENT_SPLIT_PATCH": False,
    # Docstrings are written for readers of the code, not for callers.
    "DISABLE_DOCSTRING_DESCRIPTIONS": True,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "filter": True},
}

# Celery tasks only trigger work, and have no results. With default options, a worker stalls for minutes after a network
# silently drops packets, and a sender waits for ever for an unavailable broker.


def broker(url: str) -> str:
    """Return the Redis URL in Celery's form, which differs only for a socket."""
    if not url.startswith("unix://"):
        return url
    parts = urlsplit(url)
    number = parts.query.removeprefix("db=") or "0"
    return f"redis+socket://{parts.path}?virtual_host={number}"


CELERY_BROKER_URL = broker(REDIS_URL)
CELERY_BROKER_USE_SSL = {"ssl_cert_reqs": ssl.CERT_REQUIRED} if REDIS_URL.startswith("rediss://") else None
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_timeout": 4,
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
    "health_check_interval": 3,
    "retry_on_timeout": True,
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0.1,
}
CELERY_BROKER_CONNECTION_TIMEOUT = 2
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.1}
CELERY_RESULT_BACKEND = None
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_DEFAULT_QUEUE = "drydock"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_REDIRECT_STDOUTS = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_TIMEZONE = "UTC"
# The schedule is defined in code, so beat needs no schedule file.
CELERY_BEAT_SCHEDULER = "celery.beat:Scheduler"
CELERY_BEAT_MAX_LOOP_INTERVAL = 1
CELERY_BEAT_SCHEDULE = {
    "advance": {
        "task": "fleet.relay.tasks.advance",
        "schedule": BEAT_SECONDS,
        # While no worker is there, hints must not pile up.
        "options": {"expires": max(4 * BEAT_SECONDS, 8)},
    },
    "watch": {"task": "fleet.notifications.tasks.watch", "schedule": 60.0, "options": {"expires": 60}},
    "tell": {"task": "fleet.notifications.tasks.tell", "schedule": 2.0, "options": {"expires": 8}},
    "seal": {"task": "fleet.relay.tasks.seal", "schedule": 60.0, "options": {"expires": 60}},
    "renew": {"task": "fleet.relay.tasks.renew", "schedule": 30.0, "options": {"expires": 30}},
    "partition": {"task": "fleet.relay.tasks.partition", "schedule": 60.0, "options": {"expires": 60}},
    "retain": {"task": "fleet.relay.tasks.retain", "schedule": 60.0, "options": {"expires": 60}},
    "refresh": {"task": "fleet.relay.tasks.refresh", "schedule": 30.0, "options": {"expires": 30}},
    "tidy_up": {"task": "fleet.relay.tasks.tidy_up", "schedule": 60.0, "options": {"expires": 60}},
    "compare": {"task": "fleet.relay.tasks.compare", "schedule": 30.0, "options": {"expires": 30}},
}

# Logs

LOGGING = logging_config(level=LOG_LEVEL, style=LOG_FORMAT)
configure_structlog()
