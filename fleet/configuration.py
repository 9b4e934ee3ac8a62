"""Table of all backend settings. `fleet.settings` reads it, and docs/admin/settings.md is generated from it.

A setting is an environment variable. `<NAME>_FILE` may instead name a file with the value, as container platforms
provide secrets; the file takes precedence. A former name of a setting is read if the current name is not set.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: name, help text, default as text, and the name that release 0.1.0 used."""

    name: str
    help: str
    default: str = ""
    former: str = ""


DEMO = "The demo"

CHAPTERS: dict[str, tuple[Setting, ...]] = {
    "Servers and addresses": (
        Setting("DATABASE_URL", "Postgres 14 or later, as `postgresql://user:password@host:port/name`. Required."),
        Setting(
            "REDIS_URL",
            "Redis or Valkey, as `redis://`, `rediss://` or `unix://`. Carries wake-ups and ids only. Required.",
        ),
        Setting(
            "SECRET_KEY",
            "Signs sessions and encrypts the keys that sign orders. A long random text, the same for every process. "
            "Required.",
        ),
        Setting("SECRET_KEY_FALLBACKS", "Earlier values of `SECRET_KEY` that are still accepted, separated by commas."),
        Setting(
            "BASE_URL",
            "Address at which users open Drydock. With `https`, cookies are sent over TLS only.",
            "http://127.0.0.1:8000",
        ),
        Setting(
            "AGENT_CA_FILE",
            "PEM file of private certificate authorities that machines need for `BASE_URL` or their package index. The "
            "install commands of join tokens store them on machines for pip and the agent.",
        ),
        Setting(
            "ALLOWED_HOSTS",
            "Further accepted host names, separated by commas. The host of `BASE_URL` and loopback are always "
            "accepted.",
        ),
        Setting("BEHIND_PROXY", "`yes` if a reverse proxy terminates TLS and sets `X-Forwarded-Proto` itself.", "no"),
        Setting(
            "TRUSTED_PROXIES",
            "Addresses or networks of reverse proxies, separated by commas. Drydock takes client addresses from "
            "their `X-Forwarded-For` and records them in the audit.",
        ),
        Setting(
            "DATABASE_CONNECTION_SECONDS",
            "Seconds for which a connection to Postgres is reused.",
            "60",
            former="DATABASE_SECONDS",
        ),
        Setting(
            "DATABASE_MAX_GIGABYTES",
            "Maximum database size in GB. A notification is sent at 90 %. Empty: not monitored.",
        ),
        Setting(
            "PARTITION_ROWS",
            "Rows per partition of a large table, at least 1000. A partition is archived as a whole. Fewer "
            "partitions are faster to query.",
            "5000000",
        ),
    ),
    "Machines and presence": (
        Setting(
            "MACHINE_LIVE_SECONDS",
            "A machine is live if its last contact and its last successful poll are at most this many seconds ago.",
            "60",
            former="LIVE_SECONDS",
        ),
        Setting(
            "MACHINE_LATE_SECONDS",
            "A machine is late up to this many seconds after its last contact, and silent afterwards.",
            "600",
            former="LATE_SECONDS",
        ),
        Setting(
            "MACHINE_GONE_SECONDS", "A silent machine is gone after this many seconds.", "86400", former="GONE_SECONDS"
        ),
        Setting(
            "DECOMMISSION_GONE_DAYS",
            "Drydock decommissions machines after this many days of silence. `for ever`: they stay.",
            "for ever",
        ),
        Setting(
            "DECOMMISSION_TERMINATED_DAYS",
            "The same for machines whose last report listed their own Terminate.",
            "for ever",
        ),
        Setting(
            "DECOMMISSION_UNLISTED_DAYS",
            "The same for machines that a complete inventory stopped listing this many days ago, if they have not "
            "reported since.",
            "for ever",
        ),
        Setting(
            "CLOCK_TOLERANCE_SECONDS",
            "Times that a machine reports are corrected if its clock differs by more than this.",
            "2",
        ),
        Setting("JOIN_TOKEN_SECONDS", "Default lifetime of a join token in seconds.", "86400"),
        Setting(
            "ENROLMENT_POLICY",
            "How unknown machines [enrol](enrolment.md#who-may-enrol): `join`, `auto`, `attested`, `admit` or `token`. "
            "Empty: the choice made on First steps.",
        ),
        Setting(
            "ATTESTED_SUBSCRIPTIONS",
            "Ids of the subscriptions whose machines may enrol with an attested document, separated by commas. "
            "Empty: none.",
        ),
        Setting(
            "ATTESTED_ROOTS",
            "A folder of root and intermediate certificates (PEM or DER) for attested documents. Empty: the roots "
            "that Drydock ships.",
        ),
        Setting(
            "LEGACY_CREDENTIALS_UNTIL",
            "First day, as `2027-03-31` in UTC, on which agent calls without a signature of the machine's own key "
            "are rejected. Empty: credentials of 0.1.0 remain valid.",
        ),
        Setting(
            "AVAILABILITY_SET_TAG",
            "Azure tag that contains a VM's availability set, as `[kind:]name`.",
            "drydock:availability-set",
            former="SET_TAG",
        ),
    ),
    "Browsers and users": (
        Setting(
            "SCOPED_READ_ACCESS",
            "`yes`: users with scopes see only what belongs to these scopes. Administrators see everything.",
            "no",
        ),
        Setting("SESSION_SECONDS", "Lifetime of a session in seconds.", "43200"),
        Setting(
            "STEP_UP_SECONDS",
            "Seconds for which a confirmation with a second factor, or with the password if there is none, remains "
            "valid.",
            "600",
        ),
        Setting("API_TOKEN_SECONDS", "Default lifetime of a new API token in seconds.", "7776000"),
        Setting(
            "STATUS_BAR_CACHE_SECONDS",
            "Seconds for which a web process caches the counts of the status bar, 0 to 60.",
            "5",
        ),
        Setting("STREAM_SECONDS", "Seconds after which a browser's event stream ends. The browser reconnects.", "200"),
        Setting("STREAM_PING_SECONDS", "Interval of keep-alive messages on an event stream.", "15"),
    ),
    "Decisions": (
        Setting(
            "APPROVAL_UNDO_SECONDS",
            "Undo period of approvals made on pages, 0 to 10 seconds. In the last minute before NotBefore approvals "
            "are dispatched immediately.",
            "3",
        ),
        Setting(
            "ORDER_ANSWER_SECONDS",
            "Seconds to wait for a machine's answer to an order before another machine gets it.",
            "3",
        ),
        Setting(
            "WAVE_RETURN_SECONDS",
            "A wave stops if a machine is not live this many seconds after its event ended.",
            "600",
        ),
        Setting("BEAT_SECONDS", "Interval at which Celery beat reconciles due orders.", "2"),
        Setting(
            "FALLBACK_TICK_SECONDS",
            "Interval at which the gateway reconciles due orders if Celery is unavailable.",
            "5",
            former="TICKER_SECONDS",
        ),
    ),
    "Agent reports": (
        Setting("INGEST_QUEUE_REPORTS", "Reports that may wait to be written before the gateway answers 503.", "20000"),
        Setting("AGENT_CALLS_PER_MINUTE", "Calls of one machine per minute before the gateway answers 429.", "600"),
        Setting(
            "ENROLMENTS_PER_MINUTE", "Enrolments from one address per minute before the gateway answers 429.", "6000"
        ),
        Setting(
            "CREDENTIAL_CACHE_SECONDS",
            "Seconds for which a process caches a verified machine credential.",
            "600",
            former="CREDENTIAL_SECONDS",
        ),
    ),
    "Single sign-on": (
        Setting(
            "OIDC_ISSUER",
            "Issuer URL of the OpenID Connect provider, exactly as the provider states it: "
            "`https://login.microsoftonline.com/TENANT-ID/v2.0` for Entra ID. Must be a single tenant, not `common`. "
            "Empty: single sign-on is disabled.",
        ),
        Setting("OIDC_CLIENT_ID", "Application (client) id at the provider."),
        Setting("OIDC_CLIENT_SECRET", "Client secret of the application."),
        Setting(
            "OIDC_CLAIM",
            "Claim of the ID token that the mapping reads: `roles` for app roles of Entra ID, `groups`, or a path "
            "such as `realm_access.roles`.",
            "roles",
        ),
        Setting(
            "OIDC_SCOPES",
            "Requested scopes, separated by commas. Without `offline_access` users sign in again every 15 minutes.",
            "openid,profile,email,offline_access",
        ),
        Setting("OIDC_DISPLAY_NAME", "Name of the provider on the sign-in page.", "single sign-on"),
        Setting(
            "OIDC_GRACE_SECONDS", "Seconds for which sessions remain valid while the provider is unavailable.", "14400"
        ),
        Setting(
            "LOCAL_PASSWORDS", "`no`: only the account of `EMERGENCY_ACCOUNT` can sign in with a local password.", "yes"
        ),
        Setting(
            "EMERGENCY_ACCOUNT",
            "User name of one local account for use while single sign-on fails. Every use notifies all administrators.",
        ),
        Setting(
            "PROXY_SIGN_IN_FROM",
            "Addresses or networks, separated by commas, of a reverse proxy that authenticates users and sends their "
            "names in headers. Empty: these headers are ignored.",
        ),
        Setting("PROXY_SIGN_IN_SECRET", "Secret that this proxy sends in `X-Proxy-Secret`, at least 32 characters."),
        Setting("PROXY_SIGN_IN_USER_HEADER", "Header with the user's name.", "X-Remote-User"),
        Setting(
            "PROXY_SIGN_IN_GROUPS_HEADER",
            "Header with the user's roles or groups, separated by commas, for the mapping.",
            "X-Remote-Groups",
        ),
        Setting(
            "PROXY_SIGN_IN_STREAM_SECONDS",
            "Seconds after which the event stream of a user authenticated by this proxy ends. It resumes only if the "
            "proxy still names the same user.",
            "30",
        ),
    ),
    "Notifications": (
        Setting(
            "EGRESS_ALLOWLIST",
            "Private networks that notifications may reach in addition to the public internet, separated by commas, "
            "such as `10.1.0.0/16`.",
        ),
        Setting(
            "EGRESS_PROXY",
            "HTTP proxy for notifications, as `host:port`. The proxy then decides which addresses can be reached.",
        ),
        Setting(
            "EGRESS_CA_FILE",
            "PEM file of certificate authorities to trust for receivers, in addition to the public ones.",
        ),
        Setting("EMAIL_HOST", "SMTP server for e-mail channels."),
        Setting("EMAIL_PORT", "Port of the SMTP server.", "25"),
        Setting("EMAIL_HOST_USER", "User name at the SMTP server. Empty: no authentication."),
        Setting("EMAIL_HOST_PASSWORD", "Password at the SMTP server."),
        Setting("EMAIL_USE_TLS", "`yes`: use STARTTLS, and send no e-mail without it.", "no"),
        Setting("EMAIL_USE_SSL", "`yes`: use TLS from the start of the connection, as on port 465.", "no"),
        Setting("EMAIL_TIMEOUT", "Timeout for one e-mail in whole seconds, at most 30.", "15"),
        Setting("DEFAULT_FROM_EMAIL", "Sender address of e-mails. Empty: `drydock` at the host of `BASE_URL`."),
        Setting(
            "WATCHDOG_URL",
            "URL that Drydock pings once a minute while it works, as healthchecks expects it. Missing pings show "
            "that Drydock is down.",
        ),
        Setting(
            "WATCHDOG_REPORT_FAILURES", "`yes`: report failures immediately to `/fail` below `WATCHDOG_URL`.", "no"
        ),
        Setting(
            "NOTIFICATION_SENDER_PROCESSES", "Notifications that one Drydock process may send at the same time.", "8"
        ),
        Setting(
            "NOTIFICATION_GROUP_WAIT_SECONDS",
            "Seconds to wait for further notifications before a group is sent, 0 to 30.",
            "2",
        ),
        Setting(
            "NOTIFICATION_GROUP_INTERVAL_SECONDS",
            "Seconds between notifications to a busy channel. A closer deadline shortens them.",
            "60",
        ),
    ),
    "Retention and archive": (
        Setting(
            "ARCHIVE_URL",
            "Archive destination: a folder, as `file:///var/lib/drydock/archive`, or a container of Azure Blob "
            "Storage, as `https://ACCOUNT.blob.core.windows.net/CONTAINER/FOLDER?SIGNATURE` with a shared access "
            "signature that permits read and create. Empty: archiving is disabled and nothing is deleted.",
        ),
        Setting(
            "DOCUMENT_RETENTION_DAYS",
            "Days for which agent reports without an event are retained, such as raw documents; or `for ever`.",
            "30",
        ),
        Setting(
            "EVENT_DOCUMENT_RETENTION_DAYS",
            "Days for which raw documents that list an event are retained; or `for ever`.",
            "400",
        ),
        Setting(
            "TIMELINE_RETENTION_DAYS",
            "Days for which timeline entries, including decisions, are retained; or `for ever`.",
            "for ever",
        ),
        Setting(
            "CACHE_NOTIFICATION_RETENTION_DAYS",
            "Days for which notifications of caches are retained as received; or `for ever`.",
            "400",
        ),
        Setting("NOTIFICATION_RETENTION_DAYS", "Days for which sent notifications are retained; or `for ever`.", "400"),
    ),
    "Operation": (
        Setting(
            "STATIC_ROOT", "Folder into which `collectstatic` writes. Empty: static files are served from the packages."
        ),
        Setting("LOG_LEVEL", "`DEBUG`, `INFO`, `WARNING` or `ERROR`.", "INFO"),
        Setting("LOG_FORMAT", "`text` or `json`.", "text"),
        Setting("DEBUG", "`yes` shows the cause of an error in the browser. Use only on a development machine.", "no"),
    ),
    DEMO: (
        Setting("DEMO_DIR", "Folder for the data of the demo.", ".demo"),
        Setting("PORT", "Port of the demo.", "8000"),
        Setting("SIMULATOR_PORT", "Port of the simulated Azure.", "8169"),
        Setting("DEMO_SINGLE_SIGN_ON", "`on`: users can also sign in through a simulated Entra ID.", "off"),
        Setting("DEMO_SINGLE_SIGN_ON_PORT", "Port of the simulated Entra ID.", "8170"),
        Setting("DEMO_STORY", "`off`: no events are simulated automatically.", "on", former="STORY"),
    ),
}

SETTINGS: tuple[Setting, ...] = tuple(chain.from_iterable(CHAPTERS.values()))
BY_NAME: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}


def markdown() -> str:
    """Return the tables of docs/admin/settings.md, one per chapter."""
    return "\n\n".join("\n".join(_chapter_lines(name, settings)) for name, settings in CHAPTERS.items())


def _chapter_lines(name: str, settings: tuple[Setting, ...]) -> Iterator[str]:
    yield f"## {name}"
    yield ""
    yield "| Setting | Default | Description |"
    yield "|---|---|---|"
    for setting in settings:
        default = f"`{setting.default}`" if setting.default else ""
        former = f" Formerly `{setting.former}`." if setting.former else ""
        yield f"| `{setting.name}` | {default} | {setting.help}{former} |"
