"""System checks: a bad setting is said in a plain sentence, before the first request."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register

LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Wider than the largest private network: an `EGRESS_ALLOWLIST` with it is rather none at all.
WIDEST = {4: 8, 6: 7}


@register()
def required_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Without these there is nothing to work on."""
    found: list[CheckMessage] = []
    if not settings.DATABASE_URL:
        found.append(
            Error(
                "DATABASE_URL is not set.", hint="Set it, or use `drydock-fleet with_servers -- ...`.", id="fleet.E001"
            )
        )
    if not settings.REDIS_URL:
        found.append(
            Error("REDIS_URL is not set.", hint="Set it, or use `drydock-fleet with_servers -- ...`.", id="fleet.E002")
        )
    if settings.SECRET_KEY_IS_OURS:
        found.append(
            Error("SECRET_KEY is not set.", hint="Give every process the same long random text.", id="fleet.E003")
        )
    return found


@register()
def former_setting_names(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Return a warning for each setting that is set under the name of release 0.1.0."""
    return [
        checks.Warning(f"{former} is now {name}.", hint="Rename it. The former name is still read.", id="fleet.W007")
        for name, former in settings.FORMER_SETTING_NAMES
    ]


@register()
def redis_database(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Azure Managed Redis has one database; another number works elsewhere and fails there."""
    parts = urlsplit(settings.REDIS_URL)
    number = parts.query.removeprefix("db=") if parts.scheme == "unix" else parts.path.strip("/")
    if number in ("", "0"):
        return []
    return [
        checks.Warning(
            "REDIS_URL names a database other than 0.",
            hint="Azure Managed Redis knows database 0 only.",
            id="fleet.W001",
        )
    ]


@register()
def presence_in_order(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Live, late, silent, gone: each limit lies beyond the one before."""
    if settings.MACHINE_LIVE_SECONDS < settings.MACHINE_LATE_SECONDS < settings.MACHINE_GONE_SECONDS:
        return []
    return [
        Error(
            "MACHINE_LIVE_SECONDS, MACHINE_LATE_SECONDS and MACHINE_GONE_SECONDS have to rise in this order.",
            hint=f"They are {settings.MACHINE_LIVE_SECONDS:g}, {settings.MACHINE_LATE_SECONDS:g} and"
            f" {settings.MACHINE_GONE_SECONDS:g}.",
            id="fleet.E004",
        )
    ]


@register()
def open_to_others(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """What is fine on one's own machine is not where others can reach it."""
    parts = urlsplit(settings.BASE_URL)
    if parts.hostname in LOOPBACK:
        return []
    found: list[CheckMessage] = []
    if parts.scheme == "http":
        found.append(
            checks.Warning(
                "BASE_URL is plain HTTP beyond loopback: passwords and tokens can be read on the way.",
                hint="Put TLS in front and set BASE_URL to https://.",
                id="fleet.W002",
            )
        )
    if settings.DEBUG:
        found.append(Error("DEBUG is on beyond loopback.", hint="Set DEBUG=no.", id="fleet.E005"))
    if not settings.SECRET_KEY_IS_OURS and len(settings.SECRET_KEY) < 32:
        found.append(Error("SECRET_KEY is short.", hint="Use at least 32 random characters.", id="fleet.E006"))
    return found


@register(Tags.security, deploy=True)
def proxy_is_believed(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """TLS ends in front of us: who does not believe that takes each request for plain HTTP."""
    if not settings.BASE_URL.startswith("https://"):
        hint = "Put a proxy with TLS in front, as docs/admin/operating.md says, and set BASE_URL to https://."
        return [checks.Warning("BASE_URL is plain HTTP.", hint=hint, id="fleet.W004")]
    found: list[CheckMessage] = []
    if not settings.BEHIND_PROXY:
        found.append(
            checks.Warning(
                "BASE_URL is https:// and BEHIND_PROXY is no: nobody can tell which requests were encrypted.",
                hint="Set BEHIND_PROXY=yes where the proxy sets X-Forwarded-Proto itself.",
                id="fleet.W005",
            )
        )
    if settings.BEHIND_PROXY and not settings.TRUSTED_PROXIES:
        found.append(
            checks.Warning(
                "BEHIND_PROXY is yes and TRUSTED_PROXIES is empty: everybody seems to come from the proxy's address.",
                hint="Set TRUSTED_PROXIES to the address from which the proxy connects.",
                id="fleet.W006",
            )
        )
    return found


@register()
def mail_one_way(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """TLS begins at once, or after STARTTLS."""
    if not (settings.EMAIL_USE_TLS and settings.EMAIL_USE_SSL):
        return []
    return [Error("EMAIL_USE_TLS and EMAIL_USE_SSL exclude each other.", hint="Set one of them.", id="fleet.E007")]


@register()
def messages_kept_in(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """What lets messages reach everything is said, since it is easily written and undoes the guard."""
    networks = [ip_network(network, strict=False) for network in settings.EGRESS_ALLOWLIST]
    return [
        checks.Warning(
            f"EGRESS_ALLOWLIST lets messages reach all of {network}.",
            hint="Name the networks of your receivers: whoever may write a channel's URL reaches whatever is in them.",
            id="fleet.W003",
        )
        for network in networks
        if network.prefixlen < WIDEST[network.version]
    ]
