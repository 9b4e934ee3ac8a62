"""Caches, their maintenance, and the notifications heard."""

from dataclasses import dataclass
from datetime import datetime

from rest_framework import serializers

from fleet.api.shapes.base import SecondsUntil, ServerTime
from fleet.api.shapes.derive import shape
from fleet.domain.blind_spots.find import ORDER
from fleet.domain.orders.series import SignatureCheck
from fleet.domain.sets import KINDS, SetSource
from fleet.domain.states import EventStatus
from fleet.operations.machines.inventory import Imported
from fleet.projections.blind_spots import BlindSpotRow
from fleet.projections.caches.coverage import ListenerRow
from fleet.projections.caches.maintenances import MaintenanceDetail, MaintenanceRow, NotificationRow
from fleet.projections.caches.overview import CacheRow, NodeRow
from fleet.projections.machines import AdmissionRow, JoinTokenRow, MachineDetail, MachineRow, OpenEventBrief
from fleet.projections.sets import MissingMachine, SetRow
from fleet.wording.badges import COVERAGE_BADGES

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
        list(COVERAGE_BADGES), help_text="The agent's word; `silent`: it listened, and the agent itself is not heard."
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


# Blind spots, and what an import found.

BlindSpotShape = shape(
    BlindSpotRow,
    {
        "certainty": "How sure it is.",
        "reason": "One or two sentences.",
        "advice": "What to do.",
        "set": "Null for caches, and for machines that are in none yet.",
        "machines": "Those concerned that have an agent, as far as `names` holds them.",
        "names": "The machines concerned, at most 500 of `count`; the host of a cache.",
        "count": "How many machines are concerned.",
        "cache": "The cache that it is about.",
        "event_id": "The event that is set aside; else empty.",
    },
    without=("part",),
    code=serializers.ChoiceField(ORDER),
)
ImportedShape = shape(
    Imported,
    {
        "machines": "How many machines the inventory lists.",
        "new": "Those among them that no inventory has listed before.",
        "without_agent": "Those among them that have no agent.",
        "dropped": "Machines that a complete inventory does not list any more.",
        "scale_sets": "Scale sets of which it says whether they announce upgrades.",
        "refused": "What it says in vain: the machine is confined to another set.",
    },
)


# Sets, machines and join tokens.

OpenEventShape = shape(
    OpenEventBrief,
    {"resources": "Names, as Azure states them.", "drill": "A rehearsal."},
    name="OpenEvent",
    seconds_left=SecondsUntil(
        "not_before", states=[EventStatus.SCHEDULED], help_text="Until NotBefore; null once it has started."
    ),
)
MachineShape = shape(
    MachineRow,
    {
        "resource_name": "What Azure puts into `Resources`.",
        "presence": "How present its agent is.",
        "last_heard_at": "When its agent was last heard.",
        "last_poll_at": "When that agent last had a good answer from the metadata service.",
        "clock_offset_seconds": "How far its clock is ahead.",
        "attested_at": "When Azure signed who it is; null where it came in by something else.",
        "warnings": "What is wrong with the machine, in sentences; also when sources disagree about its set.",
    },
    signatures=serializers.ChoiceField(
        [check.value for check in SignatureCheck],
        allow_blank=True,
        help_text="What its agent does about signatures of orders; empty until it said so.",
    ),
    set_source=serializers.ChoiceField(
        [source.value for source in SetSource],
        allow_blank=True,
        help_text="Whose word about its set counts; empty when nobody says anything.",
    ),
)
MachineDetailShape = shape(
    MachineDetail,
    {
        "hit_by": "Open events that name this machine in `Resources`.",
        "other_events": "Open events of its set that do not.",
    },
    beside=("machine",),
)
MissingMachineShape = shape(
    MissingMachine,
    {"vm_id": "Empty when the inventory does not say it.", "imported_at": "When an inventory last listed it."},
)
SetShape = shape(
    SetRow,
    {
        "service": "What belongs together for the people who run it; may be empty.",
        "machines": "By name, the first 500.",
        "left_out": "How many machines are not in `machines`; `GET machines/?set=` has all of them, page by page.",
        "without_agent": "Machines that an imported inventory lists and that have no agent.",
        "presence": "How many machines are how present.",
        "open_events": "By time left.",
        "warnings": "What is wrong with the set, in sentences.",
        "second_person": "Approving in it always takes a second person.",
        "step_up": "Whoever approves in it is asked again who they are.",
        "step_up_spares_services": "Service accounts approve in it although nobody can ask them.",
        "needs_live": "How many live machines it is said to need; null when nobody said.",
        "admits_until": "Until then its machines that come back without their credential are admitted by themselves.",
    },
    without=("grid",),
    kind=serializers.ChoiceField(KINDS),
    server_time=ServerTime(),
)


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A new token for agents; `token` is the secret itself."""

    token: str
    prefix: str
    comment: str
    set: str
    created_at: datetime
    expires_at: datetime


JoinTokenShape = shape(
    JoinToken,
    {
        "token": "Shown this once.",
        "prefix": "The public part of the token.",
        "set": "As `kind:name`: the only one of machines that enrol by it; empty if it names none.",
    },
    seconds_left=SecondsUntil("expires_at", states=(), help_text="Until it admits no agent any more."),
    server_time=ServerTime(),
)
AdmissionShape = shape(
    AdmissionRow,
    {
        "machine": "The row id of the machine that it says it is; null where nobody knows that.",
        "attested": "The subscription that Azure has signed; empty where it brought no attested document.",
        "stated_set": "What it says of itself, as the other fields that begin so.",
        "placed_set": "The set that it will be in and confined to, as `kind:name`; empty for a set of its own.",
        "contradictions": "What speaks against it, in sentences.",
        "bound": "False for an agent of 0.1.0: whoever asks from its address with the same join token is taken for it.",
        "revoked": "The machine is revoked; admitting it lets it back in.",
        "join_token": "The beginning of the join token that it showed.",
    },
    name="Admission",
)
KnownJoinTokenShape = shape(
    JoinTokenRow,
    {
        "prefix": "The public beginning of the token.",
        "set_name": "As `kind:name`; empty if it names none.",
        "confines": "Machines that enrol by it are in its set and in no other; else it counts while they name none.",
        "max_uses": "How many machines it admits; null without a limit.",
        "valid": "It admits machines now.",
        "enrolled": "Names of the machines that enrolled by it last, at most 100.",
    },
    name="KnownJoinToken",
)
