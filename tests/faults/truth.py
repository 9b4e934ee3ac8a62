"""What has to be true of an event and its approval afterwards, by Postgres and by Azure's own log."""

from __future__ import annotations

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


def approvals(scene: Scene, event_id: str) -> list[tuple[int, str]]:
    """(id, state) of each approval of this event."""
    return [(int(pk), str(state)) for pk, state in scene.rows(APPROVALS, event_id)]


def lies(scene: Scene, grant: Grant, *, over: bool) -> list[str]:
    """Everything that is wrong with this event, as sentences. `over`: it has ended, so nothing may be pending."""
    event = scene.ring.simulator.events.get(grant.event_id)
    asked = bool(event["approvals"])
    wrong: list[str] = []
    found = approvals(scene, grant.event_id)
    if len(found) > 1:
        wrong.append(f"there are {len(found)} approvals of one event: {found}")
    if grant.seen_granted and grant.approval_id not in [pk for pk, _ in found]:
        wrong.append(f"approval {grant.approval_id} was answered with 201 and is lost")
    if asked and not found:
        wrong.append("Azure was asked for an event that nobody approved")
    entries = {str(kind): int(count) for kind, count in scene.rows(ENTRIES, grant.event_id)}
    for approval_id, state in found:
        said = f"approval {approval_id} is {state}"
        if asked != (state in ("ACCEPTED", "CONFIRMED")):
            times = ", ".join(f"{each['vm']} at {each['time']}" for each in event["approvals"]) or "never"
            wrong.append(f"{said}, and StartRequests reached Azure: {times} (started by {event['started_by']})")
        if over and state not in CLOSING:
            wrong.append(f"{said} though its event is over")
        wrong += _entries_of(scene, approval_id, state, entries)
    if entries.get("event_seen") != 1:
        wrong.append(f"the event was seen {entries.get('event_seen', 0)} times on the timeline")
    wrong += [f"approval {pk} has two open orders" for (pk,) in scene.rows(TWO_OPEN)]
    return wrong


def _entries_of(scene: Scene, approval_id: int, state: str, entries: dict[str, int]) -> list[str]:
    orders = [str(order) for (order,) in scene.rows(ORDERS, approval_id)]
    expected = {"approval_granted": 1, "order_offered": len(orders)}
    expected |= {kind: int(closed == state) for closed, kind in CLOSING.items()}
    wrong = [
        f"the timeline has {entries.get(kind, 0)} of {kind} instead of {count}"
        for kind, count in expected.items()
        if entries.get(kind, 0) != count
    ]
    if entries.get("approval_accepted", 0) > 1:
        wrong.append("the timeline says twice that the approval was accepted")
    if state in CLOSING and any(order in OPEN_ORDERS for order in orders):
        wrong.append(f"approval {approval_id} is {state} and has an open order")
    return wrong
