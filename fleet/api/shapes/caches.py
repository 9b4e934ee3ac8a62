"""Caches, their maintenance, and the notifications heard."""

from rest_framework import serializers

from fleet.api.shapes.base import ServerTime
from fleet.api.shapes.derive import shape
from fleet.projections.caches.coverage import ListenerRow
from fleet.projections.caches.maintenances import MaintenanceDetail, MaintenanceRow, NotificationRow
from fleet.projections.caches.overview import CacheRow, NodeRow
from fleet.wording.badges import COVERAGE_LOOKS

NOT_STATED = "Null: not stated."
TIER = "`basic`, `standard`, `premium`, or empty."

NodeShape = shape(
    NodeRow,
    {
        "ssl_port": "With the host it names the node; nodes may share an address.",
        "non_ssl_port": NOT_STATED,
        "ip_address": NOT_STATED,
        "is_replica": "Its role by the newest notification that tells; null when none does any more.",
        "as_of": "When that was heard.",
    },
)
CoverageShape = shape(
    ListenerRow,
    name="Coverage",
    state=serializers.ChoiceField(
        list(COVERAGE_LOOKS), help_text="The agent's word; `silent`: it listened, and the agent itself is not heard."
    ),
)
MaintenanceBriefShape = shape(
    MaintenanceRow,
    {
        "tier": TIER,
        "source": "Whose channel it was heard on.",
        "first_at": "When its first notification was heard.",
        "last_at": "When its last one was.",
        "node_port": "The SSL port of the node that it is about.",
        "partner_port": "The SSL port of the node that was promoted.",
        "expected_at": "The stated start; Starting counts over Scheduled.",
        "earliest_at": "When the node may go: three minutes before an approximate start.",
        "approximate": "Only Scheduled stated the start.",
        "began_at": "When the node went, as far as it is known.",
        "was_replica": "The node's role before.",
        "is_replica": "The node's role after.",
        "swapped": "A primary was hit: its replica is the primary now.",
        "effect": "What it does to the cache, in one sentence.",
    },
    name="MaintenanceBrief",
    properties=("effect",),
    server_time=ServerTime(),
)
NotificationShape = shape(
    NotificationRow,
    {
        "type": "The documented name, else the line's own word.",
        "start_time": NOT_STATED,
        "is_replica": NOT_STATED,
        "ip_address": NOT_STATED,
        "ssl_port": NOT_STATED,
        "non_ssl_port": NOT_STATED,
        "raw": "The line as it was heard.",
        "raw_base64": "Its bytes, where they are no text; else empty.",
        "flags": "What could not be read, in words.",
        "late": "It arrived after the start that it announces.",
        "first_at": "When the first machine heard it.",
        "last_at": "When the last one did.",
        "received_at": "When it was here.",
        "meaning": "What it means for a program that uses the cache.",
    },
    without=("tier",),
    properties=("meaning",),
)
MEMBERS = NotificationShape(many=True, source="members", help_text="Its members, oldest first.")
ONLY_ON_PAGES = ("members", "stretches", "gaps", "begin", "end")
MaintenanceDetailShape = shape(
    MaintenanceDetail,
    {"unheard": "What silence does not prove, where nobody listened; else empty."},
    beside=("maintenance",),
    without=ONLY_ON_PAGES,
    notifications=MEMBERS,
)
# A list says less: who listened at that time is looked up for one maintenance only.
MaintenanceShape = shape(
    MaintenanceDetail,
    name="Maintenance",
    beside=("maintenance",),
    without=(*ONLY_ON_PAGES, "unheard"),
    notifications=MEMBERS,
)
CacheShape = shape(
    CacheRow,
    {
        "tier": TIER,
        "source": "Whose channel it has.",
        "service": "That of all its listeners, where they share one; may be empty.",
        "divisor": "How many ports make a shard.",
        "coverage": "Each agent's state, and since when.",
        "maintenance": "What is announced or under way.",
    },
    server_time=ServerTime(),
)
