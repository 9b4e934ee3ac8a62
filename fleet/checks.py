"""System checks: report faulty settings in plain sentences before the first request."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register

from fleet.domain.sign_on import LOOPBACK

# Wider than the largest private network: an `EGRESS_ALLOWLIST` with such a network restricts nothing.
WIDEST = {4: 8, 6: 7}
SET_SERVERS = "Set it, or use `drydock-fleet with_servers -- ...`."


@register()
def missing(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Yield errors about settings that every installation needs."""
    if not settings.DATABASE_URL:
        yield Error("DATABASE_URL is not set.", hint=SET_SERVERS, id="fleet.E001")
    if not settings.REDIS_URL:
        yield Error("REDIS_URL is not set.", hint=SET_SERVERS, id="fleet.E002")
    if settings.SECRET_KEY_IS_OURS:
        yield Error("SECRET_KEY is not set.", hint="Give every process the same long random text.", id="fleet.E003")


@register()
def contradictory(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Yield errors and warnings about settings that contradict each other or have another name now."""
    for name, former in settings.FORMER_SETTING_NAMES:
        yield checks.Warning(
            f"{former} is now {name}.", hint="Rename it. The former name is still read.", id="fleet.W007"
        )
    redis = urlsplit(settings.REDIS_URL)
    database = redis.query.removeprefix("db=") if redis.scheme == "unix" else redis.path.strip("/")
    if database not in ("", "0"):
        hint = "Azure Managed Redis has database 0 only."
        yield checks.Warning("REDIS_URL names a database other than 0.", hint=hint, id="fleet.W001")
    limits = settings.MACHINE_LIVE_SECONDS, settings.MACHINE_LATE_SECONDS, settings.MACHINE_GONE_SECONDS
    if not limits[0] < limits[1] < limits[2]:
        yield Error(
            "MACHINE_LIVE_SECONDS, MACHINE_LATE_SECONDS and MACHINE_GONE_SECONDS have to rise in this order.",
            hint="They are {:g}, {:g} and {:g}.".format(*limits),
            id="fleet.E004",
        )
    if settings.EMAIL_USE_TLS and settings.EMAIL_USE_SSL:
        yield Error("EMAIL_USE_TLS and EMAIL_USE_SSL exclude each other.", hint="Set one of them.", id="fleet.E007")


@register()
def exposed(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Yield errors and warnings about unsafe settings: a wide EGRESS_ALLOWLIST, plain HTTP, DEBUG, or a short
    SECRET_KEY.
    """
    for network in (ip_network(network, strict=False) for network in settings.EGRESS_ALLOWLIST):
        if network.prefixlen < WIDEST[network.version]:
            hint = "Name the networks of your receivers: users who may write a channel's URL reach whatever is in them."
            yield checks.Warning(
                f"EGRESS_ALLOWLIST lets notifications reach all of {network}.", hint=hint, id="fleet.W003"
            )
    address = urlsplit(settings.BASE_URL)
    if address.hostname in LOOPBACK:
        return
    if address.scheme == "http":
        yield checks.Warning(
            "BASE_URL is plain HTTP beyond loopback: passwords and tokens can be read on the way.",
            hint="Put TLS in front and set BASE_URL to https://.",
            id="fleet.W002",
        )
    if settings.DEBUG:
        yield Error("DEBUG is on beyond loopback.", hint="Set DEBUG=no.", id="fleet.E005")
    if not settings.SECRET_KEY_IS_OURS and len(settings.SECRET_KEY) < 32:
        yield Error("SECRET_KEY is short.", hint="Use at least 32 random characters.", id="fleet.E006")


@register(Tags.security, deploy=True)
def proxy_is_trusted(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Yield a warning if no proxy terminates TLS, or if Drydock does not trust the proxy's headers."""
    if not settings.BASE_URL.startswith("https://"):
        hint = "Put a proxy with TLS in front, as docs/admin/proxy.md says, and set BASE_URL to https://."
        yield checks.Warning("BASE_URL is plain HTTP.", hint=hint, id="fleet.W004")
    elif not settings.BEHIND_PROXY:
        yield checks.Warning(
            "BASE_URL is https:// and BEHIND_PROXY is no: Drydock cannot tell which requests were encrypted.",
            hint="Set BEHIND_PROXY=yes where the proxy sets X-Forwarded-Proto itself.",
            id="fleet.W005",
        )
    elif not settings.TRUSTED_PROXIES:
        yield checks.Warning(
            "BEHIND_PROXY is yes and TRUSTED_PROXIES is empty: all clients seem to have the proxy's address.",
            hint="Set TRUSTED_PROXIES to the address from which the proxy connects.",
            id="fleet.W006",
        )
