"""One round: announce, approve, reach the moment, kill, start again, and look whether everything is true."""

import email.utils
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.faults import moments, truth
from tests.faults.scene import Grant, Scene, passed
from tests.faults.schedule import EAST, WEST, Plan
from tests.processes import wait_for

# Drydock promises ten seconds; with other tests on the same cores, a round fails only after the longer time.
PROMISED_SECONDS = 10.0
PATIENCE_SECONDS = 40.0
MACHINES = {"west": WEST, "east": EAST}

SIGHTINGS = """SELECT m.resource_name FROM fleet_sighting s JOIN fleet_machine m ON m.id = s.machine_id
               JOIN fleet_scheduledevent e ON e.id = s.event_id WHERE e.event_id = %s"""
# Granted; cut; told to call again; too late.
FIRST_ANSWERS = (201, 0, 503, 409)
STATUS = "SELECT status FROM fleet_scheduledevent WHERE event_id = %s"


@dataclass(slots=True)
class Outcome:
    """What became of a round. `seconds`: from the recovery to a true state, of each approval."""

    plan: Plan
    seconds: list[float] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    # What the first call got: a status, or 0 where it was cut.
    statuses: list[int] = field(default_factory=list)
    # Approvals that were answered with 201 and do not exist, and approvals of one event beyond the first.
    lost: int = 0
    doubled: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        times = ", ".join(f"{seconds:.1f} s" for seconds in self.seconds) or "nothing granted"
        said = f"{self.plan}: call {self.statuses}, {', '.join(self.states) or 'none'} after {times}"
        return said + "".join(f"\n    WRONG: {each}" for each in self.wrong)


def play(scene: Scene, plan: Plan) -> Outcome:
    """Play a round. The outcome lists what is wrong."""
    outcome = Outcome(plan)
    scene.heal()
    try:
        _play(scene, plan, outcome)
    except AssertionError as error:
        # Not even its stage could be set, or taken down.
        outcome.wrong.append(f"the round could not be played: {str(error).splitlines()[0]}")
    return outcome


def _play(scene: Scene, plan: Plan, outcome: Outcome) -> None:
    events = [_announce(scene, plan, name, resources) for name, resources in plan.events]
    wait_for(
        lambda: all(_seen(scene, event_id, name) for event_id, (name, _) in zip(events, plan.events, strict=True)),
        seconds=PATIENCE_SECONDS,
        what="every machine of the set has seen the event",
    )
    with ExitStack() as undo:
        grants = [moments.reach(scene, plan.moment, lambda: scene.ask(events[0]), events[0], undo)]
        grants += [scene.ask(event_id) for event_id in events[1:]]
        name = scene.name_of(plan.victim, events[0])
        time.sleep(plan.delay_seconds)
        scene.kill(plan.victim, name)
        away = time.monotonic()
    time.sleep(plan.outage_seconds)
    if plan.short:
        passed(max(_not_before(scene, event_id) for event_id in events) + plan.outage_seconds)
    if plan.returns:
        scene.start(plan.victim, name)
    recovered = time.monotonic() if plan.returns else away
    for grant in grants:
        _settle(scene, grant, recovered, outcome)
    if not plan.returns:
        scene.start(plan.victim, name)
    _end(scene, grants, outcome)


def _announce(scene: Scene, plan: Plan, in_set: str, resources: tuple[str, ...]) -> str:
    return scene.ring.simulator.events.create(
        set=in_set,
        type="Freeze",
        resources=list(resources),
        notice_seconds=plan.notice_seconds,
        duration_seconds=5,
        started_seconds=1.5,
    )


def _seen(scene: Scene, event_id: str, in_set: str) -> bool:
    return {str(name) for (name,) in scene.rows(SIGHTINGS, event_id)} >= set(MACHINES[in_set])


def _not_before(scene: Scene, event_id: str) -> float:
    said = scene.ring.simulator.events.get(event_id)["not_before"]
    return email.utils.parsedate_to_datetime(said).timestamp()


def _settle(scene: Scene, grant: Grant, recovered: float, outcome: Outcome) -> None:
    since = recovered if truth.approvals(scene, grant.event_id) else None
    if grant.thread is not None:
        grant.thread.join(PATIENCE_SECONDS)
    outcome.statuses.append(-1 if grant.status is None else grant.status)
    if outcome.statuses[-1] not in FIRST_ANSWERS:
        outcome.wrong.append(f"the first call got {grant.status}")
    try:
        status, approval_id = scene.insist(grant, seconds=PATIENCE_SECONDS)
    except AssertionError as error:
        outcome.wrong.append(str(error))
        return
    if grant.seen_granted and (status, approval_id) != (201, grant.approval_id):
        outcome.wrong.append(
            f"the repeated call got {status} and approval {approval_id}, the first 201 and {grant.approval_id}"
        )
    found = truth.approvals(scene, grant.event_id)
    if status != 201:
        # Not granted, as the answer states.
        if found:
            outcome.wrong.append(f"the repeated call got {status}, and there is approval {found}")
        return
    since = time.monotonic() if since is None else since
    try:
        wait_for(
            lambda: all(state in truth.SETTLED for _, state in truth.approvals(scene, grant.event_id)),
            seconds=PATIENCE_SECONDS,
            what=f"the approval of {grant.event_id} is in a true state",
        )
    except AssertionError as error:
        outcome.wrong.append(f"{error}: {truth.approvals(scene, grant.event_id)}")
    outcome.seconds.append(time.monotonic() - since)
    outcome.wrong += truth.lies(scene, grant, over=False)


def _end(scene: Scene, grants: list[Grant], outcome: Outcome) -> None:
    """The events end, and what is true of them then."""
    for grant in grants:
        event = scene.ring.simulator.events.get(grant.event_id)
        if event["status"] == "Scheduled":
            scene.ring.simulator.events.cancel(grant.event_id)
    for grant in grants:

        def over(event_id: str = grant.event_id) -> bool:
            ended = scene.rows(STATUS, event_id) == [("ENDED",)]
            return ended and all(state in truth.CLOSING for _, state in truth.approvals(scene, event_id))

        try:
            wait_for(over, seconds=2 * PATIENCE_SECONDS, what=f"event {grant.event_id} and its approval are over")
        except AssertionError as error:
            outcome.wrong.append(str(error))
        found = truth.approvals(scene, grant.event_id)
        outcome.states += [state for _, state in found]
        outcome.lost += grant.seen_granted and grant.approval_id not in [pk for pk, _ in found]
        outcome.doubled += max(len(found) - 1, 0)
        outcome.wrong += [each for each in truth.lies(scene, grant, over=True) if each not in outcome.wrong]
