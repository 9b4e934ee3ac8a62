"""Every setting of the backend, in one table: the settings module reads it, the documentation is printed from it.

A setting is an environment variable. Each may also be given as `<NAME>_FILE`, the path of a file that holds the value;
that is how container platforms hand over secrets. The file wins over the variable.
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
    """One setting: its name, its default as it would stand in the environment, its chapter, and what it is for."""

    name: str
    default: str
    chapter: str
    help: str


SERVERS = "Servers and addresses"
MACHINES = "Machines and presence"
DECISIONS = "Decisions"
REPORTS = "Reports of agents"
BROWSERS = "Browsers and people"
SIGN_ON = "Single sign-on"
MESSAGES = "Messages out"
RUNNING = "Running"
KEEPING = "What is kept, and the archive"
DEMO = "The demo"

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "DATABASE_URL", "", SERVERS, "Postgres 14 or newer, as `postgresql://user:password@host:port/name`. Required."
    ),
    Setting(
        "REDIS_URL",
        "",
        SERVERS,
        "Redis or Valkey, as `redis://`, `rediss://` or `unix://`. Wake-ups and ids only. Required.",
    ),
    Setting(
        "SECRET_KEY",
        "",
        SERVERS,
        "Signs sessions and encrypts the keys that sign orders. A long random text, the same for every process. "
        "Required.",
    ),
    Setting("SECRET_KEY_FALLBACKS", "", SERVERS, "Earlier values of `SECRET_KEY`, by comma, that are still honoured."),
    Setting(
        "BASE_URL",
        "http://127.0.0.1:8000",
        SERVERS,
        "Where people find Drydock. With `https`, cookies are secure only.",
    ),
    Setting(
        "ALLOWED_HOSTS", "", SERVERS, "Host names to answer to, by comma, beside the one of `BASE_URL` and loopback."
    ),
    Setting("BEHIND_PROXY", "no", SERVERS, "`yes` if a proxy in front ends TLS and sets `X-Forwarded-Proto` itself."),
    Setting(
        "TRUSTED_PROXIES",
        "",
        SERVERS,
        "Addresses or networks of proxies in front, by comma: what these write into `X-Forwarded-For` is believed, and"
        " stands in the audit.",
    ),
    Setting("DATABASE_SECONDS", "60", SERVERS, "How long a connection to Postgres is kept for the next request."),
    Setting(
        "LIVE_SECONDS", "60", MACHINES, "A machine is live if it was heard, and had a good poll, within this time."
    ),
    Setting("LATE_SECONDS", "600", MACHINES, "Up to here it is late, then silent."),
    Setting("GONE_SECONDS", "86400", MACHINES, "After this time a silent machine is gone."),
    Setting("CLOCK_TOLERANCE_SECONDS", "2", MACHINES, "A machine's times are corrected if its clock is off by more."),
    Setting("JOIN_TOKEN_SECONDS", "86400", MACHINES, "How long a join token admits agents, if nothing else is said."),
    Setting(
        "ENROLMENT_POLICY",
        "",
        MACHINES,
        "How unknown machines enrol: `join` (by a join token or an attested document, otherwise an administrator admits"
        " them), `auto` (by an attested document, otherwise an administrator admits them), `attested` (by an attested"
        " document only), `admit` (an administrator admits each) or `token` (by a join token only, as in 0.1.0). Empty:"
        " as chosen on First steps; before that `auto` where ATTESTED_SUBSCRIPTIONS is set, `token` where there were"
        " machines or join tokens before release 0.2.0, and otherwise `join`.",
    ),
    Setting(
        "ATTESTED_SUBSCRIPTIONS",
        "",
        MACHINES,
        "The ids of the subscriptions whose machines may enrol by an attested document, by comma. Empty: none.",
    ),
    Setting(
        "ATTESTED_ROOTS",
        "",
        MACHINES,
        "A folder with the certificates (PEM or DER) that attested documents may lead to, and intermediates. Empty: the"
        " roots that are shipped.",
    ),
    Setting(
        "BEARER_UNTIL",
        "",
        MACHINES,
        "From this day on, as `2027-03-31` in UTC, calls of agents count only if they are signed with a machine's own"
        " key. Empty: agents of 0.1.0 go on.",
    ),
    Setting(
        "SET_TAG",
        "drydock:availability-set",
        MACHINES,
        "The tag of a VM that names its availability set, as `[kind:]name`.",
    ),
    Setting(
        "SCOPED_READING",
        "no",
        BROWSERS,
        "`yes`: whoever has scopes sees what lies in them and nothing else. Admins see everything.",
    ),
    Setting(
        "UNDO_SECONDS",
        "3",
        DECISIONS,
        "How long an approval of a page can be undone, 0 to 10; in the last minute before NotBefore it goes at once.",
    ),
    Setting("ORDER_ANSWER_SECONDS", "3", DECISIONS, "Silence after which the next machine is asked to start an event."),
    Setting(
        "WAVE_RETURN_SECONDS",
        "600",
        DECISIONS,
        "A wave stops when a machine is not live again so long after its event has ended.",
    ),
    Setting("BEAT_SECONDS", "2", DECISIONS, "How often Celery beat looks for orders that are due."),
    Setting("TICKER_SECONDS", "5", DECISIONS, "How often the gateway looks, for the case that Celery is gone."),
    Setting(
        "INGEST_QUEUE_REPORTS", "20000", REPORTS, "Reports that may wait for the writer before the gateway answers 503."
    ),
    Setting("AGENT_CALLS_PER_MINUTE", "600", REPORTS, "Calls of one machine before the gateway answers 429."),
    Setting("ENROLMENTS_PER_MINUTE", "6000", REPORTS, "Enrolments from one address before the gateway answers 429."),
    Setting(
        "CREDENTIAL_SECONDS", "600", REPORTS, "How long a process trusts a machine's credential without a new look."
    ),
    Setting("SESSION_SECONDS", "43200", BROWSERS, "How long a login lasts."),
    Setting(
        "STEP_UP_SECONDS",
        "600",
        BROWSERS,
        "How long somebody who was asked again for a second factor, or the password where there is none, is not asked"
        " anew.",
    ),
    Setting("API_TOKEN_SECONDS", "7776000", BROWSERS, "How long a new API token lasts, if nothing else is said."),
    Setting(
        "HEAD_SECONDS",
        "5",
        BROWSERS,
        "How long a web process keeps what it counted for the strip in the head of all pages, 0 to 60.",
    ),
    Setting(
        "DATABASE_GIGABYTES",
        "",
        SERVERS,
        "How much room the database has. Where nine tenths of that are full, somebody is told. Empty: nobody says.",
    ),
    Setting(
        "PARTITION_ROWS",
        "5000000",
        SERVERS,
        "How many rows one partition of a large table is to hold, 1000 at least. One leaves as a whole. Few are read"
        " faster.",
    ),
    Setting("STREAM_SECONDS", "200", BROWSERS, "A stream to a browser ends after this time; the browser resumes it."),
    Setting("STREAM_PING_SECONDS", "15", BROWSERS, "Pause between signs of life on a stream."),
    Setting(
        "OIDC_ISSUER",
        "",
        SIGN_ON,
        "The OpenID Connect provider by which people come in, as it calls itself:"
        " `https://login.microsoftonline.com/TENANT-ID/v2.0` for Entra ID. One tenant's, never `common`. Empty: none.",
    ),
    Setting("OIDC_CLIENT_ID", "", SIGN_ON, "The application (client) id there."),
    Setting("OIDC_CLIENT_SECRET", "", SIGN_ON, "Its secret."),
    Setting(
        "OIDC_CLAIM",
        "roles",
        SIGN_ON,
        "Which claim of the ID token the mapping reads: `roles` for Entra's app roles, `groups`, or a path such as"
        " `realm_access.roles`.",
    ),
    Setting(
        "OIDC_SCOPES",
        "openid,profile,email,offline_access",
        SIGN_ON,
        "What is asked for, by comma. Without `offline_access` people log in anew every 15 minutes.",
    ),
    Setting("OIDC_NAME", "single sign-on", SIGN_ON, "What the link on the login page calls it."),
    Setting(
        "OIDC_GRACE_SECONDS",
        "14400",
        SIGN_ON,
        "How long sessions go on while the provider cannot be asked, in the middle of an incident for example.",
    ),
    Setting(
        "LOCAL_PASSWORDS",
        "yes",
        SIGN_ON,
        "`no`: passwords of this installation let nobody in but the account of `BREAK_GLASS`.",
    ),
    Setting(
        "BREAK_GLASS",
        "",
        SIGN_ON,
        "The name of one local account for the day on which single sign-on fails. Whoever uses it, everybody is told.",
    ),
    Setting(
        "HEADER_LOGIN_FROM",
        "",
        SIGN_ON,
        "Addresses or networks, by comma, of a proxy that logs people in and says who they are. Empty: nobody is"
        " believed.",
    ),
    Setting("HEADER_LOGIN_SECRET", "", SIGN_ON, "What that proxy sends in `X-Proxy-Secret`, 32 characters at least."),
    Setting("HEADER_LOGIN_NAME", "X-Remote-User", SIGN_ON, "The header in which it says who somebody is."),
    Setting(
        "HEADER_LOGIN_GROUPS",
        "X-Remote-Groups",
        SIGN_ON,
        "The header with their roles or groups, by comma, which the mapping reads.",
    ),
    Setting(
        "HEADER_LOGIN_STREAM_SECONDS",
        "30",
        SIGN_ON,
        "A stream to a browser that this proxy signed in ends after this time. It resumes only if the proxy still "
        "names the same user.",
    ),
    Setting(
        "OUTGOING_ALLOW",
        "",
        MESSAGES,
        "Networks that messages may reach besides the public internet, by comma, such as `10.1.0.0/16`.",
    ),
    Setting(
        "OUTGOING_PROXY",
        "",
        MESSAGES,
        "An HTTP proxy for messages, as `host:port`. Which addresses it connects to is then for it to refuse.",
    ),
    Setting(
        "OUTGOING_CA_FILE",
        "",
        MESSAGES,
        "A PEM file with certificate authorities that receivers may have besides the public ones.",
    ),
    Setting("EMAIL_HOST", "", MESSAGES, "The mail server of the installation, for channels of the kind mail."),
    Setting("EMAIL_PORT", "25", MESSAGES, "Its port."),
    Setting("EMAIL_HOST_USER", "", MESSAGES, "Who logs in there; empty: nobody does."),
    Setting("EMAIL_HOST_PASSWORD", "", MESSAGES, "The password for it."),
    Setting("EMAIL_USE_TLS", "no", MESSAGES, "`yes`: STARTTLS, or no mail is sent."),
    Setting("EMAIL_USE_SSL", "no", MESSAGES, "`yes`: TLS from the first byte, as on port 465."),
    Setting("EMAIL_TIMEOUT", "15", MESSAGES, "How long one mail may take, in whole seconds, 30 at most."),
    Setting("DEFAULT_FROM_EMAIL", "", MESSAGES, "From whom mails are; empty: `drydock` at the host of `BASE_URL`."),
    Setting(
        "WATCHDOG_URL",
        "",
        MESSAGES,
        "Where a ping goes once a minute as long as all works, as healthchecks takes it, to tell when Drydock is dead.",
    ),
    Setting(
        "WATCHDOG_FAIL", "no", MESSAGES, "`yes`: what does not work is told at once, to `/fail` below that address."
    ),
    Setting(
        "SENDER_PROCESSES", "8", MESSAGES, "How many messages one process of Drydock may have on their way at once."
    ),
    Setting(
        "MESSAGE_GROUP_WAIT_SECONDS",
        "2",
        MESSAGES,
        "How long a message waits for others that come with it, 0 to 30.",
    ),
    Setting(
        "MESSAGE_GROUP_INTERVAL_SECONDS",
        "60",
        MESSAGES,
        "Where much happens, a channel is told once in so long; sooner where a deadline is nearer.",
    ),
    Setting(
        "ARCHIVE_URL",
        "",
        KEEPING,
        "Where what leaves goes first: a folder, as `file:///var/lib/drydock/archive`, or a container of Azure Blob"
        " Storage, as `https://ACCOUNT.blob.core.windows.net/CONTAINER/FOLDER?SIGNATURE` with a shared access signature"
        " that may read and create. Empty: nothing leaves, whatever its age.",
    ),
    Setting(
        "KEEP_DOCUMENTS_DAYS",
        "30",
        KEEPING,
        "How long reports of agents, such as raw documents, stay if no event is in them; or `for ever`.",
    ),
    Setting(
        "KEEP_EVENT_DOCUMENTS_DAYS", "400", KEEPING, "How long raw documents stay that list an event; or `for ever`."
    ),
    Setting(
        "KEEP_ENTRIES_DAYS",
        "for ever",
        KEEPING,
        "How long entries of the timeline stay, decisions among them: `for ever`, or a number of days.",
    ),
    Setting(
        "KEEP_NOTIFICATIONS_DAYS",
        "400",
        KEEPING,
        "How long notifications of caches stay, as they were heard; or `for ever`.",
    ),
    Setting("KEEP_MESSAGES_DAYS", "400", KEEPING, "How long it stays who was told what; or `for ever`."),
    Setting(
        "STATIC_ROOT", "", RUNNING, "Where `collectstatic` puts files. Empty: they are served right from the packages."
    ),
    Setting("LOG_LEVEL", "INFO", RUNNING, "`DEBUG`, `INFO`, `WARNING` or `ERROR`."),
    Setting("LOG_FORMAT", "text", RUNNING, "`text` for people, `json` for machines."),
    Setting(
        "DEBUG", "no", RUNNING, "`yes` shows the cause of an error in the browser. Never where others can reach it."
    ),
    Setting("DEMO_DIR", ".demo", DEMO, "Where the demo keeps its data."),
    Setting("PORT", "8000", DEMO, "Where the demo answers."),
    Setting("SIMULATOR_PORT", "8169", DEMO, "Where the demo's simulated Azure answers."),
    Setting("SIGN_ON", "off", DEMO, "`on`: people also come in by single sign-on, from a pretended Entra ID."),
    Setting("SIGN_ON_PORT", "8170", DEMO, "Where that answers."),
    Setting("STORY", "on", DEMO, "`off`: nothing happens by itself."),
)

DEFAULTS: dict[str, str] = {setting.name: setting.default for setting in SETTINGS}

HOST = re.compile(r"[\w.-]+", re.ASCII)
HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
FOR_EVER = "for ever"
MOST_DAYS = 36_500
TRUE = ("1", "yes", "true", "on")
FALSE = ("0", "no", "false", "off")


class Reader:
    """Reads settings from an environment; every refusal is one sentence that names the setting."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment

    def text(self, name: str) -> str:
        """The value without space around it; the default if it is not set. Raises ImproperlyConfigured."""
        default = DEFAULTS[name]
        path = self.environment.get(f"{name}_FILE")
        if not path:
            return self.environment.get(name, default).strip() or default
        try:
            return Path(path).read_text(encoding="utf-8").strip() or default
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE names {path}, which cannot be read: {error.strerror}.") from error

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
    """The tables of docs/settings.md, one per chapter; a test compares them."""
    return "\n\n".join("\n".join(chapter_lines(chapter)) for chapter in dict.fromkeys(s.chapter for s in SETTINGS))


def chapter_lines(chapter: str) -> Iterator[str]:
    yield f"## {chapter}"
    yield ""
    yield "| Setting | Default | What it is for |"
    yield "|---|---|---|"
    for setting in SETTINGS:
        if setting.chapter == chapter:
            yield f"| `{setting.name}` | {f'`{setting.default}`' if setting.default else ''} | {setting.help} |"
