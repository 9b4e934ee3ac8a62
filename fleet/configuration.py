"""Table of all backend settings. `fleet.settings` takes their values, and docs/admin/settings.md is generated from it.

A setting is an environment variable. `<NAME>_FILE` may instead name a file with the value, as container platforms
provide secrets; the file takes precedence. A former name of a setting is read if the current name is not set.

To mypy each name here is the value of its setting, as `fleet.settings` has it. Here it is the `Setting` itself.
"""

from itertools import groupby

from fleet import environment as form
from fleet.environment import Setting, chapter

chapter("Servers and addresses")
DATABASE_URL = form.address(
    "Postgres 14 or later, as `postgresql://user:password@host:port/name`. Required.",
    schemes=("postgresql", "postgres"),
)
REDIS_URL = form.address(
    "Redis or Valkey, as `redis://`, `rediss://` or `unix://`. Carries wake-ups and ids only. Required.",
    schemes=("redis", "rediss", "unix"),
)
SECRET_KEY = form.text(
    "Signs sessions and encrypts the keys that sign orders. A long random text, the same for every process. Required."
)
SECRET_KEY_FALLBACKS = form.words("Earlier values of `SECRET_KEY` that are still accepted, separated by commas.")
BASE_URL = form.address(
    "Address at which users open Drydock. With `https`, cookies are sent over TLS only.", "http://127.0.0.1:8000"
)
AGENT_CA_FILE = form.certificates(
    "PEM file of private certificate authorities that machines need for `BASE_URL` or their package index. The install"
    " commands of join tokens store them on machines for pip and the agent.",
)
ALLOWED_HOSTS = form.words(
    "Further accepted host names, separated by commas. The host of `BASE_URL` and loopback are always accepted."
)
BEHIND_PROXY = form.flag("`yes` if a reverse proxy terminates TLS and sets `X-Forwarded-Proto` itself.", "no")
TRUSTED_PROXIES = form.networks(
    "Addresses or networks of reverse proxies, separated by commas. Drydock takes client addresses from their "
    "`X-Forwarded-For` and records them in the audit.",
)
DATABASE_CONNECTION_SECONDS = form.whole(
    "Seconds for which a connection to Postgres is reused.", "60", former="DATABASE_SECONDS"
)
DATABASE_MAX_GIGABYTES = form.whole_or_zero(
    "Maximum database size in GB. A notification is sent at 90 %. Empty: not monitored."
)
PARTITION_ROWS = form.whole(
    "Rows per partition of a large table, at least 1000. A partition is archived as a whole. Fewer partitions are "
    "faster to query.",
    "5000000",
    at_least=1000,
)

chapter("Machines and presence")
MACHINE_LIVE_SECONDS = form.seconds(
    "A machine is live if its last contact and its last successful poll are at most this many seconds ago.",
    "60",
    former="LIVE_SECONDS",
)
MACHINE_LATE_SECONDS = form.seconds(
    "A machine is late up to this many seconds after its last contact, and silent afterwards.",
    "600",
    former="LATE_SECONDS",
)
MACHINE_GONE_SECONDS = form.seconds("A silent machine is gone after this many seconds.", "86400", former="GONE_SECONDS")
DECOMMISSION_GONE_DAYS = form.days(
    "Drydock decommissions machines after this many days of silence. `for ever`: they stay.", "for ever"
)
DECOMMISSION_TERMINATED_DAYS = form.days(
    "The same for machines whose last report listed their own Terminate.", "for ever"
)
DECOMMISSION_UNLISTED_DAYS = form.days(
    "The same for machines that a complete inventory stopped listing this many days ago, if they have not reported "
    "since.",
    "for ever",
)
CLOCK_TOLERANCE_SECONDS = form.seconds(
    "Times that a machine reports are corrected if its clock differs by more than this.", "2"
)
JOIN_TOKEN_SECONDS = form.whole("Default lifetime of a join token in seconds.", "86400")
ENROLMENT_POLICY = form.one_of(
    "How unknown machines [enrol](enrolment.md#who-may-enrol): `join`, `auto`, `attested`, `admit` or `token`. Empty: "
    "the choice made on First steps.",
    choices=("", "join", "auto", "attested", "admit", "token"),
)
ATTESTED_SUBSCRIPTIONS = form.ids(
    "Ids of the subscriptions whose machines may enrol with an attested document, separated by commas. Empty: none."
)
ATTESTED_ROOTS = form.folder(
    "A folder of root and intermediate certificates (PEM or DER) for attested documents. Empty: the roots that Drydock"
    " ships.",
)
LEGACY_CREDENTIALS_UNTIL = form.date(
    "First day, as `2027-03-31` in UTC, on which agent calls without a signature of the machine's own key are "
    "rejected. Empty: credentials of 0.1.0 remain valid.",
)
AVAILABILITY_SET_TAG = form.text(
    "Azure tag that contains a VM's availability set, as `[kind:]name`.", "drydock:availability-set", former="SET_TAG"
)

chapter("Browsers and users")
SCOPED_READ_ACCESS = form.flag(
    "`yes`: users with scopes see only what belongs to these scopes. Administrators see everything.", "no"
)
SESSION_SECONDS = form.whole("Lifetime of a session in seconds.", "43200")
STEP_UP_SECONDS = form.seconds(
    "Seconds for which a confirmation with a second factor, or with the password if there is none, remains valid.",
    "600",
)
API_TOKEN_SECONDS = form.whole("Default lifetime of a new API token in seconds.", "7776000")
STATUS_BAR_CACHE_SECONDS = form.seconds(
    "Seconds for which a web process caches the counts of the status bar, 0 to 60.", "5", up_to=60
)
STREAM_SECONDS = form.seconds("Seconds after which a browser's event stream ends. The browser reconnects.", "200")
STREAM_PING_SECONDS = form.seconds("Interval of keep-alive messages on an event stream.", "15")

chapter("Decisions")
APPROVAL_UNDO_SECONDS = form.seconds(
    "Undo period of approvals made on pages, 0 to 10 seconds. In the last minute before NotBefore approvals are "
    "dispatched immediately.",
    "3",
    up_to=10,
)
ORDER_ANSWER_SECONDS = form.seconds(
    "Seconds to wait for a machine's answer to an order before another machine gets it.", "3"
)
WAVE_RETURN_SECONDS = form.seconds(
    "A wave stops if a machine is not live this many seconds after its event ended.", "600"
)
BEAT_SECONDS = form.seconds("Interval at which Celery beat reconciles due orders.", "2")
FALLBACK_TICK_SECONDS = form.seconds(
    "Interval at which the gateway reconciles due orders if Celery is unavailable.", "5", former="TICKER_SECONDS"
)

chapter("Agent reports")
INGEST_QUEUE_REPORTS = form.whole("Reports that may wait to be written before the gateway answers 503.", "20000")
AGENT_CALLS_PER_MINUTE = form.whole("Calls of one machine per minute before the gateway answers 429.", "600")
ENROLMENTS_PER_MINUTE = form.whole("Enrolments from one address per minute before the gateway answers 429.", "6000")
CREDENTIAL_CACHE_SECONDS = form.seconds(
    "Seconds for which a process caches a verified machine credential.", "600", former="CREDENTIAL_SECONDS"
)

chapter("Single sign-on")
OIDC_ISSUER = form.issuer(
    "Issuer URL of the OpenID Connect provider, exactly as the provider states it: "
    "`https://login.microsoftonline.com/TENANT-ID/v2.0` for Entra ID. Must be a single tenant, not `common`. Empty: "
    "single sign-on is disabled.",
)
OIDC_CLIENT_ID = form.text("Application (client) id at the provider.")
OIDC_CLIENT_SECRET = form.text("Client secret of the application.")
OIDC_CLAIM = form.text(
    "Claim of the ID token that the mapping reads: `roles` for app roles of Entra ID, `groups`, or a path such as "
    "`realm_access.roles`.",
    "roles",
)
OIDC_SCOPES = form.words(
    "Requested scopes, separated by commas. Without `offline_access` users sign in again every 15 minutes.",
    "openid,profile,email,offline_access",
)
OIDC_DISPLAY_NAME = form.text("Name of the provider on the sign-in page.", "single sign-on")
OIDC_GRACE_SECONDS = form.seconds("Seconds for which sessions remain valid while the provider is unavailable.", "14400")
LOCAL_PASSWORDS = form.flag("`no`: only the account of `EMERGENCY_ACCOUNT` can sign in with a local password.", "yes")
EMERGENCY_ACCOUNT = form.text(
    "User name of one local account for use while single sign-on fails. Every use notifies all administrators."
)
PROXY_SIGN_IN_FROM = form.networks(
    "Addresses or networks, separated by commas, of a reverse proxy that authenticates users and sends their names in "
    "headers. Empty: these headers are ignored.",
)
PROXY_SIGN_IN_SECRET = form.text("Secret that this proxy sends in `X-Proxy-Secret`, at least 32 characters.")
PROXY_SIGN_IN_USER_HEADER = form.header("Header with the user's name.", "X-Remote-User")
PROXY_SIGN_IN_GROUPS_HEADER = form.header(
    "Header with the user's roles or groups, separated by commas, for the mapping.", "X-Remote-Groups"
)
PROXY_SIGN_IN_STREAM_SECONDS = form.seconds(
    "Seconds after which the event stream of a user authenticated by this proxy ends. It resumes only if the proxy "
    "still names the same user.",
    "30",
)

chapter("Notifications")
EGRESS_ALLOWLIST = form.networks(
    "Private networks that notifications may reach in addition to the public internet, separated by commas, such as "
    "`10.1.0.0/16`.",
)
EGRESS_PROXY = form.host_and_port(
    "HTTP proxy for notifications, as `host:port`. The proxy then decides which addresses can be reached."
)
EGRESS_CA_FILE = form.readable_file(
    "PEM file of certificate authorities to trust for receivers, in addition to the public ones."
)
EMAIL_HOST = form.text("SMTP server for e-mail channels.")
EMAIL_PORT = form.whole("Port of the SMTP server.", "25")
EMAIL_HOST_USER = form.text("User name at the SMTP server. Empty: no authentication.")
EMAIL_HOST_PASSWORD = form.text("Password at the SMTP server.")
EMAIL_USE_TLS = form.flag("`yes`: use STARTTLS, and send no e-mail without it.", "no")
EMAIL_USE_SSL = form.flag("`yes`: use TLS from the start of the connection, as on port 465.", "no")
EMAIL_TIMEOUT = form.whole("Timeout for one e-mail in whole seconds, at most 30.", "15", at_most=30)
DEFAULT_FROM_EMAIL = form.text("Sender address of e-mails. Empty: `drydock` at the host of `BASE_URL`.")
WATCHDOG_URL = form.address(
    "URL that Drydock pings once a minute while it works, as healthchecks expects it. Missing pings show that Drydock "
    "is down.",
)
WATCHDOG_REPORT_FAILURES = form.flag("`yes`: report failures immediately to `/fail` below `WATCHDOG_URL`.", "no")
NOTIFICATION_SENDER_PROCESSES = form.whole("Notifications that one Drydock process may send at the same time.", "8")
NOTIFICATION_GROUP_WAIT_SECONDS = form.seconds(
    "Seconds to wait for further notifications before a group is sent, 0 to 30.", "2", up_to=30
)
NOTIFICATION_GROUP_INTERVAL_SECONDS = form.seconds(
    "Seconds between notifications to a busy channel. A closer deadline shortens them.", "60"
)

chapter("Retention and archive")
ARCHIVE_URL = form.archive(
    "Archive destination: a folder, as `file:///var/lib/drydock/archive`, or a container of Azure Blob Storage, as "
    "`https://ACCOUNT.blob.core.windows.net/CONTAINER/FOLDER?SIGNATURE` with a shared access signature that permits "
    "read and create. Empty: archiving is disabled and nothing is deleted.",
)
DOCUMENT_RETENTION_DAYS = form.days(
    "Days for which agent reports without an event are retained, such as raw documents; or `for ever`.", "30"
)
EVENT_DOCUMENT_RETENTION_DAYS = form.days(
    "Days for which raw documents that list an event are retained; or `for ever`.", "400"
)
TIMELINE_RETENTION_DAYS = form.days(
    "Days for which timeline entries, including decisions, are retained; or `for ever`.", "for ever"
)
CACHE_NOTIFICATION_RETENTION_DAYS = form.days(
    "Days for which notifications of caches are retained as received; or `for ever`.", "400"
)
NOTIFICATION_RETENTION_DAYS = form.days("Days for which sent notifications are retained; or `for ever`.", "400")

chapter("Operation")
STATIC_ROOT = form.optional(
    "Folder into which `collectstatic` writes. Empty: static files are served from the packages."
)
LOG_LEVEL = form.one_of("`DEBUG`, `INFO`, `WARNING` or `ERROR`.", "INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
LOG_FORMAT = form.one_of("`text` or `json`.", "text", choices=("text", "json"))
DEBUG = form.flag("`yes` shows the cause of an error in the browser. Use only on a development machine.", "no")

chapter("The demo")
DEMO_DIR = form.text("Folder for the data of the demo.", ".demo")
PORT = form.whole("Port of the demo.", "8000")
SIMULATOR_PORT = form.whole("Port of the simulated Azure.", "8169")
DEMO_SINGLE_SIGN_ON = form.flag("`on`: users can also sign in through a simulated Entra ID.", "off")
DEMO_SINGLE_SIGN_ON_PORT = form.whole("Port of the simulated Entra ID.", "8170")
DEMO_STORY = form.flag("`off`: no events are simulated automatically.", "on", former="STORY")

# Each setting by its name, in the order of the documentation.
table: dict[str, Setting] = {name: each for name, each in list(globals().items()) if isinstance(each, Setting)}
for _name, _setting in table.items():
    _setting.name = _name


def markdown() -> str:
    """Return the tables of docs/admin/settings.md, one per chapter."""
    lines = []
    for title, settings in groupby(table.values(), key=lambda each: each.chapter):
        lines += ["", f"## {title}", "", "| Setting | Default | Description |", "|---|---|---|"]
        for each in settings:
            default = f"`{each.default}`" if each.default else ""
            former = f" Formerly `{each.former}`." if each.former else ""
            lines.append(f"| `{each.name}` | {default} | {each.help}{former} |")
    return "\n".join(lines[1:])
