"""Wire format between agents and the backend, protocol 1.

The only file that both sides import: data classes and limits without behaviour, which need only the standard library.
Times are sent as RFC 3339 strings in UTC. Both sides ignore unknown fields and unknown kinds of reports.

An agent makes four calls, all outbound:

* `POST CHALLENGES_PATH`: request a nonce for Azure's attestation of this machine. 0.1.0 does not support it (404).
* `POST ENROL_PATH`: send an attested document, a join token or both, and receive a key or credential. All later calls
  have the header `Authorization: Drydock ...` (see `call_text`), or `Authorization: Bearer <credential>` as in 0.1.0.
* `POST REPORTS_PATH`: send numbered reports, and receive an acknowledgement and waiting orders.
* `GET ORDERS_PATH?wait=50&sent_at=…&last_poll_at=…&held=<order id>:<via>,…&spool=…&acknowledged=…&document=…&keys=…
  &metadata=…`: long poll for an order; it is repeated at once. The query contains everything that the backend must know
  about an idle machine (see `OrdersAnswer`).

Errors are `application/problem+json` with `type`, `title`, `status`, `detail`: 401 (credential unknown or revoked:
enrol again; if `server_time` is included, the clocks differ: sign the call again with that time), 403 (join token or
attested document refused), 413 (too large), 422 (invalid), 422 `intermediate-wanted` (fetch the certificate at the
address in `errors`, on one of `ISSUER_HOSTS`), 429 and 503 (retry later; see `Retry-After`).
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

# Limits: reports in a batch, bytes in a request, bytes in a document, levels of nesting, seconds of a long poll.
MAX_REPORTS = 200
MAX_REQUEST_BYTES = 4 * 1024 * 1024
MAX_DOCUMENT_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_WAIT_SECONDS = 50
# Limits: bytes of a decoded attested document and of each certificate, and number of certificates.
MAX_ATTESTED_BYTES = 16 * 1024
MAX_INTERMEDIATES = 4
# The only hosts from which issuer certificates are fetched.
ISSUER_HOSTS = ("www.microsoft.com", "caissuers.microsoft.com")
# Maximum difference in seconds between the time of a signed call and the backend's time.
MAX_SKEW_SECONDS = 30
SIGNED = "Drydock"
# As `acknowledged` of an answer, higher than any sent number: the agent gives its spool a new id, renumbers the waiting
# reports, and sends its newest document again. Agents of 0.1.0 do so for any number that they had not sent.
RENUMBER_SPOOL = 2**53
# Prefix of event ids of drills (Azure's ids are GUIDs), and limits in seconds beyond which an agent refuses a drill.
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
# In place of such a problem: the agent cannot store what it polls, for example on a full disk.
SPOOL_UNWRITABLE = "spool-unwritable"

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
    """A nonce of at most 32 letters and digits. It is valid once, for `expires_in` seconds."""

    nonce: str
    expires_in: float
    server_time: datetime


@dataclass(slots=True, kw_only=True)
class AttestedDocument:
    """Azure's attested document in base64 as received, and the certificates between it and a root, DER in base64."""

    signature: str
    intermediates: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class EnrolRequest:
    """First request of a machine, with what it states about itself.

    `machine_id` is the `vmId`, else `DRYDOCK_MACHINE_ID`, else a UUID from the state folder; `machine_id_source` is the
    origin (`imds`, `config`, `file`). `availability_set` is the configured set as `[kind:]name`, or empty. `instance`
    is the `compute` object of `/metadata/instance` as received, or null; an empty value in it means not stated, with
    `complete` no value. `credential` is the present one, with which a known machine enrols again without an
    administrator. `ask` is a secret from the state folder: an administrator admits only the machine that sent it.
    `keyed`: the machine requests a key instead of a credential; a call that is signed with the present key proves its
    identity. `former_id` is the id under which this machine enrolled before Azure gave a `vmId`: the key or credential
    of that id proves that both are one machine.
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
    """Response with status 202: an administrator must admit this machine. Repeat it after `retry_after` seconds."""

    server_time: datetime
    admission: str = "pending"
    retry_after: float = 30.0


@dataclass(slots=True, kw_only=True)
class EnrolCheck:
    """Response to a check of enrolment: the machine would be admitted now. The backend has stored nothing."""

    server_time: datetime
    admission: str = "granted"


@dataclass(slots=True, kw_only=True)
class PublicKey:
    """Public key that verifies orders: 32 bytes (Ed25519) in base64. `id` identifies it."""

    id: str
    public_key: str


@dataclass(slots=True, kw_only=True)
class KeyNotice:
    """Notice of a new signing key, or (`retired`) of a key that no longer signs. `signature` (base64) was made over
    `key_text` with the key `by`, which the agent must already trust.
    """

    id: str
    public_key: str
    retired: bool
    by: str
    signature: str


@dataclass(slots=True, kw_only=True)
class Signature:
    """Signature of an order: Ed25519 over `order_text`, in base64, with the id of the key."""

    key: str
    value: str


@dataclass(slots=True, kw_only=True)
class EnrolAnswer:
    """Response to an enrolment, with the credential, of which the backend stores a hash only. A machine that requested
    a key receives `key` (32 bytes in hex) and its `generation` instead: the backend derives the key again for each call
    and does not store it. `signing_keys` are the keys that sign orders.
    """

    credential: str
    machine_id: str
    server_time: datetime
    signing_keys: list[PublicKey] = field(default_factory=list)
    protocol: int = PROTOCOL
    key: str = ""
    generation: int = 0


def metadata_text(problem: str, events_version: str, instance_version: str) -> str:
    """Return the state of the metadata service for heartbeats, `<problem>,<version>,<version>`: the problem of the last
    poll or of the spool, and the api-versions in use for events and for instance metadata (empty if unknown).
    """
    return f"{problem},{events_version},{instance_version}" if problem else ""


def call_text(method: str, target: str, body_hash: str, at: str, call_id: str) -> bytes:
    """Return the text of a call that the machine signs with HMAC-SHA-256 and its key.

    `target` is the path after the backend's address, with the query as sent. `body_hash` is the SHA-256 of the body in
    hex, `-` without a body. `at` is the backend's time as last received, in milliseconds since 1970. `call_id` is new
    for each call. Header: `Authorization: Drydock <machine id, quoted> <generation> <at> <call id> <body hash> <HMAC>`.
    """
    return "\n".join(("drydock call 1", method, target, body_hash, at, call_id)).encode()


@dataclass(slots=True, kw_only=True)
class Report:
    """A numbered observation or receipt. `seq` counts from 1 within a spool. `at` is by the machine's clock at the time
    of sending: if that clock was changed since the report was recorded, `at` is corrected by the difference. `data` has
    the fields of `DocumentData` or of another class below, depending on `kind`.
    """

    seq: int
    kind: str
    at: datetime
    data: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class DocumentData:
    """A scheduled events document as received. `body` is its text, or base64 if that is not UTF-8, as `encoding`
    states. `hash` is the SHA-256 of the bytes in lower-case hex. `incarnation` is None if it could not be read.
    """

    body: str
    hash: str
    incarnation: int | None = None
    encoding: str = "utf-8"
    api_version: str = ""


@dataclass(slots=True, kw_only=True)
class ReminderData:
    """Reminder that the metadata service still returns the document with this hash, at the report's `at`."""

    hash: str
    incarnation: int | None = None


@dataclass(slots=True, kw_only=True)
class ReceiptData:
    """The agent's receipt for one order. `outcome` is `answered` (Azure responded with `azure_status` and `azure_body`,
    cut at 2,000 characters), `refused` (the agent sent nothing to Azure: `reason` is `expired`, `wrong-machine`,
    `not-listed`, `already-started`, `unreadable`, `unsigned` or `bad-signature`) or `failed` (no response: `reason` is
    text). `posts` counts the requests to Azure for this order (None from agents of 0.1.0). `retry_after` is the
    Retry-After of Azure's last response in seconds. `via` repeats the order's. The machine itself carries out an order
    of a drill, and Azure receives nothing. The outcome is `answered`, or `refused` with a reason above or
    `not-a-drill`, `real-event`, `another-drill` or `not-running`.
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
    """The `compute` object of `/metadata/instance` as received, and the configured set (`[kind:]name` or empty). A
    missing key in `compute` has no meaning. An empty value means no value only with `complete`: then the response has
    every key that Drydock reads. Older agents did not check this, so their responses count as partial. `node_name` is
    the Kubernetes node that this machine is; empty on other machines and from agents before 0.2.0.
    """

    compute: dict[str, Any]
    resource_name: str = ""
    availability_set: str = ""
    complete: bool = False
    node_name: str = ""


@dataclass(slots=True, kw_only=True)
class HookData:
    """Progress of this machine's hooks for an event that names it. `phase` is `prepare` or `recover`. `step` is `begin`
    (hooks are about to run), `hook` (one of them ended) or `end` (all ended). `outcome` is `running` (only with
    `begin`), `succeeded`, `failed`, `timed-out`, or `nothing` (only with `end`: the folder has no hooks); with `end` it
    is that of the whole phase. `hook` is the file name, empty for `begin` and `end`. `late`: prepare began after the
    event had started. `again` marks a repeated report, in case the backend lost the first; the report's `at` is then
    that of the first time, if known. With the step `plan` (not from 0.1.0) the hooks of `prepare` will begin at
    `planned_at`, and `outcome` is `planned`. The machine prepares earlier if the event starts, or if an `OrdersAnswer`
    names the event. A later plan replaces an earlier one; a plan for an event that is no longer listed has no further
    report.
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
    planned_at: datetime | None = None


@dataclass(slots=True, kw_only=True)
class RedisData:
    """One line received on `AzureRedisEvents` of a cache (`cache` is the host name). `raw` is its text, at most 16,000
    characters (`cut`: the line was longer); if it is not UTF-8, `raw` is base64, as `encoding` states.
    """

    cache: str
    raw: str
    encoding: str = "utf-8"
    cut: bool = False


@dataclass(slots=True, kw_only=True)
class CoverageData:
    """Change of whether this machine listens to a cache, at the report's `at`. `state` is `subscribed` (confirmed by
    the server), `lost` (the connection ended), `stale` (closed because the server no longer responded), `refused`
    (login or permission) or `unsupported` (this kind of cache has no such channel). `tier` is the configured tier of
    the cache (`basic`, `standard`, `premium`, or empty), `divisor` the number of ports for each shard.
    """

    cache: str
    state: str
    reason: str = ""
    tier: str = ""
    divisor: int = 2


@dataclass(slots=True, kw_only=True)
class RedisHookData:
    """Result of one of this machine's hooks for a cache (`cache` is the host name), at the report's `at`.
    `notification_type` is the trigger: the type of a line (empty if unreadable), `ConnectionLost` or
    `ConnectionRestored`. `hook` is the file name, empty if the folder was refused. `outcome` is `succeeded`, `failed`
    or `timed-out`. If `seconds` is None, the hook was refused, or stopped together with the agent; `output` states
    which.
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
    """Progress of a drill that this machine simulates, at the report's `at`. Azure is not involved. `rehearsal` is the
    id of the order that began it. `step` is `announced`, `started` or `gone`. With `gone`, `reason` is `over`,
    `cancelled`, `real-event` (Azure announced a real event) or `late` (the agent was stopped too long).
    """

    rehearsal: str
    event_id: str
    step: str
    reason: str = ""


@dataclass(slots=True, kw_only=True)
class ReportsRequest:
    """A batch of up to `MAX_REPORTS` reports in ascending `seq`. It may be empty (a heartbeat). `spool` is a UUID
    created with the spool; a new spool starts a new numbering. `last_poll_at` is the machine's time of the last
    successful poll of the metadata service, if all reports up to it are delivered with this call; otherwise null.
    `held` lists the orders that the agent has, as `<order id>:<via>`. `acknowledged` is the number up to which the
    agent received acknowledgements and deleted its reports; null from 0.1.0.
    """

    spool: str
    sent_at: datetime
    last_poll_at: datetime | None = None
    agent_version: str = ""
    held: list[str] = field(default_factory=list)
    # The ids of the signing keys that this agent trusts; null where it checks no signatures.
    signing_keys: list[str] | None = None
    # Each item is a `Report`. They are parsed one by one, so that an invalid report does not affect the others.
    reports: list[Any] = field(default_factory=list)
    acknowledged: int | None = None
    protocol: int = PROTOCOL
    # A `metadata_text`; empty from agents before 0.2.0, and before the first poll.
    metadata: str = ""


@dataclass(slots=True, kw_only=True)
class Order:
    """An approval for one machine to carry out: start `event_id` at Azure before `expires_at` (the backend's clock).
    `event_id` is spelled as this machine reported it. `via` names the path of delivery. The agent repeats it in `held`
    and in the receipt, so that the backend knows how each order was delivered. With `drill`, the order belongs to a
    drill and never reaches Azure. `step` is then `rehearse` (simulate that `event`, an object in the form of the
    metadata service, was announced; it starts at `not_before` and ends `duration_seconds` later), `approve` (respond as
    Azure would, and start), `start` (another machine carried out the approval, so start at `at`) or `cancel` (end it).
    Times are text.
    """

    id: str
    machine_id: str
    event_id: str
    issued_at: datetime
    expires_at: datetime | None = None
    via: str = ""
    # One signature by each key that is in use.
    signatures: list[Signature] = field(default_factory=list)
    drill: dict[str, Any] | None = None
    # Ids by which the decision can be found in all logs. They are not signed, and only logged.
    request_id: str = ""
    trace_id: str = ""


def order_text(order: Order) -> bytes:
    """Return the text of an order that is signed: id, machine, event, times in microseconds since 1970, and the drill
    if there is one.
    """
    began = datetime(1970, 1, 1, tzinfo=timezone.utc)
    times = [at and (at - began) // timedelta(microseconds=1) for at in (order.issued_at, order.expires_at)]
    # The whole drill is signed, so that an attacker cannot turn a drill into an order or an order into a drill.
    drill = [] if order.drill is None else [order.drill]
    fields = ["drydock order 1", order.id, order.machine_id, order.event_id, *times, *drill]
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":"), sort_keys=True).encode()


def key_text(notice: KeyNotice) -> bytes:
    """Return the text of a key notice that is signed."""
    fields = ["drydock key 1", notice.id, notice.public_key, notice.retired, notice.by]
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode()


@dataclass(slots=True, kw_only=True)
class Refusal:
    """A report that the backend will never accept. The agent moves it to the quarantine and continues."""

    seq: int
    reason: str


@dataclass(slots=True, kw_only=True)
class ReportsAnswer:
    """Response to a batch. The backend has stored or refused all reports up to `acknowledged`; the agent may delete
    them. `acknowledged_before` is the number up to which the backend had reports before this call (null from 0.1.0). If
    it is lower than the agent received earlier, the backend's database was restored to an older state, and the agent
    sends its whole current state again. `wanted` are hashes of documents that reminders of this batch name but no agent
    has sent. An agent whose newest document is among them sends it. Agents of 0.1.0 support neither and receive
    `RENUMBER_SPOOL`.
    """

    acknowledged: int
    server_time: datetime
    refused: list[Refusal] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    # Notices of signing keys that this agent lacks or should no longer have, in the order in which to read them.
    key_words: list[KeyNotice] = field(default_factory=list)
    acknowledged_before: int | None = None
    wanted: list[str] = field(default_factory=list)
    protocol: int = PROTOCOL
    # A key, or a newer key, is available for this machine. It must enrol again with its present one.
    renew: bool = False


@dataclass(slots=True, kw_only=True)
class OrdersAnswer:
    """Response to a long poll. `orders` is empty if the wait ended without an order. The call contains the agent's
    `spool`, the number `acknowledged`, the hash of the newest `document`, the ids of the trusted signing `keys` (none
    if signatures are not checked), and `metadata` (see `metadata_text`). `last_poll_at` and `document` are omitted
    while reports wait in the spool. A backend that `takes_polls` needs no other heartbeat; 0.1.0 does, and ignores
    unknown fields. `report`: the agent must send a report, even an empty one, because the backend's record of the spool
    or keys differs. `remind`: the agent must send a reminder, because the backend has another newest document. The
    agent makes the next call after `renew_in` seconds, usually 0; more when all agents would otherwise call at once.
    `prepare` are ids of events for which this machine plans to prepare later: their start is decided, so it must
    prepare now. If it is missing (0.1.0), the agent plans nothing and prepares at once.
    """

    server_time: datetime
    orders: list[Order] = field(default_factory=list)
    protocol: int = PROTOCOL
    takes_polls: bool = False
    report: bool = False
    remind: bool = False
    renew_in: float = 0.0
    prepare: list[str] = field(default_factory=list)
