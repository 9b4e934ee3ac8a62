"""The fleet in numbers for Prometheus: which there are, and what each says. `fleet.projections.desk.gauges` counts
them, and `fleet.relay.counts` those of Celery.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gauge:
    """`labels` are the names of its labels, `help` one sentence. A `counter` only grows until it begins anew; its name
    ends with `_total`.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    counter: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """A gauge with its numbers by the values of its labels; none at all where there is nothing to say."""

    gauge: Gauge
    values: Mapping[tuple[str, ...], float]


UP = Gauge(
    "drydock_up", "1 when the database has answered for this scrape; with 0 the gauges of the fleet are missing."
)
EVENTS = Gauge("drydock_events", "Open events by status, without drills.", ("status",))
WAITING = Gauge("drydock_events_waiting", "Events that need a decision: scheduled, not decided, before NotBefore.")
NEXT_NOT_BEFORE = Gauge(
    "drydock_next_not_before_seconds", "Until the next NotBefore that nobody has decided about; missing without one."
)
APPROVALS = Gauge("drydock_approvals", "Approvals that are not over, by state.", ("state",))
OVERDUE = Gauge("drydock_approvals_overdue", "Approvals with a step that takes longer than it should.")
OVERDUE_STEPS = Gauge("drydock_steps_overdue", "The same by step: `sent` or `answered`.", ("step",))
MACHINES = Gauge("drydock_machines", "Machines by presence.", ("presence",))
WITHOUT_AGENT = Gauge(
    "drydock_machines_without_agent", "Machines of an imported inventory that have no agent, or a revoked one."
)
CLOCK_OFFSET = Gauge(
    "drydock_clock_offset_seconds",
    "How far the clocks of machines that were heard lately are off, in either direction, by quantile; 1 is the worst.",
    ("quantile",),
)
CLOCKS_OFF = Gauge("drydock_clocks_off", "Of these machines those off by more than `CLOCK_TOLERANCE_SECONDS`.")
SETS = Gauge(
    "drydock_sets",
    "Sets by how they are watched: `whole` where every machine is live, `partly`, `not` where none is.",
    ("watched",),
)
CACHES = Gauge(
    "drydock_caches",
    "Caches by whether their channel is heard: `listened` by a live machine, `unheard`, `unsupported`.",
    ("channel",),
)
OPEN_ORDERS = Gauge("drydock_open_orders", "Orders that wait for a machine's answer.")
OLDEST_ORDER = Gauge("drydock_oldest_open_order_seconds", "Age of the oldest of these; 0 without one.")
RECONCILE_AGE = Gauge(
    "drydock_sweep_age_seconds", "Since somebody last looked for what is due: Celery's beat, else a gateway."
)
SET_ASIDE = Gauge(
    "drydock_set_aside",
    "What cannot be advanced and is tried again, by what it is; missing while there is none.",
    ("what",),
)
SKEW = Gauge(
    "drydock_process_clock_skew_seconds",
    "How far the clock of a process of Drydock differs from the database's, the worst of each kind where it is more"
    " than 1 s, and 0 else. Such a process neither decides nor sends.",
    ("process",),
)
UNSEALED = Gauge("drydock_unsealed_seconds", "Age of the oldest timeline entry that is not sealed yet; 0 without one.")
PARTITION_ROOM = Gauge(
    "drydock_partition_room_rows",
    "Rows that a large table can take before it wants its next partition; negative where that is missing.",
    ("table",),
)
ARCHIVE_FAILS = Gauge(
    "drydock_archive_failing_seconds", "Since when nothing can leave for the archive; 0 where all is well."
)
WAVES = Gauge("drydock_waves_running", "Waves under way.")
WAVES_STOPPED = Gauge("drydock_waves_stopped", "Waves that stopped within the last hour.")
MESSAGES_WAITING = Gauge(
    "drydock_messages_waiting",
    "Messages whose time has come and that nobody has sent yet, by kind of channel.",
    ("kind",),
)
OLDEST_MESSAGE = Gauge("drydock_oldest_waiting_message_seconds", "How long the oldest of these waits; 0 without one.")
DELIVERIES = Gauge(
    "drydock_deliveries", "Posts made within the last hour, by kind of channel and state.", ("kind", "state")
)
ATTEMPTS_FAILED = Gauge(
    "drydock_attempts_failed", "Attempts to send that failed within the last hour, by kind of channel.", ("kind",)
)
ROUTER_AGE = Gauge(
    "drydock_router_age_seconds",
    "Since somebody last looked whom to tell: Celery, else a gateway; missing before that.",
)
ROUTER_LAG = Gauge(
    "drydock_router_lag_seconds", "Age of the oldest timeline entry that has not been routed; 0 without one."
)
CHANNELS = Gauge("drydock_channels", "Channels by how they do.", ("state",))
UNROUTED = Gauge("drydock_events_unrouted", "Open events of which nobody is told, since no route wants them.")
REDIS_UP = Gauge(
    "drydock_redis_up",
    "1 when Redis has answered for this scrape and takes writes; with 0 Celery's numbers are old or missing.",
)
TASKS = Gauge(
    "drydock_celery_tasks_total",
    "Tasks that Celery's workers ended, by outcome: `succeeded`, `failed`, `retried`, `dropped` (too old, or unknown).",
    ("task", "outcome"),
    counter=True,
)
TASK_SECONDS = Gauge("drydock_celery_task_seconds_total", "Seconds that these took.", ("task",), counter=True)
QUEUE = Gauge("drydock_celery_queue_length", "Tasks that no worker has taken yet.")
BEAT_AGE = Gauge("drydock_celery_beat_age_seconds", "Since Celery's beat last sent a task; missing before the first.")

GAUGES = (
    UP,
    EVENTS,
    WAITING,
    NEXT_NOT_BEFORE,
    APPROVALS,
    OVERDUE,
    OVERDUE_STEPS,
    MACHINES,
    WITHOUT_AGENT,
    CLOCK_OFFSET,
    CLOCKS_OFF,
    SETS,
    CACHES,
    OPEN_ORDERS,
    OLDEST_ORDER,
    RECONCILE_AGE,
    SET_ASIDE,
    SKEW,
    UNSEALED,
    PARTITION_ROOM,
    ARCHIVE_FAILS,
    WAVES,
    WAVES_STOPPED,
    MESSAGES_WAITING,
    OLDEST_MESSAGE,
    DELIVERIES,
    ATTEMPTS_FAILED,
    ROUTER_AGE,
    ROUTER_LAG,
    CHANNELS,
    UNROUTED,
    REDIS_UP,
    TASKS,
    TASK_SECONDS,
    QUEUE,
    BEAT_AGE,
)

# Where Celery's processes leave what they counted: a hash on Redis, since they have no port to be scraped at. It is
# forgotten when nobody has counted for a day; Prometheus takes that for a new beginning.
CELERY_HASH = "drydock:celery"
CELERY_HASH_SECONDS = 86_400
# Its fields: `count <outcome> <task>`, `seconds <task>`, and when beat last sent a task, in seconds since 1970.
COUNT, SECONDS, BEAT = "count", "seconds", "beat"
OUTCOMES = ("succeeded", "failed", "retried", "dropped")
