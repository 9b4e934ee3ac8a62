"""Table of all backend settings. `fleet.settings` reads it, and docs/admin/settings.md is generated from it.

A setting is an environment variable. `<NAME>_FILE` may instead name a file with the value, as container platforms
provide secrets; the file takes precedence. A former name of a setting is read if the current name is not set.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: name, default as text, help text, and the name that release 0.1.0 used."""

    name: str
    default: str
    help: str
    former: str = ""


DEMO = "The demo"

CHAPTERS: dict[str, tuple[Setting, ...]] = {
    "Servers and addresses": (
        Setting("DATABASE_URL", "", "Postgres 14 or later, as `postgresql://user:password@host:port/name`. Required."),
        Setting(
            "REDIS_URL",
            "",
            "Redis or Valkey, as `redis://`, `rediss://` or `unix://`. Carries wake-ups and ids only. Required.",
        ),
        Setting(
            "SECRET_KEY",
            "",
            "Signs sessions and encrypts the keys that sign orders. A long random text, the same for every process. "
            "Required.",
        ),
        Setting(
            "SECRET_KEY_FALLBACKS", "", "Earlier values of `SECRET_KEY` that are still accepted, separated by commas."
        ),
        Setting(
            "BASE_URL",
            "http://127.0.0.1:8000",
            "Address at which users open Drydock. With `https`, cookies are sent over TLS only.",
        ),
        Setting(
            "AGENT_CA_FILE",
            "",
            "PEM file of private certificate authorities that machines need for `BASE_URL` or their package index. The "
            "install commands of join tokens store them on machines for pip and the agent.",
        ),
        Setting(
            "ALLOWED_HOSTS",
            "",
            "Further accepted host names, separated by commas. The host of `BASE_URL` and loopback are always "
            "accepted.",
        ),
        Setting("BEHIND_PROXY", "no", "`yes` if a reverse proxy terminates TLS and sets `X-Forwarded-Proto` itself."),
        Setting(
            "TRUSTED_PROXIES",
            "",
            "Addresses or networks of reverse proxies, separated by commas. Drydock takes client addresses from "
            "their `X-Forwarded-For` and records them in the audit.",
        ),
        Setting(
            "DATABASE_CONNECTION_SECONDS",
            "60",
            "Seconds for which a connection to Postgres is reused.",
            former="DATABASE_SECONDS",
        ),
        Setting(
            "DATABASE_MAX_GIGABYTES",
            "",
            "Maximum database size in GB. A notification is sent at 90 %. Empty: not monitored.",
        ),
        Setting(
            "PARTITION_ROWS",
            "5000000",
            "Rows per partition of a large table, at least 1000. A partition is archived as a whole. Fewer "
            "partitions are faster to query.",
        ),
    ),
    "Machines and presence": (
        Setting(
            "MACHINE_LIVE_SECONDS",
            "60",
            "A machine is live if its last contact and its last successful poll are at most this many seconds ago.",
            former="LIVE_SECONDS",
        ),
        Setting(
            "MACHINE_LATE_SECONDS",
            "600",
            "A machine is late up to this many seconds after its last contact, and silent afterwards.",
            former="LATE_SECONDS",
        ),
        Setting(
            "MACHINE_GONE_SECONDS", "86400", "A silent machine is gone after this many seconds.", former="GONE_SECONDS"
        ),
        Setting(
            "DECOMMISSION_GONE_DAYS",
            "for ever",
            "Drydock decommissions machines after this many days of silence. `for ever`: they stay.",
        ),
        Setting(
            "DECOMMISSION_TERMINATED_DAYS",
            "for ever",
            "The same for machines whose last report listed their own Terminate.",
        ),
        Setting(
            "DECOMMISSION_UNLISTED_DAYS",
            "for ever",
            "The same for machines that a complete inventory stopped listing this many days ago, if they have not "
            "reported since.",
        ),
        Setting(
            "CLOCK_TOLERANCE_SECONDS",
            "2",
            "Times that a machine reports are corrected if its clock differs by more than this.",
        ),
        Setting("JOIN_TOKEN_SECONDS", "86400", "Default lifetime of a join token in seconds."),
        Setting(
            "ENROLMENT_POLICY",
            "",
            "How unknown machines [enrol](enrolment.md#who-may-enrol): `join`, `auto`, `attested`, `admit` or `token`. "
            "Empty: the choice made on First steps.",
        ),
        Setting(
            "ATTESTED_SUBSCRIPTIONS",
            "",
            "Ids of the subscriptions whose machines may enrol with an attested document, separated by commas. "
            "Empty: none.",
        ),
        Setting(
            "ATTESTED_ROOTS",
            "",
            "A folder of root and intermediate certificates (PEM or DER) for attested documents. Empty: the roots "
            "that Drydock ships.",
        ),
        Setting(
            "LEGACY_CREDENTIALS_UNTIL",
            "",
            "First day, as `2027-03-31` in UTC, on which agent calls without a signature of the machine's own key "
            "are rejected. Empty: credentials of 0.1.0 remain valid.",
        ),
        Setting(
            "AVAILABILITY_SET_TAG",
            "drydock:availability-set",
            "Azure tag that contains a VM's availability set, as `[kind:]name`.",
            former="SET_TAG",
        ),
    ),
    "Browsers and users": (
        Setting(
            "SCOPED_READ_ACCESS",
            "no",
            "`yes`: users with scopes see only what belongs to these scopes. Administrators see everything.",
        ),
        Setting("SESSION_SECONDS", "43200", "Lifetime of a session in seconds."),
        Setting(
            "STEP_UP_SECONDS",
            "600",
            "Seconds for which a confirmation with a second factor, or with the password if there is none, remains "
            "valid.",
        ),
        Setting("API_TOKEN_SECONDS", "7776000", "Default lifetime of a new API token in seconds."),
        Setting(
            "STATUS_BAR_CACHE_SECONDS",
            "5",
            "Seconds for which a web process caches the counts of the status bar, 0 to 60.",
        ),
        Setting("STREAM_SECONDS", "200", "Seconds after which a browser's event stream ends. The browser reconnects."),
        Setting("STREAM_PING_SECONDS", "15", "Interval of keep-alive messages on an event stream."),
    ),
    "Decisions": (
        Setting(
            "APPROVAL_UNDO_SECONDS",
            "3",
            "Undo period of approvals made on pages, 0 to 10 seconds. In the last minute before NotBefore approvals "
            "are dispatched immediately.",
        ),
        Setting(
            "ORDER_ANSWER_SECONDS",
            "3",
            "Seconds to wait for a machine's answer to an order before another machine gets it.",
        ),
        Setting(
            "WAVE_RETURN_SECONDS",
            "600",
            "A wave stops if a machine is not live this many seconds after its event ended.",
        ),
        Setting("BEAT_SECONDS", "2", "Interval at which Celery beat reconciles due orders."),
        Setting(
            "FALLBACK_TICK_SECONDS",
            "5",
            "Interval at which the gateway reconciles due orders if Celery is unavailable.",
            former="TICKER_SECONDS",
        ),
    ),
    "Agent reports": (
        Setting("INGEST_QUEUE_REPORTS", "20000", "Reports that may wait to be written before the gateway answers 503."),
        Setting("AGENT_CALLS_PER_MINUTE", "600", "Calls of one machine per minute before the gateway answers 429."),
        Setting(
            "ENROLMENTS_PER_MINUTE", "6000", "Enrolments from one address per minute before the gateway answers 429."
        ),
        Setting(
            "CREDENTIAL_CACHE_SECONDS",
            "600",
            "Seconds for which a process caches a verified machine credential.",
            former="CREDENTIAL_SECONDS",
        ),
    ),
    "Single sign-on": (
        Setting(
            "OIDC_ISSUER",
            "",
            "Issuer URL of the OpenID Connect provider, exactly as the provider states it: "
            "`https://login.microsoftonline.com/TENANT-ID/v2.0` for Entra ID. Must be a single tenant, not `common`. "
            "Empty: single sign-on is disabled.",
        ),
        Setting("OIDC_CLIENT_ID", "", "Application (client) id at the provider."),
        Setting("OIDC_CLIENT_SECRET", "", "Client secret of the application."),
        Setting(
            "OIDC_CLAIM",
            "roles",
            "Claim of the ID token that the mapping reads: `roles` for app roles of Entra ID, `groups`, or a path "
            "such as `realm_access.roles`.",
        ),
        Setting(
            "OIDC_SCOPES",
            "openid,profile,email,offline_access",
            "Requested scopes, separated by commas. Without `offline_access` users sign in again every 15 minutes.",
        ),
        Setting("OIDC_DISPLAY_NAME", "single sign-on", "Name of the provider on the sign-in page."),
        Setting(
            "OIDC_GRACE_SECONDS", "14400", "Seconds for which sessions remain valid while the provider is unavailable."
        ),
        Setting(
            "LOCAL_PASSWORDS", "yes", "`no`: only the account of `EMERGENCY_ACCOUNT` can sign in with a local password."
        ),
        Setting(
            "EMERGENCY_ACCOUNT",
            "",
            "User name of one local account for use while single sign-on fails. Every use notifies all administrators.",
        ),
        Setting(
            "PROXY_SIGN_IN_FROM",
            "",
            "Addresses or networks, separated by commas, of a reverse proxy that authenticates users and sends their "
            "names in headers. Empty: these headers are ignored.",
        ),
        Setting(
            "PROXY_SIGN_IN_SECRET", "", "Secret that this proxy sends in `X-Proxy-Secret`, at least 32 characters."
        ),
        Setting("PROXY_SIGN_IN_USER_HEADER", "X-Remote-User", "Header with the user's name."),
        Setting(
            "PROXY_SIGN_IN_GROUPS_HEADER",
            "X-Remote-Groups",
            "Header with the user's roles or groups, separated by commas, for the mapping.",
        ),
        Setting(
            "PROXY_SIGN_IN_STREAM_SECONDS",
            "30",
            "Seconds after which the event stream of a user authenticated by this proxy ends. It resumes only if the "
            "proxy still names the same user.",
        ),
    ),
    "Notifications": (
        Setting(
            "EGRESS_ALLOWLIST",
            "",
            "Private networks that notifications may reach in addition to the public internet, separated by commas, "
            "such as `10.1.0.0/16`.",
        ),
        Setting(
            "EGRESS_PROXY",
            "",
            "HTTP proxy for notifications, as `host:port`. The proxy then decides which addresses can be reached.",
        ),
        Setting(
            "EGRESS_CA_FILE",
            "",
            "PEM file of certificate authorities to trust for receivers, in addition to the public ones.",
        ),
        Setting("EMAIL_HOST", "", "SMTP server for e-mail channels."),
        Setting("EMAIL_PORT", "25", "Port of the SMTP server."),
        Setting("EMAIL_HOST_USER", "", "User name at the SMTP server. Empty: no authentication."),
        Setting("EMAIL_HOST_PASSWORD", "", "Password at the SMTP server."),
        Setting("EMAIL_USE_TLS", "no", "`yes`: use STARTTLS, and send no e-mail without it."),
        Setting("EMAIL_USE_SSL", "no", "`yes`: use TLS from the start of the connection, as on port 465."),
        Setting("EMAIL_TIMEOUT", "15", "Timeout for one e-mail in whole seconds, at most 30."),
        Setting("DEFAULT_FROM_EMAIL", "", "Sender address of e-mails. Empty: `drydock` at the host of `BASE_URL`."),
        Setting(
            "WATCHDOG_URL",
            "",
            "URL that Drydock pings once a minute while it works, as healthchecks expects it. Missing pings show "
            "that Drydock is down.",
        ),
        Setting(
            "WATCHDOG_REPORT_FAILURES", "no", "`yes`: report failures immediately to `/fail` below `WATCHDOG_URL`."
        ),
        Setting(
            "NOTIFICATION_SENDER_PROCESSES", "8", "Notifications that one Drydock process may send at the same time."
        ),
        Setting(
            "NOTIFICATION_GROUP_WAIT_SECONDS",
            "2",
            "Seconds to wait for further notifications before a group is sent, 0 to 30.",
        ),
        Setting(
            "NOTIFICATION_GROUP_INTERVAL_SECONDS",
            "60",
            "Seconds between notifications to a busy channel. A closer deadline shortens them.",
        ),
    ),
    "Retention and archive": (
        Setting(
            "ARCHIVE_URL",
            "",
            "Archive destination: a folder, as `file:///var/lib/drydock/archive`, or a container of Azure Blob "
            "Storage, as `https://ACCOUNT.blob.core.windows.net/CONTAINER/FOLDER?SIGNATURE` with a shared access "
            "signature that permits read and create. Empty: archiving is disabled and nothing is deleted.",
        ),
        Setting(
            "DOCUMENT_RETENTION_DAYS",
            "30",
            "Days for which agent reports without an event are retained, such as raw documents; or `for ever`.",
        ),
        Setting(
            "EVENT_DOCUMENT_RETENTION_DAYS",
            "400",
            "Days for which raw documents that list an event are retained; or `for ever`.",
        ),
        Setting(
            "TIMELINE_RETENTION_DAYS",
            "for ever",
            "Days for which timeline entries, including decisions, are retained; or `for ever`.",
        ),
        Setting(
            "CACHE_NOTIFICATION_RETENTION_DAYS",
            "400",
            "Days for which notifications of caches are retained as received; or `for ever`.",
        ),
        Setting("NOTIFICATION_RETENTION_DAYS", "400", "Days for which sent notifications are retained; or `for ever`."),
    ),
    "Operation": (
        Setting(
            "STATIC_ROOT",
            "",
            "Folder into which `collectstatic` writes. Empty: static files are served from the packages.",
        ),
        Setting("LOG_LEVEL", "INFO", "`DEBUG`, `INFO`, `WARNING` or `ERROR`."),
        Setting("LOG_FORMAT", "text", "`text` or `json`."),
        Setting("DEBUG", "no", "`yes` shows the cause of an error in the browser. Use only on a development machine."),
    ),
    DEMO: (
        Setting("DEMO_DIR", ".demo", "Folder for the data of the demo."),
        Setting("PORT", "8000", "Port of the demo."),
        Setting("SIMULATOR_PORT", "8169", "Port of the simulated Azure."),
        Setting("DEMO_SINGLE_SIGN_ON", "off", "`on`: users can also sign in through a simulated Entra ID."),
        Setting("DEMO_SINGLE_SIGN_ON_PORT", "8170", "Port of the simulated Entra ID."),
        Setting("DEMO_STORY", "on", "`off`: no events are simulated automatically.", former="STORY"),
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
