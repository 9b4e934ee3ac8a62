"""The wire between agents and the backend, protocol 1.

Both sides import this file and nothing else of each other. It holds data classes and limits, no behaviour, and imports
only the standard library. Every time is an RFC 3339 string in UTC on the wire (a `datetime` once decoded);
both sides ignore fields and report kinds that they do not know.

An agent makes four calls, all outbound:

* `POST CHALLENGES_PATH`: a nonce for Azure's attestation of this machine. 0.1.0 does not know it (404).
* `POST ENROL_PATH`: an attested document, a join token, or both, for a key or a credential of this machine. Everything
  else carries `Authorization: Drydock ...` (see `call_text`), or `Authorization: Bearer <credential>` as 0.1.0 does.
* `POST REPORTS_PATH`: numbered reports in, an acknowledgement and waiting orders out.
* `GET ORDERS_PATH?wait=50&sent_at=…&last_poll_at=…&held=<order id>:<via>,…&spool=…&acknowledged=…&document=…&keys=…
  &metadata=…`: held open until an order arrives or the backend's hold time ends, then repeated at once. Its query
  reports everything that the backend needs to know of a machine while nothing happens: see `OrdersAnswer`.

Errors are `application/problem+json` with `type`, `title`, `status`, `detail`: 401 (credential unknown or revoked:
enrol again; with `server_time` the clock differed: sign the call again by that time), 403 (join token or attested
document refused), 422 `intermediate-wanted` (the message of `errors` is an address on `ISSUER_HOSTS`, to be fetched),
413 (too large), 422 (cannot be read), 429 and 503 (later; see `Retry-After`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

PROTOCOL = 1

CHALLENGES_PATH = "/agent/v1/challenges"
ENROL_PATH = "/agent/v1/enrol"
ENROL_CHECK_PATH = "/agent/v1/enrol/check"
REPORTS_PATH = "/agent/v1/reports"
ORDERS_PATH = "/agent/v1/orders"

# Reports in one batch, bytes in one request, bytes in one document as received, levels of nesting, seconds held open.
MAX_REPORTS = 200
MAX_REQUEST_BYTES = 4 * 1024 * 1024
MAX_DOCUMENT_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_WAIT_SECONDS = 50

# An attested document, decoded; each of so many certificates that may come with it has at most as many bytes.
MAX_ATTESTED_BYTES = 16 * 1024
MAX_INTERMEDIATES = 4
# From where certificates of issuers are fetched, and from nowhere else.
ISSUER_HOSTS = ("www.microsoft.com", "caissuers.microsoft.com")
# How far the time of a signed call may be from the backend's.
MAX_SKEW_SECONDS = 30
SIGNED = "Drydock"

# As `acknowledged` of an answer, higher than any sent number: the agent gives its spool a new id, renumbers the waiting
# reports, and sends its newest document again. Agents of 0.1.0 do so for any number that they had not sent.
RENUMBER_SPOOL = 2**53

# How the id of a drill's event begins: Azure's are GUIDs. An agent refuses a drill beyond these seconds.
DRILL_PREFIX = "DRILL-"
MAX_DRILL_NOTICE_SECONDS = 3600
MAX_DRILL_DURATION_SECONDS = 600

# Endings of cache host names without notifications: Azure Managed Redis and the older Enterprise tiers, in each of
# Azure's clouds. Azure Cache for Redis has `.redis.cache.` before the cloud's own part.
_CLOUDS = ("azure.net", "usgovcloudapi.net", "chinacloudapi.cn", "sovcloud-api.de", "sovcloud-api.fr")
CACHE_HOSTS_WITHOUT_NOTIFICATIONS = tuple(
    f".{kind}.{cloud}" for kind in ("redis", "redisenterprise.cache") for cloud in _CLOUDS
)

# Kinds of reports. A backend that does not know a kind stores the report as it is and flags it.
DOCUMENT = "document"
REMINDER = "reminder"
RECEIPT = "receipt"
INSTANCE = "instance"
HOOK = "hook"
REDIS = "redis"
COVERAGE = "coverage"
REDIS_HOOK = "redis_hook"
REHEARSAL = "rehearsal"

# Problem of the metadata service's last answer, as `metadata_text` states it: none; no answer; 200 without a body; 200
# with a body that is no document. Another status is stated as `status-403`.
NO_PROBLEM = "ok"
NO_ANSWER = "no-answer"
EMPTY = "empty"
UNREADABLE = "unreadable"

# Outcomes of an order, as a receipt states them.
ANSWERED = "answered"
REFUSED = "refused"
FAILED = "failed"

# Phases of the hooks for an event, as reports of hooks state them.
PREPARE = "prepare"
RECOVER = "recover"
HOOK_PHASES = (PREPARE, RECOVER)


@dataclass(slots=True, kw_only=True)
class Challenge:
    """A nonce of at most 32 letters and digits, good once and for `expires_in` seconds."""

    nonce: str
    expires_in: float
    server_time: datetime


@dataclass(slots=True, kw_only=True)
class AttestedDocument:
    """`signature` as the metadata service gave it, base64; certificates between it and a root, DER in base64."""

    signature: str
    intermediates: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class EnrolRequest:
    """The first request of a machine, with its statements about itself.

    `machine_id` is the `vmId`, else `DRYDOCK_MACHINE_ID`, else a UUID kept in the state folder; `machine_id_source` is
    its origin (`imds`, `config`, `file`). `availability_set` is the configured set as `[kind:]name`, or empty.
    `instance` is the `compute` object of `/metadata/instance` as received, or null where it could not be read.
    `credential` is its present one: only with it can a known machine enrol again without an administrator. `ask` is a
    secret of its state folder: an administrator admits only the machine that sent it. `attested` is the document that
    Azure signed. `keyed`: it requests a key in place of a credential; a call signed with its present key proves its
    identity.

    With `complete` an empty value in `instance` is a statement; else it counts as not stated. `former_id` is the id
    with which this machine enrolled while Azure gave no `vmId`: the key or credential of that id proves that both are
    one machine.
    """

    join_token: str
    machine_id: str
    machine_id_source: str = "imds"
    resource_name: str = ""
    availability_set: str = ""
    instance: dict[str, Any] | None = None
    agent_version: str = ""
    protocol: int = PROTOCOL
    credential: str = ""
    ask: str = ""
    attested: AttestedDocument | None = None
    keyed: bool = False
    complete: bool = False
    former_id: str = ""


@dataclass(slots=True, kw_only=True)
class EnrolPending:
    """The answer with status 202: an administrator has to admit this machine. Repeat the request after `retry_after`
    seconds."""

    server_time: datetime
    admission: str = "pending"
    retry_after: float = 30.0


@dataclass(slots=True, kw_only=True)
class EnrolCheck:
    """The machine would be admitted now. Nothing was given, and nothing is kept of the call."""

    server_time: datetime
    admission: str = "granted"


@dataclass(slots=True, kw_only=True)
class PublicKey:
    """A key that signs orders: Ed25519, the 32 bytes of its public half in base64; `id` names it."""

    id: str
    public_key: str


@dataclass(slots=True, kw_only=True)
class KeyNotice:
    """Notice of a new signing key, or (`retired`) of one that no longer signs.

    `signature` (base64) over `key_text` is by the key `by`, which the reader must trust already.
    """

    id: str
    public_key: str
    retired: bool
    by: str
    signature: str


@dataclass(slots=True, kw_only=True)
class Signature:
    """One signature (base64, Ed25519) over an order's `order_text`, and the id of the key that made it."""

    key: str
    value: str


@dataclass(slots=True, kw_only=True)
class EnrolAnswer:
    """The credential is shown this once; the backend keeps a hash of it. `signing_keys` are those that sign orders.

    A machine that requested a key gets that instead: `key` (32 bytes in hex) of this `generation`, stored nowhere else.
    """

    credential: str
    machine_id: str
    server_time: datetime
    signing_keys: list[PublicKey] = field(default_factory=list)
    protocol: int = PROTOCOL
    key: str = ""
    generation: int = 0


def metadata_text(problem: str, events_version: str, instance_version: str) -> str:
    """Return the state of the metadata service as heartbeats carry it: `<problem>,<version>,<version>`, the problem of
    the last poll, and the api-versions in use for scheduled events and for instance metadata (empty where unknown).
    """
    return f"{problem},{events_version},{instance_version}" if problem else ""


def call_text(method: str, target: str, body_hash: str, at: str, call_id: str) -> bytes:
    """Return the signed text of a call, for HMAC-SHA-256 with the machine's key.

    `target` is the path from the backend's address on, with its query as sent. `body_hash` is the SHA-256 of the body
    in hex, `-` without one. `at` is the backend's time as last received, in milliseconds since 1970; `call_id` is new
    with each call. They are sent as `Authorization: Drydock <machine id, quoted> <generation> <at> <call id> <body
    hash> <HMAC in hex>`.
    """
    return "\n".join(("drydock call 1", method, target, body_hash, at, call_id)).encode()


@dataclass(slots=True, kw_only=True)
class Report:
    """One numbered observation or receipt. `seq` counts from 1 within a spool; `at` is by the machine's own clock as it
    is when the report is sent: a step of that clock since it was recorded is added.

    `data` holds the fields of `DocumentData`, `ReminderData`, `ReceiptData`, `InstanceData`, `HookData`, `RedisData`,
    `CoverageData`, `RedisHookData` or `RehearsalData`, by `kind`.
    """

    seq: int
    kind: str
    at: datetime
    data: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class DocumentData:
    """One answer of the metadata service as received.

    `body` is the answer's bytes as UTF-8 text; where they are no UTF-8 it is their base64 form and `encoding` is
    `base64`. `hash` is the SHA-256 of the bytes, lower case hex. `incarnation` is None where it could not be read.
    """

    body: str
    hash: str
    incarnation: int | None = None
    encoding: str = "utf-8"
    api_version: str = ""


@dataclass(slots=True, kw_only=True)
class ReminderData:
    """The document with this hash is still what the metadata service answers (at the report's `at`)."""

    hash: str
    incarnation: int | None = None


@dataclass(slots=True, kw_only=True)
class ReceiptData:
    """The agent's answer to one order.

    `outcome` is `answered` (Azure answered with `azure_status` and `azure_body`, cut at 2,000 characters), `refused`
    (the agent did not ask Azure: `reason` is one of `expired`, `wrong-machine`, `not-listed`, `already-started`,
    `unreadable`, `unsigned`, `bad-signature`) or `failed` (asked, no answer: `reason` in words). `posts` counts the
    requests to Azure for this order (None from agents of 0.1.0); `retry_after` is the Retry-After of Azure's last
    answer, in seconds. `via` repeats the order's.

    An order of a drill is answered by the machine's own rehearsal, and Azure is never asked: `answered`, or `refused`
    with one of the reasons above or `not-a-drill`, `real-event`, `another-drill`, `not-running`.
    """

    order_id: str
    event_id: str
    outcome: str
    azure_status: int | None = None
    azure_body: str = ""
    reason: str = ""
    attempted_at: datetime | None = None
    posts: int | None = None
    retry_after: float | None = None
    via: str = ""


@dataclass(slots=True, kw_only=True)
class InstanceData:
    """`compute` of `/metadata/instance` as received, and the configured set (`[kind:]name` or empty).

    A key that is missing in `compute` means nothing. An empty value is a statement only with `complete`: the answer has
    every key that Drydock reads. Agents before that field did not check, so their answers count as partial.
    """

    compute: dict[str, Any]
    resource_name: str = ""
    availability_set: str = ""
    complete: bool = False


@dataclass(slots=True, kw_only=True)
class HookData:
    """The progress of this machine's hooks for one event that names it.

    `phase` is `prepare` or `recover`. `step` is `begin` (hooks are about to run), `hook` (one of them ended) or `end`
    (all ended). `outcome` is `running` (only with `begin`), `succeeded`, `failed`, `timed-out`, or `nothing` (only with
    `end`: the folder holds none); of `end` it is the outcome of the whole phase. `hook` is the file's name, empty for
    `begin` and `end`. `late`: prepare began after the event had started. `again` marks a repetition, for a backend that
    may have lost the first report; the report's `at` is then that of the first time, where known.
    """

    event_id: str
    phase: str
    step: str
    outcome: str
    hook: str = ""
    exit_status: int | None = None
    seconds: float | None = None
    # The end of its output, at most 4,000 characters.
    output: str = ""
    late: bool = False
    again: bool = False


@dataclass(slots=True, kw_only=True)
class RedisData:
    """One line heard on `AzureRedisEvents` of one cache (its host name), as received.

    `raw` is the line as UTF-8 text, at most 16,000 characters. Where its bytes are no UTF-8, `raw` is their base64 form
    and `encoding` is `base64`. `cut`: the line was longer.
    """

    cache: str
    raw: str
    encoding: str = "utf-8"
    cut: bool = False


@dataclass(slots=True, kw_only=True)
class CoverageData:
    """Whether this machine listens to a cache: it changed at the report's `at`.

    `state` is `subscribed` (confirmed by the server), `lost` (the connection ended), `stale` (no sign of life: closed),
    `refused` (login or permission) or `unsupported` (the host publishes no such channel). `tier` is the configured tier
    of the cache (`basic`, `standard`, `premium`, or empty), `divisor` the number of ports that make a shard.
    """

    cache: str
    state: str
    reason: str = ""
    tier: str = ""
    divisor: int = 2


@dataclass(slots=True, kw_only=True)
class RedisHookData:
    """One of this machine's hooks for a cache (its host name) ended, at the report's `at`.

    `notification_type` is the cause: the type of a line (empty where unreadable), `ConnectionLost` or
    `ConnectionRestored`. `hook` is the file's name, empty where the folder was refused. `outcome` is `succeeded`,
    `failed` or `timed-out`. Without `seconds` it was refused, or cut off by the agent's stop; `output` states which.
    """

    cache: str
    notification_type: str
    hook: str
    outcome: str
    exit_status: int | None = None
    seconds: float | None = None
    # The end of its output, at most 4,000 characters.
    output: str = ""


@dataclass(slots=True, kw_only=True)
class RehearsalData:
    """The progress of this machine's rehearsal of a drill, at the report's `at`. Azure knows nothing of it.

    `rehearsal` is the id of the order that began it. `step` is `announced`, `started` or `gone`. With `gone`, `reason`
    is `over`, `cancelled`, `real-event` (Azure announced a real event) or `late` (the agent was stopped too long).
    """

    rehearsal: str
    event_id: str
    step: str
    reason: str = ""


@dataclass(slots=True, kw_only=True)
class ReportsRequest:
    """A batch of up to `MAX_REPORTS` reports in ascending `seq`; it may be empty (a heartbeat).

    `spool` is a UUID made together with the spool: a new spool begins a new epoch. `last_poll_at` is the machine's
    time of the last good answer of the metadata service whose findings are all delivered with this call; null while
    more waits in the spool. `held` lists the orders the agent has, as `<order id>:<via>`.
    `acknowledged` is up to where its reports were acknowledged, so that it keeps them no longer; null from 0.1.0.
    """

    spool: str
    sent_at: datetime
    last_poll_at: datetime | None = None
    agent_version: str = ""
    held: list[str] = field(default_factory=list)
    # The ids of the signing keys that this agent trusts; null where it checks no signatures.
    signing_keys: list[str] | None = None
    # Each one a `Report`; read one by one, so that an unreadable report stands alone.
    reports: list[Any] = field(default_factory=list)
    acknowledged: int | None = None
    protocol: int = PROTOCOL
    # A `metadata_text`; empty from agents before 0.2.0, and before the first poll.
    metadata: str = ""


@dataclass(slots=True, kw_only=True)
class Order:
    """An approval on its way to one machine: start `event_id` at Azure, before `expires_at` (the backend's clock).

    `event_id` is spelled as this machine reported it. `via` names the path of delivery; the agent repeats it in `held`
    and in the receipt, so that the backend knows how each order was delivered.

    With `drill` it belongs to a rehearsal and never reaches Azure. Its `step` is one of four. `rehearse`: simulate that
    `event` was announced, an object in the form of the metadata service; it starts at `not_before`, and ends
    `duration_seconds` later. `approve`: answer as Azure would, and start. `start`: it was approved through another
    machine, so start at `at`. `cancel`: end it. Times are texts.
    """

    id: str
    machine_id: str
    event_id: str
    issued_at: datetime
    expires_at: datetime | None = None
    via: str = ""
    # By every key that signs at this time.
    signatures: list[Signature] = field(default_factory=list)
    drill: dict[str, Any] | None = None
    # By what the decision behind it is found in every log. Not signed, and written down only.
    request_id: str = ""
    trace_id: str = ""


def order_text(order: Order) -> bytes:
    """Return the signed text of an order: all but its path and ids for logs, with times in microseconds since 1970."""
    times = [_microseconds(order.issued_at), _microseconds(order.expires_at)]
    # All that a drill asks for: no reader on the way can turn a drill into an order, or an order into a drill.
    drill = [] if order.drill is None else [order.drill]
    fields = ["drydock order 1", order.id, order.machine_id, order.event_id, *times, *drill]
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":"), sort_keys=True).encode()


def key_text(notice: KeyNotice) -> bytes:
    """Return the signed text of a key notice."""
    fields = ["drydock key 1", notice.id, notice.public_key, notice.retired, notice.by]
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode()


def _microseconds(at: datetime | None) -> int | None:
    return None if at is None else (at - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)


@dataclass(slots=True, kw_only=True)
class Refusal:
    """A report that the backend will never accept. The agent stores it separately and continues."""

    seq: int
    reason: str


@dataclass(slots=True, kw_only=True)
class ReportsAnswer:
    """Everything up to `acknowledged` is committed or refused; the agent may delete it.

    `acknowledged_before` is what the backend had before this call (null from 0.1.0). Where that is less than the agent
    received earlier, the backend's database was restored to an older state, and the agent resends its whole current
    state. `wanted` are hashes of documents that reminders of this batch name and no agent has sent. An agent whose
    newest document is among them sends it whole. Agents of 0.1.0 know neither, and get `RENUMBER_SPOOL`.
    """

    acknowledged: int
    server_time: datetime
    refused: list[Refusal] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    # Notices of signing keys that this agent does not have, or should no longer have; in the order in which to read
    # them.
    key_words: list[KeyNotice] = field(default_factory=list)
    acknowledged_before: int | None = None
    wanted: list[str] = field(default_factory=list)
    protocol: int = PROTOCOL
    # There is a key for this machine, or a newer one: it enrols again with its present one.
    renew: bool = False


@dataclass(slots=True, kw_only=True)
class OrdersAnswer:
    """The answer to a long poll; `orders` is empty when the wait ended without one.

    The call names the agent's `spool`, its position `acknowledged`, the hash of its newest `document`, the ids of the
    trusted signing `keys` (none where it checks no signatures), and `metadata` (a `metadata_text`). `last_poll_at` and
    `document` are omitted while reports wait in the spool. A backend that `takes_polls` needs no other heartbeat; 0.1.0
    does not, and ignores fields that it does not know. `report`: it requests a report, even an empty one, since its
    record of the spool or the keys differs. `remind`: it requests a reminder, since it does not have this document as
    the newest. The agent makes the next call after `renew_in` seconds: 0, except where all agents would call at once.
    """

    server_time: datetime
    orders: list[Order] = field(default_factory=list)
    protocol: int = PROTOCOL
    takes_polls: bool = False
    report: bool = False
    remind: bool = False
    renew_in: float = 0.0
