"""Registry of the event types that Azure documents. Pages, guards and notifications use these declarations.

Source: "Scheduled Events for Linux VMs in Azure", Microsoft, dated 01/25/2023.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Severity of an event or a notification.

    `CRITICAL`: a machine is lost, or fewer live machines remain than the set requires. `WARNING`: a restart, lost
    memory, or a gap in the monitoring. `INFO`: a pause of seconds, or a restart that the customer started.
    """

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class EventType:
    """One type of scheduled event.

    `effect` is a sentence about the effect on a machine. `lost` names what is lost permanently; empty if nothing is.
    `documented_notice_seconds` is the shortest notice that Microsoft documents (None: not documented). `icon` is a
    Lucide icon. `deletes`: Azure deletes the machine. `is_advice`: Azure starts nothing, and an approval has no effect.
    """

    name: str
    effect: str
    lost: str = ""
    documented_notice_seconds: int | None = None
    severity: Severity = Severity.WARNING
    icon: str = "circle-alert"
    deletes: bool = False
    is_advice: bool = False

    @property
    def loses(self) -> bool:
        """Whether an ordinary machine loses more than its memory, permanently."""
        return self.lost not in ("", "memory")

    @property
    def keeps_memory(self) -> bool:
        """Whether machines continue with their memory after the event. False for a type that Azure does not
        document.
        """
        return bool(self.name) and not self.lost


# In the order of their impact.
EVENT_TYPES = (
    EventType(
        "Freeze",
        effect="Pauses the machine for some seconds: CPU and network may stop. Memory and open files are kept.",
        documented_notice_seconds=15 * 60,
        severity=Severity.INFO,
        icon="snowflake",
    ),
    EventType(
        "Reboot",
        effect="Restarts the machine. Memory is lost; disks are kept.",
        lost="memory",
        documented_notice_seconds=15 * 60,
        icon="rotate-cw",
    ),
    EventType(
        "Redeploy",
        effect="Moves the machine to another host. Memory and ephemeral disks are lost.",
        lost="ephemeral disks",
        documented_notice_seconds=10 * 60,
        icon="truck",
    ),
    EventType(
        "Preempt",
        effect="Deletes the spot machine and its ephemeral disks.",
        lost="the machine",
        documented_notice_seconds=30,
        severity=Severity.CRITICAL,
        icon="zap",
        deletes=True,
    ),
    EventType(
        "Terminate",
        effect="Deletes the machine.",
        lost="the machine",
        documented_notice_seconds=5 * 60,
        severity=Severity.CRITICAL,
        icon="trash-2",
        deletes=True,
    ),
    # Preview, since api-version 2024-07-09.
    EventType(
        "SpotRebalanceRecommendation",
        effect="Advice: Azure may evict the spot machine soon. Azure starts nothing now.",
        is_advice=True,
    ),
)
UNKNOWN_TYPE = EventType("", effect="Azure does not document the effect of this type. Treat the event as disruptive.")


def _names(types: Iterable[EventType]) -> tuple[str, ...]:
    return tuple(each.name for each in types)


TYPES = _names(each for each in EVENT_TYPES if not each.is_advice)
ADVICE_TYPES = _names(each for each in EVENT_TYPES if each.is_advice)
DELETING_TYPES = frozenset(_names(each for each in EVENT_TYPES if each.deletes))
LOSING_TYPES = frozenset(_names(each for each in EVENT_TYPES if each.loses))
_BY_NAME = {each.name.casefold(): each for each in EVENT_TYPES}


def event_type_of(name: str) -> EventType:
    """Return the declaration of an event type, in any letter case. An undocumented type returns `UNKNOWN_TYPE`."""
    return _BY_NAME.get(name.strip().casefold(), UNKNOWN_TYPE)


# Agents poll once a second and Azure states whole seconds, so the notice counts as shorter only beyond this difference.
NOTICE_TOLERANCE_SECONDS = 5


def expected_notice(event_type: str, terminate_notice_seconds: int | None) -> int | None:
    """Return the shortest notice to expect, in seconds; None if unknown.

    For a Terminate it is `terminate_notice_seconds`, which the scale set configures; otherwise Microsoft's documented
    notice.
    """
    configured = terminate_notice_seconds if event_type == "Terminate" else None
    return configured or event_type_of(event_type).documented_notice_seconds


def is_notice_short(expected: int | None, notice_seconds: int | None) -> bool:
    """Return whether the notice of an event was shorter than expected. Both in seconds; False if one of them is
    unknown.
    """
    if expected is None or notice_seconds is None:
        return False
    return notice_seconds < expected - NOTICE_TOLERANCE_SECONDS


def canonical_type(name: str) -> str:
    """Return a documented event type in Microsoft's spelling, from any letter case. Return any other name unchanged."""
    known = _BY_NAME.get(name.casefold())
    return known.name if known and not known.is_advice else name


def is_advice(name: str) -> bool:
    """Return whether events of this type, in any letter case, are only advice, so that an approval has no effect."""
    return event_type_of(name).is_advice


def is_unknown(name: str) -> bool:
    """Return whether Microsoft documents no effect of this event type. An empty type is unknown, too."""
    return event_type_of(name) is UNKNOWN_TYPE
