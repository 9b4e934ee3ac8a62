"""Timeline entries, which are written in the transaction of their change; decisions are also logged."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog
from django.contrib.auth.models import User
from django.db import transaction

from fleet.domain.actor import ACTOR_KIND, AZURE, DRYDOCK, Actor, ActorKind, kind_data
from fleet.domain.pseudonyms import may_be_username, pseudonym, rename_in_entry
from fleet.domain.reasons import as_json
from fleet.domain.timeline import EntryKind
from fleet.domain.trace import Trace
from fleet.models import Entry, Machine, ScheduledEvent, driver
from fleet.operations import wake_up

# Whose acts are decisions; what others do about one is a step of it.
DECIDES = (ActorKind.PERSON, ActorKind.SERVICE, ActorKind.RULE, ActorKind.COMMAND)

log = structlog.get_logger(__name__)


def line_of(row: Entry, actor: Actor, trace: Trace | None) -> dict[str, Any] | None:
    """Return the log line of an entry, without texts of users; None if it has none. `trace` is that of the decision."""
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
    """Log the lines of these entries after the commit."""
    for row in rows:
        if row.line is not None:
            log.info(entry=row.pk, **row.line)


# Writing the timeline. Always inside the transaction of the recorded change.


@dataclass(frozen=True, slots=True)
class Asked:
    """The request behind a change: request id, client address and trace id."""

    request_id: str = ""
    address: str = ""
    trace_id: str = ""


# Of annexes: kinds of entries that are routed to people at once.
ROUTED: set[str] = set()
NO_REQUEST = Asked()
_asked: ContextVar[Asked] = ContextVar("asked", default=NO_REQUEST)


@contextmanager
def asked_by(trace: Trace, address: str) -> Iterator[None]:
    """Record this request's id and address in all entries that are written in the `with` block."""
    token = _asked.set(Asked(trace.request_id, address[:200], trace.trace_id))
    try:
        yield
    finally:
        _asked.reset(token)


def trace_behind(actor: Actor) -> Trace:
    """Return the trace of the actor's request, or a new one for a rule, to link all consequences of its decision."""
    asked = _asked.get()
    request_id = actor.request_id or asked.request_id
    if not request_id:
        return Trace.new()
    return Trace(request_id, asked.trace_id if request_id == asked.request_id else "")


def entry(
    kind: EntryKind,
    actor: Actor,
    *,
    at: datetime,
    event_id: int | None = None,
    set_id: int | None = None,
    machine_id: int | None = None,
    approval_id: int | None = None,
    cache_id: int | None = None,
    maintenance_id: int | None = None,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    trace: Trace | None = None,
    **data: Any,
) -> Entry:
    """Return a new timeline entry, not yet written. Ids are row ids; `before` and `after` are the changed values.

    `before`, `after` and `data` contain JSON values, times and reasons. The actor provides name (a pseudonym for a
    person), kind, `via`, token name, reason, request and address. With the `trace` of a decision, the entry is also
    logged.
    """
    asked = Asked(actor.request_id, actor.address) if actor.request_id else _asked.get()
    values = as_json({"before": before, "after": after, "data": data | kind_data(actor)})
    made = Entry(
        kind=kind.value,
        at=at,
        event_id=event_id,
        availability_set_id=set_id,
        machine_id=machine_id,
        approval_id=approval_id,
        cache_id=cache_id,
        maintenance_id=maintenance_id,
        actor=actor.kept_as,
        via=actor.via,
        token_name=actor.token_name,
        why=actor.why,
        before=values["before"],
        after=values["after"],
        request_id=asked.request_id,
        address=asked.address,
        data=values["data"],
    )
    if kind.naming is not None and actor.person is not None:
        _rename(made, {actor.name: actor.kept_as})
    made.line = line_of(made, actor, trace)
    return made


def tell(kind: EntryKind, actor: Actor, *, at: datetime, **rest: Any) -> None:
    """Write one timeline entry. The arguments are those of `entry`."""
    write([entry(kind, actor, at=at, **rest)])


def tell_machine(kind: EntryKind, actor: Actor, machine: Machine, *, now: datetime, **rest: Any) -> None:
    """Write an entry about a machine, with its name, in its set unless `set_id` states another one."""
    about = {"machine_id": machine.pk, "set_id": machine.availability_set_id, "name": machine.resource_name}
    tell(kind, actor, at=now, **(about | rest))


def tell_event(kind: EntryKind, actor: Actor, event: ScheduledEvent, *, at: datetime, **rest: Any) -> None:
    """Write an entry about an event and its set."""
    tell(kind, actor, at=at, event_id=event.pk, set_id=event.availability_set_id, **rest)


def write(entries: Iterable[Entry]) -> None:
    """Write entries, and wake the event streams after the commit.

    Raises RuntimeError outside a transaction, because an entry must be committed together with its change.
    """
    rows = list(entries)
    if not rows:
        return
    connection = transaction.get_connection()
    if not connection.in_atomic_block:
        raise RuntimeError("A timeline entry is written in the transaction of its change.")
    block = _block.get()
    if block is not None and block.depth == len(connection.savepoint_ids):
        block.rows += rows
    else:
        _write(rows)


@dataclass(slots=True)
class _Block:
    """The collected entries of a `gathered` block. `depth` is the number of savepoints around it."""

    depth: int
    rows: list[Entry] = field(default_factory=list)


_block: ContextVar[_Block | None] = ContextVar("block", default=None)


@contextmanager
def gathered(*, savepoint: bool = True) -> Iterator[None]:
    """Open a transaction or savepoint whose entries are collected and written at the end with one statement.

    Inside another `gathered` block, they are written at the end of the outermost one. Without `savepoint` the caller
    has created it. In a savepoint that was opened without `gathered`, entries are written immediately.
    """
    connection = transaction.get_connection()
    outer = _block.get()
    if outer is not None and outer.depth != len(connection.savepoint_ids):
        outer = None
    with transaction.atomic(savepoint=savepoint):
        block = _Block(len(connection.savepoint_ids))
        token = _block.set(block)
        try:
            yield
        finally:
            _block.reset(token)
        # It may be rolled back without an error, where a caller within has caught one.
        kept = not connection.needs_rollback
        if outer is None and kept:
            _write(block.rows)
    if outer is not None and kept:
        outer.rows += block.rows


def _write(rows: list[Entry]) -> None:
    if not rows:
        return
    _let_drydock_answer(rows)
    _replace_names(rows)
    driver.insert(rows)
    _after_commit(wake_up.wake_streams)
    if any(row.line for row in rows):
        transaction.on_commit(lambda: log_lines(rows))
    if any(row.kind in ROUTED for row in rows):
        _after_commit(wake_up.hint_messages)


def _after_commit(call: Callable[[], object]) -> None:
    """Call it once after the commit, even if it is registered several times in the transaction."""
    connection = transaction.get_connection()
    within = set(connection.savepoint_ids)
    if not any(known is call and savepoints <= within for savepoints, known, _ in connection.run_on_commit):
        transaction.on_commit(call)


def _replace_names(rows: list[Entry]) -> None:
    """Replace the names of other people in these entries by pseudonyms, because sealed entries must not contain names.

    Runs no query if the entries name no other person.
    """
    named: set[str] = set()
    naming = [row for row in rows if EntryKind(row.kind).naming is not None]
    for row in naming:
        rename_in_entry(
            row.kind,
            (row.before, row.after, row.data),
            lambda name: named.add(name) or name,  # type: ignore[func-returns-value]
        )
    names = {name for name in named if may_be_username(name)}
    if not names:
        return
    numbers = User.objects.filter(username__in=names).values_list("username", "pk")
    known = {name: pseudonym(number) for name, number in numbers}
    for row in naming:
        _rename(row, known)


def _rename(row: Entry, known: Mapping[str, str]) -> None:
    parts = (row.before, row.after, row.data)
    row.before, row.after, row.data = rename_in_entry(row.kind, parts, lambda name: known.get(name, name))


def _let_drydock_answer(rows: list[Entry]) -> None:
    """Replace Azure by Drydock as the actor of entries about drills, in which Drydock plays Azure's part."""
    azure = [row for row in rows if row.actor == AZURE.name and ACTOR_KIND not in row.data]
    event_pks = {row.event_id for row in azure if row.event_id is not None}
    if not event_pks:
        return
    drills = set(ScheduledEvent.objects.filter(pk__any=event_pks, drill=True).values_list("pk", flat=True))
    for row in azure:
        if row.event_id in drills:
            row.actor = DRYDOCK.name
