"""Decisions, and what becomes of them, as lines in the log: each found by the id of the request that decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog

from fleet.domain.actor import Actor, ActorKind
from fleet.domain.trace import Trace
from fleet.models import Entry

# Whose acts are decisions; what others do about one is a step of it.
DECIDES = (ActorKind.PERSON, ActorKind.SERVICE, ActorKind.RULE, ActorKind.COMMAND)

log = structlog.get_logger(__name__)


def line_of(row: Entry, actor: Actor, trace: Trace | None) -> dict[str, Any] | None:
    """What the log says of an entry, without what people wrote; None where it says nothing. `trace` is that of the
    decision that it is about.
    """
    decides = actor.kind in DECIDES
    if trace is None and not decides:
        return None
    words: dict[str, Any] = dict(trace.words) if trace else {}
    if row.request_id and trace and trace.request_id != row.request_id:
        # Another request about the same decision, such as the second person's: it is found by either id.
        words = {"decision_id": trace.request_id}
    if row.request_id:
        words["request_id"] = row.request_id
    who = {"by": row.actor, "via": row.via, "token": row.token_name or None}
    about = {"approval": row.approval_id, "order": row.data.get("order"), "machine": row.data.get("machine")}
    said = {name: value for name, value in (who | about).items() if value is not None}
    return {"event": "decision" if decides else "step", "kind": row.kind, **said, **words}


def log_lines(rows: Sequence[Entry]) -> None:
    """Say those of these entries that have something to say, once they are committed."""
    for row in rows:
        if row.line is not None:
            log.info(entry=row.pk, **row.line)
