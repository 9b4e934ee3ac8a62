"""Declarations of the Prometheus metrics: names, labels and help texts.

`fleet.projections.desk.gauges` computes the values; `fleet.relay.counts` counts Celery's tasks.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gauge:
    """Declaration of one Prometheus metric.

    `labels` are the label names, `help` is one sentence. The name of a `counter` ends with `_total`.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    counter: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of one Prometheus metric, by the values of the labels. `values` is empty if the metric has no
    value now.
    """

    gauge: Gauge
    values: Mapping[tuple[str, ...], float]


UP = Gauge("drydock_up", "1 if the database answered this scrape; with 0 the fleet metrics are absent.")
EVENTS = Gauge("drydock_events", "Open events by status, excluding drills.", ("status",))
WAITING = Gauge("drydock_events_waiting", "Events that need a decision: scheduled, not decided, before NotBefore.")
NEXT_NOT_BEFORE = Gauge(
    "drydock_next_not_before_seconds",
    "Seconds until the next NotBefore of an undecided event; absent if there is none.",
)
APPROVALS = Gauge("drydock_approvals", "Open approvals by state.", ("state",))
OVERDUE = Gauge("drydock_approvals_overdue", "Approvals with an overdue step.")
OVERDUE_STEPS = Gauge("drydock_steps_overdue", "Overdue approvals by step: `sent` or `answered`.", ("step",))
MACHINES = Gauge("drydock_machines", "Machines by presence.", ("presence",))
WITHOUT_AGENT = Gauge(
    "drydock_machines_without_agent", "Machines of an imported inventory that have no agent, or a revoked one."
)
# Machines that are not revoked, by a value that they report (`fleet.projections.counts.VALUES`). Counted at most once a
# minute. Machines report any text, so the number and the length of the label values are limited.
VALUE_GAUGES: Mapping[str, Gauge] = {
    name: Gauge(f"drydock_machines_by_{suffix}", f"Machines by {text}.", (label,))
    for name, suffix, text, label in (
        ("size", "size", "VM size", "size"),
        ("region", "region", "region", "region"),
        ("zone", "zone", "availability zone", "zone"),
        ("agent_version", "agent_version", "version of their agent", "version"),
        ("events_version", "events_api_version", "api-version for scheduled events", "api_version"),
        ("instance_version", "instance_api_version", "api-version for instance metadata", "api_version"),
    )
}
QUANTILE = "quantile"
CLOCK_OFFSET = Gauge(
    "drydock_clock_offset_seconds",
    "Absolute clock offset of recently active machines by quantile; 1 is the maximum.",
    (QUANTILE,),
)
CLOCKS_OFF = Gauge(
    "drydock_machine_clocks_off", "Recently active machines whose clock offset exceeds `CLOCK_TOLERANCE_SECONDS`."
)
SETS = Gauge(
    "drydock_sets",
    "Sets by coverage: `full` if every machine is live, `partial`, `none` if no machine is live.",
    ("coverage",),
)
CACHES = Gauge(
    "drydock_caches",
    "Caches by coverage: `covered` by a live listener, `uncovered`, or `unsupported`.",
    ("coverage",),
)
OPEN_ORDERS = Gauge("drydock_open_orders", "Orders waiting for a machine's answer.")
OLDEST_ORDER = Gauge("drydock_oldest_open_order_seconds", "Age of the oldest open order; 0 if there is none.")
RECONCILE_AGE = Gauge(
    "drydock_sweep_age_seconds", "Seconds since due work was last reconciled, by Celery beat or by a gateway."
)
QUARANTINED = Gauge(
    "drydock_quarantined_rows",
    "Rows in quarantine that are retried, by kind; absent if there are none.",
    ("kind",),
)
SKEW = Gauge(
    "drydock_process_clock_skew_seconds",
    "Largest clock offset from the database per kind of process if it exceeds 1 s, else 0. Such a process neither"
    " decides nor sends.",
    ("process",),
)
UNSEALED = Gauge("drydock_unsealed_seconds", "Age of the oldest unsealed timeline entry; 0 if there is none.")
PARTITION_ROOM = Gauge(
    "drydock_partition_free_rows",
    "Rows that fit into a large table before its next partition is needed; negative if that partition is missing.",
    ("table",),
)
ARCHIVE_FAILS = Gauge("drydock_archive_failing_seconds", "Seconds since archiving began to fail; 0 if it works.")
WAVES = Gauge("drydock_waves_running", "Running waves.")
WAVES_STOPPED = Gauge("drydock_waves_stopped", "Waves that stopped within the last hour.")
MESSAGES_WAITING = Gauge(
    "drydock_notifications_waiting",
    "Due notifications that are not yet sent, by kind of channel.",
    ("kind",),
)
OLDEST_MESSAGE = Gauge(
    "drydock_oldest_waiting_notification_seconds", "Waiting time of the oldest due notification; 0 if there is none."
)
DELIVERIES = Gauge(
    "drydock_deliveries", "Deliveries of the last hour, by kind of channel and state.", ("kind", "state")
)
ATTEMPTS_FAILED = Gauge(
    "drydock_delivery_attempts_failed", "Failed delivery attempts of the last hour, by kind of channel.", ("kind",)
)
ROUTER_AGE = Gauge(
    "drydock_router_age_seconds",
    "Seconds since notifications were last routed, by Celery or a gateway; absent before the first run.",
)
ROUTER_LAG = Gauge("drydock_router_lag_seconds", "Age of the oldest unrouted timeline entry; 0 if there is none.")
CHANNELS = Gauge("drydock_channels", "Channels by state.", ("state",))
UNROUTED = Gauge("drydock_events_unrouted", "Open events that match no notification route.")
REDIS_UP = Gauge(
    "drydock_redis_up",
    "1 if Redis answered this scrape and accepts writes; with 0 the Celery metrics are outdated or absent.",
)
TASKS = Gauge(
    "drydock_celery_tasks_total",
    "Tasks that Celery workers finished, by outcome: `succeeded`, `failed`, `retried`, `dropped` (expired or unknown).",
    ("task", "outcome"),
    counter=True,
)
TASK_SECONDS = Gauge(
    "drydock_celery_task_seconds_total", "Run time of finished Celery tasks in seconds.", ("task",), counter=True
)
QUEUE = Gauge("drydock_celery_queue_length", "Tasks in the Celery queue.")
BEAT_AGE = Gauge(
    "drydock_celery_beat_age_seconds", "Seconds since Celery beat last sent a task; absent before the first."
)

# Label values for machines that report no value, and for the machines whose value is none of the most frequent ones.
NOT_STATED, OTHER = "unknown", "other"
MAX_LABEL_LENGTH = 64


def label_value(text: str | None) -> str:
    """Return a reported text as a label value: one short line of printable characters. None stands for all rarer
    values.
    """
    if text is None:
        return OTHER
    printable = "".join(character for character in text if character.isprintable())
    return printable.strip()[:MAX_LABEL_LENGTH] or NOT_STATED


# All metrics above, in their order.
GAUGES = tuple(
    metric
    for found in tuple(globals().values())
    for metric in (found.values() if found is VALUE_GAUGES else (found,))
    if isinstance(metric, Gauge)
)

# Where Celery's processes store their counts: a hash in Redis, since they have no port to be scraped at. It expires
# when no process has counted for a day; Prometheus treats that as a counter reset.
CELERY_HASH = "drydock:celery"
CELERY_HASH_SECONDS = 86_400
# Its fields: `count <outcome> <task>`, `seconds <task>`, and when beat last sent a task, in seconds since 1970.
COUNT, SECONDS, BEAT = "count", "seconds", "beat"
OUTCOMES = ("succeeded", "failed", "retried", "dropped")
