"""Table of all backend settings: `fleet.settings` reads them, and docs/admin/settings.md is printed from it.

A setting is an environment variable. Each may also be given as `<NAME>_FILE`, the path of a file with the value, as
container platforms pass secrets. The file takes precedence over the variable. A former name of a setting is read if its
present name is not set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured

from fleet.domain.sign_on import issuer_fault


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: name, default as text, chapter, help text, and the name that release 0.1.0 used."""

    name: str
    default: str
    chapter: str
    help: str
    former: str = ""


SERVERS = "Servers and addresses"
MACHINES = "Machines and presence"
DECISIONS = "Decisions"
REPORTS = "Agent reports"
BROWSERS = "Browsers and users"
SIGN_ON = "Single sign-on"
MESSAGES = "Notifications"
RUNNING = "Operation"
KEEPING = "Retention and archive"
DEMO = "The demo"

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "DATABASE_URL",
        "",
        SERVERS,
        "Postgres 14 or later, as `postgresql://user:password@host:port/name`. Required.",
    ),
    Setting(
        "REDIS_URL",
        "",
        SERVERS,
        "Redis or Valkey, as `redis://`, `rediss://` or `unix://`. Carries wake-ups and ids only. Required.",
    ),
    Setting(
        "SECRET_KEY",
        "",
        SERVERS,
        "Signs sessions and encrypts the keys that sign orders. A long random text, the same for every "
        "process. Required.",
    ),
    Setting(
        "SECRET_KEY_FALLBACKS",
        "",
        SERVERS,
        "Earlier values of `SECRET_KEY` that are still accepted, separated by commas.",
    ),
    Setting(
        "BASE_URL",
        "http://127.0.0.1:8000",
        SERVERS,
        "Address at which users open Drydock. With `https`, cookies are sent over TLS only.",
    ),
    Setting(
        "ALLOWED_HOSTS",
        "",
        SERVERS,
        "Further accepted host names, separated by commas. The host of `BASE_URL` and loopback are always accepted.",
    ),
    Setting(
        "BEHIND_PROXY",
        "no",
        SERVERS,
        "`yes` if a reverse proxy terminates TLS and sets `X-Forwarded-Proto` itself.",
    ),
    Setting(
        "TRUSTED_PROXIES",
        "",
        SERVERS,
        "Addresses or networks of reverse proxies, separated by commas. Drydock takes client addresses from "
        "their `X-Forwarded-For` and records them in the audit.",
    ),
    Setting(
        "DATABASE_CONNECTION_SECONDS",
        "60",
        SERVERS,
        "Seconds for which a connection to Postgres is reused.",
        former="DATABASE_SECONDS",
    ),
    Setting(
        "MACHINE_LIVE_SECONDS",
        "60",
        MACHINES,
        "A machine is live if its last contact and its last successful poll are at most this many seconds ago.",
        former="LIVE_SECONDS",
    ),
    Setting(
        "MACHINE_LATE_SECONDS",
        "600",
        MACHINES,
        "A machine is late up to this many seconds after its last contact, and silent afterwards.",
        former="LATE_SECONDS",
    ),
    Setting(
        "MACHINE_GONE_SECONDS",
        "86400",
        MACHINES,
        "A silent machine is gone after this many seconds.",
        former="GONE_SECONDS",
    ),
    Setting(
        "CLOCK_TOLERANCE_SECONDS",
        "2",
        MACHINES,
        "Times that a machine reports are corrected if its clock differs by more than this.",
    ),
    Setting(
        "JOIN_TOKEN_SECONDS",
        "86400",
        MACHINES,
        "Default lifetime of a join token in seconds.",
    ),
    Setting(
        "ENROLMENT_POLICY",
        "",
        MACHINES,
        "How unknown machines enrol: `join` (with a join token or an attested document; an administrator "
        "admits the others), `auto` (with an attested document; an administrator admits the others), "
        "`attested` (with an attested document only), `admit` (an administrator admits each machine) or "
        "`token` (with a join token only, as in 0.1.0). Empty: the choice made on First steps. Before that "
        "choice: `auto` if ATTESTED_SUBSCRIPTIONS is set, `token` if there were machines or join tokens "
        "before release 0.2.0, otherwise `join`.",
    ),
    Setting(
        "ATTESTED_SUBSCRIPTIONS",
        "",
        MACHINES,
        "Ids of the subscriptions whose machines may enrol with an attested document, separated by commas. "
        "Empty: none.",
    ),
    Setting(
        "ATTESTED_ROOTS",
        "",
        MACHINES,
        "A folder of root and intermediate certificates (PEM or DER) for attested documents. Empty: the roots"
        " that Drydock ships.",
    ),
    Setting(
        "LEGACY_CREDENTIALS_UNTIL",
        "",
        MACHINES,
        "First day, as `2027-03-31` in UTC, on which agent calls without a signature of the machine's own key"
        " are rejected. Empty: credentials of 0.1.0 remain valid.",
    ),
    Setting(
        "AVAILABILITY_SET_TAG",
        "drydock:availability-set",
        MACHINES,
        "Azure tag that contains a VM's availability set, as `[kind:]name`.",
        former="SET_TAG",
    ),
    Setting(
        "SCOPED_READ_ACCESS",
        "no",
        BROWSERS,
        "`yes`: users with scopes see only what belongs to these scopes. Administrators see everything.",
    ),
    Setting(
        "APPROVAL_UNDO_SECONDS",
        "3",
        DECISIONS,
        "Undo period of approvals made on pages, 0 to 10 seconds. In the last minute before NotBefore "
        "approvals are dispatched immediately.",
    ),
    Setting(
        "ORDER_ANSWER_SECONDS",
        "3",
        DECISIONS,
        "Seconds to wait for a machine's answer to an order before another machine gets it.",
    ),
    Setting(
        "WAVE_RETURN_SECONDS",
        "600",
        DECISIONS,
        "A wave stops if a machine is not live this many seconds after its event ended.",
    ),
    Setting(
        "BEAT_SECONDS",
        "2",
        DECISIONS,
        "Interval at which Celery beat reconciles due orders.",
    ),
    Setting(
        "FALLBACK_TICK_SECONDS",
        "5",
        DECISIONS,
        "Interval at which the gateway reconciles due orders if Celery is unavailable.",
        former="TICKER_SECONDS",
    ),
    Setting(
        "INGEST_QUEUE_REPORTS",
        "20000",
        REPORTS,
        "Reports that may wait to be written before the gateway answers 503.",
    ),
    Setting(
        "AGENT_CALLS_PER_MINUTE",
        "600",
        REPORTS,
        "Calls of one machine per minute before the gateway answers 429.",
    ),
    Setting(
        "ENROLMENTS_PER_MINUTE",
        "6000",
        REPORTS,
        "Enrolments from one address per minute before the gateway answers 429.",
    ),
    Setting(
        "CREDENTIAL_CACHE_SECONDS",
        "600",
        REPORTS,
        "Seconds for which a process caches a verified machine credential.",
        former="CREDENTIAL_SECONDS",
    ),
    Setting(
        "SESSION_SECONDS",
        "43200",
        BROWSERS,
        "Lifetime of a session in seconds.",
    ),
    Setting(
        "STEP_UP_SECONDS",
        "600",
        BROWSERS,
        "Seconds for which a confirmation with a second factor, or with the password if there is none, remains valid.",
    ),
    Setting(
        "API_TOKEN_SECONDS",
        "7776000",
        BROWSERS,
        "Default lifetime of a new API token in seconds.",
    ),
    Setting(
        "STATUS_BAR_CACHE_SECONDS",
        "5",
        BROWSERS,
        "Seconds for which a web process caches the counts of the status bar, 0 to 60.",
    ),
    Setting(
        "DATABASE_MAX_GIGABYTES",
        "",
        SERVERS,
        "Maximum database size in GB. A notification is sent at 90 %. Empty: not monitored.",
    ),
    Setting(
        "PARTITION_ROWS",
        "5000000",
        SERVERS,
        "Rows per partition of a large table, at least 1000. A partition is archived as a whole. Fewer "
        "partitions are faster to query.",
    ),
    Setting(
        "STREAM_SECONDS",
        "200",
        BROWSERS,
        "Seconds after which a browser's event stream ends. The browser reconnects.",
    ),
    Setting(
        "STREAM_PING_SECONDS",
        "15",
        BROWSERS,
        "Interval of keep-alive messages on an event stream.",
    ),
    Setting(
        "OIDC_ISSUER",
        "",
        SIGN_ON,
        "Issuer URL of the OpenID Connect provider, exactly as the provider states it: "
        "`https://login.microsoftonline.com/TENANT-ID/v2.0` for Entra ID. Must be a single tenant, not "
        "`common`. Empty: single sign-on is disabled.",
    ),
    Setting(
        "OIDC_CLIENT_ID",
        "",
        SIGN_ON,
        "Application (client) id at the provider.",
    ),
    Setting(
        "OIDC_CLIENT_SECRET",
        "",
        SIGN_ON,
        "Client secret of the application.",
    ),
    Setting(
        "OIDC_CLAIM",
        "roles",
        SIGN_ON,
        "Claim of the ID token that the mapping reads: `roles` for app roles of Entra ID, `groups`, or a path"
        " such as `realm_access.roles`.",
    ),
    Setting(
        "OIDC_SCOPES",
        "openid,profile,email,offline_access",
        SIGN_ON,
        "Requested scopes, separated by commas. Without `offline_access` users sign in again every 15 minutes.",
    ),
    Setting(
        "OIDC_DISPLAY_NAME",
        "single sign-on",
        SIGN_ON,
        "Name of the provider on the sign-in page.",
    ),
    Setting(
        "OIDC_GRACE_SECONDS",
        "14400",
        SIGN_ON,
        "Seconds for which sessions remain valid while the provider is unavailable.",
    ),
    Setting(
        "LOCAL_PASSWORDS",
        "yes",
        SIGN_ON,
        "`no`: only the account of `EMERGENCY_ACCOUNT` can sign in with a local password.",
    ),
    Setting(
        "EMERGENCY_ACCOUNT",
        "",
        SIGN_ON,
        "User name of one local account for use while single sign-on fails. Every use notifies all administrators.",
    ),
    Setting(
        "PROXY_SIGN_IN_FROM",
        "",
        SIGN_ON,
        "Addresses or networks, separated by commas, of a reverse proxy that authenticates users and sends "
        "their names in headers. Empty: these headers are ignored.",
    ),
    Setting(
        "PROXY_SIGN_IN_SECRET",
        "",
        SIGN_ON,
        "Secret that this proxy sends in `X-Proxy-Secret`, at least 32 characters.",
    ),
    Setting(
        "PROXY_SIGN_IN_USER_HEADER",
        "X-Remote-User",
        SIGN_ON,
        "Header with the user's name.",
    ),
    Setting(
        "PROXY_SIGN_IN_GROUPS_HEADER",
        "X-Remote-Groups",
        SIGN_ON,
        "Header with the user's roles or groups, separated by commas, for the mapping.",
    ),
    Setting(
        "PROXY_SIGN_IN_STREAM_SECONDS",
        "30",
        SIGN_ON,
        "Seconds after which the event stream of a user authenticated by this proxy ends. It resumes only if "
        "the proxy still names the same user.",
    ),
    Setting(
        "EGRESS_ALLOWLIST",
        "",
        MESSAGES,
        "Private networks that notifications may reach in addition to the public internet, separated by "
        "commas, such as `10.1.0.0/16`.",
    ),
    Setting(
        "EGRESS_PROXY",
        "",
        MESSAGES,
        "HTTP proxy for notifications, as `host:port`. The proxy then decides which addresses can be reached.",
    ),
    Setting(
        "EGRESS_CA_FILE",
        "",
        MESSAGES,
        "PEM file of certificate authorities to trust for receivers, in addition to the public ones.",
    ),
    Setting(
        "EMAIL_HOST",
        "",
        MESSAGES,
        "SMTP server for e-mail channels.",
    ),
    Setting(
        "EMAIL_PORT",
        "25",
        MESSAGES,
        "Port of the SMTP server.",
    ),
    Setting(
        "EMAIL_HOST_USER",
        "",
        MESSAGES,
        "User name at the SMTP server. Empty: no authentication.",
    ),
    Setting(
        "EMAIL_HOST_PASSWORD",
        "",
        MESSAGES,
        "Password at the SMTP server.",
    ),
    Setting(
        "EMAIL_USE_TLS",
        "no",
        MESSAGES,
        "`yes`: use STARTTLS, and send no e-mail without it.",
    ),
    Setting(
        "EMAIL_USE_SSL",
        "no",
        MESSAGES,
        "`yes`: use TLS from the start of the connection, as on port 465.",
    ),
    Setting(
        "EMAIL_TIMEOUT",
        "15",
        MESSAGES,
        "Timeout for one e-mail in whole seconds, at most 30.",
    ),
    Setting(
        "DEFAULT_FROM_EMAIL",
        "",
        MESSAGES,
        "Sender address of e-mails. Empty: `drydock` at the host of `BASE_URL`.",
    ),
    Setting(
        "WATCHDOG_URL",
        "",
        MESSAGES,
        "URL that Drydock pings once a minute while it works, as healthchecks expects it. Missing pings show "
        "that Drydock is down.",
    ),
    Setting(
        "WATCHDOG_REPORT_FAILURES",
        "no",
        MESSAGES,
        "`yes`: report failures immediately to `/fail` below `WATCHDOG_URL`.",
    ),
    Setting(
        "NOTIFICATION_SENDER_PROCESSES",
        "8",
        MESSAGES,
        "Notifications that one Drydock process may send at the same time.",
    ),
    Setting(
        "NOTIFICATION_GROUP_WAIT_SECONDS",
        "2",
        MESSAGES,
        "Seconds to wait for further notifications before a group is sent, 0 to 30.",
    ),
    Setting(
        "NOTIFICATION_GROUP_INTERVAL_SECONDS",
        "60",
        MESSAGES,
        "Seconds between notifications to a busy channel. A closer deadline shortens them.",
    ),
    Setting(
        "ARCHIVE_URL",
        "",
        KEEPING,
        "Archive destination: a folder, as `file:///var/lib/drydock/archive`, or a container of Azure Blob "
        "Storage, as `https://ACCOUNT.blob.core.windows.net/CONTAINER/FOLDER?SIGNATURE` with a shared access "
        "signature that permits read and create. Empty: archiving is disabled and nothing is deleted.",
    ),
    Setting(
        "DOCUMENT_RETENTION_DAYS",
        "30",
        KEEPING,
        "Days for which agent reports without an event are retained, such as raw documents; or `for ever`.",
    ),
    Setting(
        "EVENT_DOCUMENT_RETENTION_DAYS",
        "400",
        KEEPING,
        "Days for which raw documents that list an event are retained; or `for ever`.",
    ),
    Setting(
        "TIMELINE_RETENTION_DAYS",
        "for ever",
        KEEPING,
        "Days for which timeline entries, including decisions, are retained; or `for ever`.",
    ),
    Setting(
        "CACHE_NOTIFICATION_RETENTION_DAYS",
        "400",
        KEEPING,
        "Days for which notifications of caches are retained as received; or `for ever`.",
    ),
    Setting(
        "NOTIFICATION_RETENTION_DAYS",
        "400",
        KEEPING,
        "Days for which sent notifications are retained; or `for ever`.",
    ),
    Setting(
        "STATIC_ROOT",
        "",
        RUNNING,
        "Folder into which `collectstatic` writes. Empty: static files are served from the packages.",
    ),
    Setting(
        "LOG_LEVEL",
        "INFO",
        RUNNING,
        "`DEBUG`, `INFO`, `WARNING` or `ERROR`.",
    ),
    Setting(
        "LOG_FORMAT",
        "text",
        RUNNING,
        "`text` or `json`.",
    ),
    Setting(
        "DEBUG",
        "no",
        RUNNING,
        "`yes` shows the cause of an error in the browser. Use only on a development machine.",
    ),
    Setting(
        "DEMO_DIR",
        ".demo",
        DEMO,
        "Folder for the data of the demo.",
    ),
    Setting(
        "PORT",
        "8000",
        DEMO,
        "Port of the demo.",
    ),
    Setting(
        "SIMULATOR_PORT",
        "8169",
        DEMO,
        "Port of the simulated Azure.",
    ),
    Setting(
        "DEMO_SINGLE_SIGN_ON",
        "off",
        DEMO,
        "`on`: users can also sign in through a simulated Entra ID.",
    ),
    Setting(
        "DEMO_SINGLE_SIGN_ON_PORT",
        "8170",
        DEMO,
        "Port of the simulated Entra ID.",
    ),
    Setting(
        "DEMO_STORY",
        "on",
        DEMO,
        "`off`: no events are simulated automatically.",
        former="STORY",
    ),
)

BY_NAME: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}

HOST = re.compile(r"[\w.-]+", re.ASCII)
HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
FOR_EVER = "for ever"
MOST_DAYS = 36_500
TRUE = ("1", "yes", "true", "on")
FALSE = ("0", "no", "false", "off")


class Reader:
    """Reader of settings from an environment; each error is one sentence that names the setting."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment

    def text(self, name: str) -> str:
        """Return the value without surrounding spaces; the default if it is not set. Raises ImproperlyConfigured."""
        setting = BY_NAME[name]
        default = setting.default
        if setting in self.under_former_names:
            name = setting.former
        path = self.environment.get(f"{name}_FILE")
        if not path:
            return self.environment.get(name, default).strip() or default
        try:
            return Path(path).read_text(encoding="utf-8").strip() or default
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE names {path}, which cannot be read: {error.strerror}.") from error

    @property
    def under_former_names(self) -> list[Setting]:
        """Settings that only their former name sets."""
        return [each for each in SETTINGS if self._is_set(each.former) and not self._is_set(each.name)]

    def _is_set(self, name: str) -> bool:
        return bool(name and (self.environment.get(name) or self.environment.get(f"{name}_FILE")))

    def whole(self, name: str) -> int:
        """A whole number above zero."""
        value = self.text(name)
        if not value.isascii() or not value.isdecimal() or int(value) == 0:
            raise ImproperlyConfigured(f"{name} has to be a whole number above zero, not {value!r}.")
        return int(value)

    def seconds_up_to(self, name: str, most: float) -> float:
        """A time in seconds from zero on, fractions allowed."""
        try:
            number = float(self.text(name))
        except ValueError:
            number = -1.0
        if not 0 <= number <= most:
            raise ImproperlyConfigured(f"{name} has to be 0 to {most:g} seconds, not {self.text(name)!r}.")
        return number

    def seconds(self, name: str) -> float:
        """A time in seconds above zero, fractions allowed."""
        value = self.text(name)
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            raise ImproperlyConfigured(f"{name} has to be a number of seconds above zero, not {value!r}.")
        return number

    def days(self, name: str) -> int | None:
        """A whole number of days, or None for `for ever`."""
        value = self.text(name).lower()
        if value == FOR_EVER:
            return None
        if not value.isascii() or not value.isdecimal() or not 0 < int(value) <= MOST_DAYS:
            raise ImproperlyConfigured(f"{name} has to be a number of days up to {MOST_DAYS}, or `{FOR_EVER}`.")
        return int(value)

    def archive(self, name: str) -> str:
        """The address of a folder or of a container, or nothing. It may hold a key, so none of it is repeated."""
        value = self.text(name)
        if not value:
            return value
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), 0
        is_folder = parts.scheme == "file" and not parts.netloc and len(parts.path) > 1 and not parts.query
        own = parts.hostname in ("localhost", "127.0.0.1", "::1")
        is_container = parts.scheme == "https" or (parts.scheme == "http" and own)
        plain = parts.hostname and not parts.username and port != 0 and len(parts.path) > 1
        if not (is_folder or (is_container and plain)) or parts.fragment or ".." in parts.path:
            raise ImproperlyConfigured(
                f"{name} has to be file:///FOLDER, or the https address of a container with its signature."
            )
        return value

    def date(self, name: str) -> datetime | None:
        """The beginning of a day in UTC, or None."""
        value = self.text(name)
        try:
            return datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC) if value else None
        except ValueError:
            raise ImproperlyConfigured(f"{name} has to be a day such as 2027-03-31, not {value!r}.") from None

    def ids(self, name: str) -> list[str]:
        """UUIDs between commas, in lower case."""
        found = self.words(name)
        try:
            return [str(UUID(each)) for each in found]
        except ValueError:
            raise ImproperlyConfigured(f"{name} has to hold ids as Azure writes them, not {found!r}.") from None

    def folder(self, name: str) -> str:
        """The path of a folder that is there, or nothing."""
        value = self.text(name)
        if value and not Path(value).is_dir():
            raise ImproperlyConfigured(f"{name} names {value}, which is no folder.")
        return value

    def flag(self, name: str) -> bool:
        value = self.text(name).lower()
        if value not in TRUE + FALSE:
            raise ImproperlyConfigured(f"{name} has to be `yes` or `no`, not {value!r}.")
        return value in TRUE

    def words(self, name: str) -> list[str]:
        """Parts between commas, without empty ones."""
        return [word.strip() for word in self.text(name).split(",") if word.strip()]

    def networks(self, name: str) -> list[str]:
        """Addresses or networks between commas, as they were written."""
        found = self.words(name)
        for network in found:
            try:
                ip_network(network, strict=False)
            except ValueError as error:
                raise ImproperlyConfigured(
                    f"{name} has to hold addresses or networks such as 10.0.0.0/8, not {network!r}."
                ) from error
        return found

    def host_and_port(self, name: str) -> str:
        """`host:port`, an IPv6 address in brackets; or nothing."""
        value = self.text(name)
        host, _, port = value.rpartition(":")
        number = int(port) if port.isascii() and port.isdecimal() else 0
        plain = host.startswith("[") and host.endswith("]") if ":" in host else HOST.fullmatch(host)
        if value and not (plain and 0 < number < 65536):
            # Whoever takes it for a URL may have written a password into it.
            raise ImproperlyConfigured(f"{name} has to be host:port, without a scheme or a login.")
        return value

    def issuer(self, name: str) -> str:
        """Whom people's single sign-on trusts, or nobody."""
        value = self.text(name)
        fault = issuer_fault(value) if value else None
        if fault is not None:
            raise ImproperlyConfigured(
                f"{name} has to be one tenant's https address, without a login, and not a directory of many tenants."
            )
        return value

    def header(self, name: str) -> str:
        """The name of a header, which no underscore makes ambiguous."""
        value = self.text(name)
        if not HEADER.fullmatch(value):
            raise ImproperlyConfigured(f"{name} has to be the name of a header, of letters, digits and dashes.")
        return value

    def readable_file(self, name: str) -> str:
        """The path of a file that can be read, or nothing."""
        value = self.text(name)
        if value and not os.access(value, os.R_OK):
            raise ImproperlyConfigured(f"{name} names {value}, which cannot be read.")
        return value

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.text(name)
        if value not in choices:
            raise ImproperlyConfigured(f"{name} has to be one of {', '.join(choices)}, not {value!r}.")
        return value

    def address(self, name: str, schemes: tuple[str, ...]) -> str:
        """A URL with one of the schemes, without a slash at its end; or the default."""
        value = self.text(name)
        if value and urlsplit(value).scheme not in schemes:
            # The value may hold a password, so only its beginning is repeated.
            raise ImproperlyConfigured(
                f"{name} has to start with {' or '.join(scheme + '://' for scheme in schemes)}, not {value[:8]!r}."
            )
        return value.rstrip("/")


def markdown() -> str:
    """Return the tables of docs/admin/settings.md, one per chapter."""
    return "\n\n".join("\n".join(chapter_lines(chapter)) for chapter in dict.fromkeys(s.chapter for s in SETTINGS))


def chapter_lines(chapter: str) -> Iterator[str]:
    yield f"## {chapter}"
    yield ""
    yield "| Setting | Default | Description |"
    yield "|---|---|---|"
    for setting in SETTINGS:
        if setting.chapter == chapter:
            default = f"`{setting.default}`" if setting.default else ""
            former = f" Formerly `{setting.former}`." if setting.former else ""
            yield f"| `{setting.name}` | {default} | {setting.help}{former} |"
