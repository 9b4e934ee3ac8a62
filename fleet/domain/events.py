"""What is known of event types: what they do, how much notice Microsoft documents.

Source: "Scheduled Events for Linux VMs in Azure", Microsoft, dated 01/25/2023.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """`effect` is one sentence for operators; `lost` names what does not come back; `notice_seconds` is the
    documented minimum.
    """

    effect: str
    lost: str
    notice_seconds: int | None


TYPES: dict[str, TypeFacts] = {
    "Freeze": TypeFacts(
        "Pauses for seconds; CPU and network may stand still. Memory and open files stay.", "", 15 * 60
    ),
    "Reboot": TypeFacts("Restarts. Memory is lost; disks stay.", "memory", 15 * 60),
    "Redeploy": TypeFacts("Moves to another host. Memory and ephemeral disks are lost.", "ephemeral disks", 10 * 60),
    "Preempt": TypeFacts("The spot machine is deleted, with its ephemeral disks.", "the machine", 30),
    "Terminate": TypeFacts("The machine is deleted.", "the machine", 5 * 60),
}

UNKNOWN_TYPE = TypeFacts("Azure has not said what this type does. Treat it as impactful.", "", None)


def facts_of(event_type: str) -> TypeFacts:
    """The facts of a type; an unknown one is treated as impactful."""
    return TYPES.get(event_type, UNKNOWN_TYPE)


# Types after which a machine cannot report any more.
DELETING_TYPES = frozenset({"Preempt", "Terminate"})
# Types that lose something for good on an ordinary machine.
LOSING_TYPES = frozenset({"Redeploy", "Preempt", "Terminate"})
