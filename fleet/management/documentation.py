"""Generated parts of the documentation, each between two marks in a page.

The parts are generated from the tables that the code uses, so that documentation and code cannot differ.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from django.core.management.base import CommandError
from prometheus_client.metrics import MetricWrapperBase

from fleet import configuration
from fleet.accounts.text import MAY
from fleet.api.documentation import schema
from fleet.api.problems import MORE
from fleet.domain import states
from fleet.domain.approvals.guards import GUARD_TYPES, Need
from fleet.domain.event_types import EVENT_TYPES, Severity
from fleet.domain.gauges import GAUGES
from fleet.domain.machines.enrolment import HOOKS_DROP_IN, UNIT, install_lines
from fleet.domain.orders.next_step import MULTIPLES
from fleet.gateway import metrics as gateway_metrics
from fleet.notifications.notification_types import NotificationType, cache_severity
from fleet.wording.badges import badge_of
from fleet.wording.caches import TIERS
from fleet.wording.orders import TIMEOUTS
from fleet.wording.problems import PROBLEMS

State = TypeVar("State", bound=StrEnum)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def badges(kind: type[StrEnum]) -> str:
    """Return a table of the values of an enum with their labels."""
    return table(("State", "Shown as"), [(f"`{state.value}`", badge_of(state).label) for state in kind])


def state_table(kind: type[State], moves: Mapping[State, tuple[State, ...]], *starts: State) -> str:
    """Return a mermaid diagram of a table of state transitions with its first states, and the labels of the states."""
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {state.value}" for state in starts]
    lines += [f"    {state.value} --> {target.value}" for state, targets in moves.items() for target in targets]
    lines += [f"    {state.value} --> [*]" for state, targets in moves.items() if not targets]
    return "\n".join([*lines, "```", "", badges(kind)])


def event_moves() -> str:
    picture = state_table(
        states.EventStatus, states.EVENT_MOVES, states.EventStatus.SCHEDULED, states.EventStatus.STARTED
    )
    return f"{picture}\n\nHow it ended:\n\n{badges(states.EndedAs)}"


def approval_moves() -> str:
    starts = (states.ApprovalState.PROPOSED, states.ApprovalState.WAITING, states.ApprovalState.GRANTED)
    return state_table(states.ApprovalState, states.APPROVAL_MOVES, *starts)


def guard_table() -> str:
    rows = [
        (f"`{each.code}`", f"{each.needs}, note" if each.note_if else str(each.needs), each.applies)
        for need in reversed(Need)
        for each in GUARD_TYPES
        if each.needs is need
    ]
    return table(("Guard", "Needs", "When it applies"), rows)


def moments() -> str:
    """Return a table of notification types with the timeline entries that cause them. A type without entries is caused
    by time.
    """
    rows = []
    for each in NotificationType:
        entries = ", ".join(f"`{kind.value}`" for kind in each.declared.entries)
        where = " and ".join(f"`{name}` {' or '.join(values)}" for name, values in each.declared.where)
        rows.append((f"`{each.value}`", each.declared.label, f"{entries} with {where}" if where else entries))
    return table(("Notification type", "In words", "Entries"), rows)


def severities() -> str:
    rows = [(f"event: {each.name}", each.severity.value) for each in EVENT_TYPES if not each.is_advice]
    rows.append(("event: unknown type", Severity.WARNING.value))
    rows += [(f"maintenance of a cache: {tier}", cache_severity(tier).value) for tier in (*TIERS, "unknown tier")]
    rows += [(f"`{each.value}`", each.severity.value) for each in NotificationType if each.declared.severity]
    return table(("What", "Severity"), rows)


def problems() -> str:
    more = {name: ", ".join(f"`{field}`" for field in fields) for name, fields in MORE.items()}
    rows = [(f"`{name}`", str(it.status), it.title, it.advice, more.get(name, "")) for name, it in PROBLEMS.items()]
    return table(("Type", "Status", "What it is", "What to do", "More fields"), rows)


def metrics() -> str:
    """Return a table of all metrics of `/metrics` except those of the Python process."""
    rows = [(f"`{one.name}`", ", ".join(f"`{label}`" for label in one.labels), one.help) for one in GAUGES]
    own = [one for one in vars(gateway_metrics).values() if isinstance(one, MetricWrapperBase)]
    for one in own:
        [described] = one.describe()
        suffix = {"counter": "_total", "histogram": "_bucket"}.get(described.type, "")
        labels = ", ".join(f"`{label}`" for label in one._labelnames)
        rows.append((f"`{described.name}{suffix}`", labels, described.documentation))
    return table(("Metric", "Labels", "What it says"), rows)


def install() -> str:
    """Return the install commands for Linux and Windows with a placeholder for the token, and the systemd unit that
    they write.
    """
    address, token = "https://drydock.example.org", "join_TOKEN"
    package = f"drydock-agent[signed] @ {address}/agent/drydock_agent-VERSION-py3-none-any.whl#sha256=HASH"
    current = f"{address}/agent/requirements.txt"
    installer = f"{address}/agent/install.ps1#sha256=HASH"
    lines = install_lines(fleet_url=address, join_token=token, package=package, current=current, installer=installer)
    shown = {line.platform: line.text for line in lines}
    windows = f"On Windows, in PowerShell as administrator ([details](windows.md)):\n\n```\n{shown['windows']}\n```"
    unit = f"This writes the following unit. The agent runs as its own user, without root rights:\n\n```ini\n{UNIT}```"
    return f"On Linux with systemd:\n\n```\n{shown['linux']}\n```\n\n{unit}\n\n{windows}"


def timeouts_table() -> str:
    answer = float(configuration.table["ORDER_ANSWER_SECONDS"].default)
    rows = [(TIMEOUTS[name], str(count), f"{count * answer:g} s") for name, count in MULTIPLES.items()]
    return table(("What happens then", "Times `ORDER_ANSWER_SECONDS`", "By default"), rows)


# By the name in the marks: the page below `docs/`, and what writes the part.
PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "event": ("dev/states.md", event_moves),
    "approval": ("dev/states.md", approval_moves),
    "order": ("dev/states.md", lambda: state_table(states.OrderState, states.ORDER_MOVES, states.OrderState.OFFERED)),
    "presence": ("dev/states.md", lambda: badges(states.Presence)),
    "guards": ("guide/blocked.md", guard_table),
    "moments": ("admin/notifications.md", moments),
    "severities": ("admin/notifications.md", severities),
    "roles": ("admin/people.md", lambda: table(("Role", "What it may"), [(f"`{it}`", MAY[it]) for it in MAY])),
    "problems": ("problems.md", problems),
    "metrics": ("admin/monitoring.md", metrics),
    "settings": ("admin/settings.md", configuration.markdown),
    "timeouts": ("admin/settings.md", timeouts_table),
    "install": ("admin/agent.md", install),
    # The drop-in of the agent's unit for hooks that need more than the unit permits.
    "hooks": ("admin/hooks.md", lambda: f"```ini\n{HOOKS_DROP_IN}```"),
}


def pages(docs: Path) -> dict[Path, str]:
    """Return the current text of every file that is generated or has a generated part. The OpenAPI document has sorted
    keys, so that a diff shows only real changes. Raises CommandError if a page lacks the marks of a part, and OSError
    if there is no such page.
    """
    contract = json.dumps(schema(), indent=1, sort_keys=True, ensure_ascii=False)
    found = {docs / "openapi.json": f"{contract}\n"}
    for name, (page, text) in PARTS.items():
        path = docs / page
        begin, end = f"<!-- begin generated: {name} -->", f"<!-- end generated: {name} -->"
        old = found.get(path) or path.read_text(encoding="utf-8")
        parts = re.split(f"(?s){begin}\n.*?{end}", old)
        if len(parts) != 2:
            raise CommandError(f"docs/{page} has to hold `{begin}` and `{end}`, once and in this order.")
        found[path] = f"{begin}\n{text().strip()}\n{end}".join(parts)
    return found
