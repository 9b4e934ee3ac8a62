"""What has to be true of an event and its approval afterwards, by Postgres and by Azure's own log."""

from collections.abc import Callable
from typing import Any

from tests.faults.scene import Grant, Scene

CLOSING = {
    "CONFIRMED": "approval_confirmed",
    "REFUSED": "approval_refused",
    "LAPSED": "approval_lapsed",
    "VOID": "approval_void",
    "WITHDRAWN": "approval_withdrawn",
}
SETTLED = {"ACCEPTED", *CLOSING}
OPEN_ORDERS = ("OFFERED", "DELIVERED")

APPROVALS = """SELECT a.id, a.state FROM fleet_approval a JOIN fleet_scheduledevent e ON e.id = a.event_id
               WHERE e.event_id = %s ORDER BY a.id"""
ENTRIES = """SELECT n.kind, count(*) FROM fleet_entry n JOIN fleet_scheduledevent e ON e.id = n.event_id
             WHERE e.event_id = %s GROUP BY n.kind"""
ORDERS = "SELECT state FROM fleet_order WHERE approval_id = %s"
TWO_OPEN = f"""SELECT approval_id FROM fleet_order WHERE state IN {OPEN_ORDERS} GROUP BY approval_id
               HAVING count(*) > 1"""


Rows = Callable[..., list[tuple[Any, ...]]]


def approvals(scene: Scene, event_id: str) -> list[tuple[int, str]]:
    """(id, state) of each approval of this event."""
    return _approvals(scene.rows, event_id)


def _approvals(rows: Rows, event_id: str) -> list[tuple[int, str]]:
    return [(int(pk), str(state)) for pk, state in rows(APPROVALS, event_id)]


def lies(scene: Scene, grant: Grant, *, over: bool) -> list[str]:
    """Everything that is wrong with this event, as sentences. `over`: it has ended, so nothing may be pending."""
    with scene.at_once() as rows:
        found = _approvals(rows, grant.event_id)
        wrong = _of_the_rows(rows, grant, found, over=over)
    # Read last: what Azure has heard by now can only be more.
    event = scene.ring.simulator.events.get(grant.event_id)
    times = ", ".join(f"{each['vm']} at {each['time']}" for each in event["approvals"])
    if times and not found:
        wrong.append(f"Azure was asked ({times}) for an event without an approval")
    for approval_id, state in found:
        if bool(times) != (state in ("ACCEPTED", "CONFIRMED")):
            wrong.append(
                f"approval {approval_id} is {state}, and StartRequests reached Azure: {times or 'never'}"
                f" (started by {event['started_by'] or 'nobody'})"
            )
    return wrong


def _of_the_rows(rows: Rows, grant: Grant, found: list[tuple[int, str]], *, over: bool) -> list[str]:
    wrong: list[str] = []
    if len(found) > 1:
        wrong.append(f"there are {len(found)} approvals of one event: {found}")
    if grant.seen_granted and grant.approval_id not in [pk for pk, _ in found]:
        wrong.append(f"approval {grant.approval_id} was answered with 201 and is lost")
    entries = {str(kind): int(count) for kind, count in rows(ENTRIES, grant.event_id)}
    if entries.get("event_seen") != 1:
        wrong.append(f"the event was seen {entries.get('event_seen', 0)} times on the timeline")
    for approval_id, state in found:
        if over and state not in CLOSING:
            wrong.append(f"approval {approval_id} is {state} though its event is over")
        wrong += _of_one(rows, approval_id, state, entries)
    wrong += [f"approval {pk} has two open orders" for (pk,) in rows(TWO_OPEN)]
    return wrong


def _of_one(rows: Rows, approval_id: int, state: str, entries: dict[str, int]) -> list[str]:
    orders = [str(order) for (order,) in rows(ORDERS, approval_id)]
    expected = {"approval_granted": 1, "order_offered": len(orders)}
    expected |= {kind: int(closed == state) for closed, kind in CLOSING.items()}
    wrong = [
        f"the timeline has {entries.get(kind, 0)} of {kind} instead of {count}, and approval {approval_id} is {state}"
        for kind, count in expected.items()
        if entries.get(kind, 0) != count
    ]
    if entries.get("approval_accepted", 0) > 1:
        wrong.append("the timeline says twice that the approval was accepted")
    if state in CLOSING and any(order in OPEN_ORDERS for order in orders):
        wrong.append(f"approval {approval_id} is {state} and has an open order")
    return wrong
