"""Kill -9 in the middle: a few rounds here, as many as you like with `make faults ROUNDS=1000`."""

import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import pytest
import redis
from azure_simulator.child_process import RunningSimulator
from celery import Celery

from fleet.embedded import held as held_folder
from fleet.embedded import temporary_folder, valkey_server
from fleet.management import supervisor
from fleet.settings import broker as celerys_spelling
from tests.faults.moments import popped_by_a_frozen_worker
from tests.faults.plain_celery import TASK
from tests.faults.rounds import PROMISED_SECONDS, Outcome, play
from tests.faults.scene import Server, frozen_process, scene
from tests.faults.schedule import BLOCK, ROUNDS, SEED, TELLING, WEST, Moment, Victim, plan
from tests.processes import PYTHON, Process, start, wait_for
from tests.ring.ring import fleet_file

HEAD = f"{'':55} {'survived':14} {'p50':>6} {'p99':>6} {'max':>6} {'>10 s':>5}"


# Outcomes are recorded in a file, so that a long run can be played in parts.


def record(outcome: Outcome, file: Path) -> None:
    """Append the outcome to the file as one line, after what a killed run may have left incomplete."""
    fields = asdict(outcome)
    del fields["plan"]
    told = {"round": outcome.plan.number, "victim": outcome.plan.victim, "moment": outcome.plan.moment, **fields}
    with file.open("a") as lines:
        lines.write(f"\n{json.dumps(told)}")


def recorded(file: Path) -> dict[int, Outcome]:
    """Return the outcomes in the file by round, without an incomplete line."""
    outcomes = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        with suppress(ValueError):
            fields = json.loads(line)
            number = fields.pop("round")
            del fields["victim"], fields["moment"]
            outcomes[number] = Outcome(plan(number), **fields)
    return outcomes


def share(values: Sequence[float], part: float) -> float:
    """The value that this part of all values does not exceed (nearest rank); 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else 0.0


def summary(outcomes: Sequence[Outcome]) -> str:
    """Rounds survived, by victim and moment, and how long a true state took."""
    lost, doubled = sum(each.lost for each in outcomes), sum(each.doubled for each in outcomes)
    lines = [
        f"{sum(not each.wrong for each in outcomes)} of {len(outcomes)} rounds survived;"
        f" approvals lost: {lost}, doubled: {doubled}",
        "",
        HEAD,
    ]
    for name, chosen in (
        *((str(victim), [one for one in outcomes if one.plan.victim is victim]) for victim in Victim),
        *((str(moment), [one for one in outcomes if one.plan.moment is moment]) for moment in Moment),
        ("NotBefore passed", [one for one in outcomes if one.plan.short]),
        ("the agent stayed away", [one for one in outcomes if not one.plan.returns]),
        ("all", list(outcomes)),
    ):
        seconds = [value for one in chosen for value in one.seconds]
        survived = sum(not one.wrong for one in chosen)
        lines.append(
            f"{name:55} {survived:5} of {len(chosen):<5} {share(seconds, 0.5):6.2f} {share(seconds, 0.99):6.2f}"
            f" {max(seconds, default=0.0):6.2f} {sum(value > PROMISED_SECONDS for value in seconds):5}"
        )
    return "\n".join(lines)


def test_twenty_rounds_hold_every_victim_and_every_moment() -> None:
    for seed in (1, 7, 990):
        plans = [plan(number) for number in range(seed, seed + BLOCK)]
        assert {(each.victim, each.moment) for each in plans} >= set(TELLING)
        assert {each.victim for each in plans} == set(Victim)
        assert {each.moment for each in plans} == set(Moment)
    assert plan(17) == plan(17)


def test_recorded_rounds_are_read_back_and_an_incomplete_one_is_played_again(tmp_path: Path) -> None:
    file = tmp_path / "rounds"
    outcomes = [Outcome(plan(17), [0.5], ["CONFIRMED"], [201]), Outcome(plan(3), lost=1, doubled=2, wrong=["why"])]
    for outcome in outcomes:
        record(outcome, file)
    with file.open("a") as lines:
        lines.write('\n{"round": 4, "victim": "gate')
    assert recorded(file) == {17: outcomes[0], 3: outcomes[1]}
    record(Outcome(plan(4)), file)
    assert [*recorded(file)] == [17, 3, 4] and recorded(tmp_path / "none") == {}


@pytest.mark.real_time
@pytest.mark.fault
@pytest.mark.faults
@pytest.mark.parametrize("rounds", [int(os.environ.get("ROUNDS", "4"))])
def test_no_granted_approval_is_lost_whichever_process_is_killed(rounds: int, tmp_path: Path) -> None:
    file = Path(os.environ.get("RESULTS") or tmp_path / "rounds")
    ends = time.monotonic() + 60 * float(os.environ.get("MINUTES") or "inf")
    numbers = range(SEED, SEED + rounds)
    waiting = [number for number in numbers if number not in recorded(file)]
    with scene() if waiting else nullcontext() as it:
        for number in waiting:
            if it is None or time.monotonic() > ends:
                break
            outcome = play(it, plan(number))
            record(outcome, file)
            sys.stdout.write(f"{outcome}\n")
            sys.stdout.flush()
    outcomes = [outcome for number, outcome in sorted(recorded(file).items()) if number in numbers]
    sys.stdout.write(f"\n{summary(outcomes)}\n")
    wrong = [f"{each}\n    again: make faults ROUNDS=1 SEED={each.plan.number}" for each in outcomes if each.wrong]
    assert outcomes and not wrong, "\n".join(wrong)


# The control: plain Celery at the same places. Without rows and a sweep, the same kills lose orders.

POPPED = "the worker, with the task popped"
RUNNING = "the worker, in the task"
QUEUED = "Redis, with the task in the queue"
PLACES = (POPPED, RUNNING, QUEUED)
PROGRAM = "tests.faults.plain_celery"
SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Sent:
    """One order that was given to plain Celery. `place` is empty for an undisturbed one."""

    event_id: str
    place: str = ""
    acks: str = "late"


@dataclass
class Plain:
    """A broker, a plain worker, and the simulated Azure that it asks."""

    folder: Path
    broker: Server
    simulator: RunningSimulator
    worker: Process | None = None

    def play(self, number: int) -> Sent:
        """One order to a worker that is killed, or whose Redis is. Started again is what the next round needs."""
        random = Random(number)
        sent = Sent(self._announce(), PLACES[number % len(PLACES)], ("late", "early")[number % 2])
        with ExitStack() as undo:
            if sent.place == QUEUED:
                self.kill_worker()
                self._send(sent)
                with self._client() as client:
                    wait_for(lambda: client.llen("plain") == 1, seconds=SECONDS, what="the task is in the queue")
            else:
                self.start_worker(sent.acks)
                (self._popped if sent.place == POPPED else self._running)(sent, undo)
            time.sleep(random.uniform(0.0, 0.05))
            if sent.place == QUEUED:
                self.broker.kill()
                self.broker.start()
            else:
                self.kill_worker()
        return sent

    def play_undisturbed(self) -> Sent:
        """Give one order to a worker that is never killed: only if it succeeds do the killed rounds mean anything."""
        self.start_worker("late")
        sent = Sent(self._announce())
        self._send(sent)
        return sent

    def lost(self, orders: Iterable[Sent]) -> list[Sent]:
        """The orders of which Azure has not heard."""
        return [each for each in orders if not self.simulator.events.get(each.event_id)["approvals"]]

    def start_worker(self, acks: str) -> None:
        """Returns once it is ready; one that runs already is killed."""
        self.kill_worker()
        log = self.folder / "plain.log"
        said = log.stat().st_size if log.exists() else 0
        command = [PYTHON, "-m", "celery", "--app", PROGRAM, *supervisor.worker(more=["--loglevel", "INFO"])]
        environment = {"PLAIN_BROKER": celerys_spelling(self.broker.url), "PLAIN_ACKS": acks}
        self.worker = start(command, environment=environment, log=log)
        wait_for(lambda: b"ready." in log.read_bytes()[said:], seconds=60, what="the plain worker is ready")

    def kill_worker(self) -> None:
        if self.worker is not None:
            self.worker.kill()
            self.worker = None

    def _announce(self) -> str:
        return self.simulator.events.create(set="west", type="Freeze", resources=[WEST[0]], notice_seconds=3600)

    def _send(self, sent: Sent) -> None:
        with Celery("sender", broker=celerys_spelling(self.broker.url), set_as_current=False) as sender:
            sender.conf.update(task_default_queue="plain", task_ignore_result=True)
            sender.send_task(TASK, args=[self.simulator.vm_url(WEST[0]), sent.event_id], retry=False)

    def _popped(self, sent: Sent, undo: ExitStack) -> None:
        worker = self.worker
        assert worker is not None
        with self._client() as client:
            popped_by_a_frozen_worker(
                client, lambda: frozen_process(worker), lambda: self._send(sent), task=TASK, undo=undo
            )

    def _running(self, sent: Sent, undo: ExitStack) -> None:
        self.simulator.fault(WEST[0], "hang", method="POST")
        undo.callback(self.simulator.clear_faults)
        asked = len(self.simulator.log(method="POST"))
        self._send(sent)
        wait_for(lambda: len(self.simulator.log(method="POST")) > asked, seconds=SECONDS, what="the task asks Azure")

    def _client(self) -> redis.Redis:
        return redis.Redis.from_url(self.broker.url, socket_timeout=5)


@contextmanager
def plain() -> Iterator[Plain]:
    """The control's processes; everything is gone afterwards."""
    with ExitStack() as stack:
        folder = stack.enter_context(held_folder(stack.enter_context(temporary_folder())))
        broker = Server(lambda: valkey_server(folder), folder / "valkey" / "valkey.pid")
        broker.start()
        stack.callback(broker.stop)
        simulator = stack.enter_context(RunningSimulator(fleet_file(folder, west=WEST)))
        made = Plain(folder, broker, simulator)
        stack.callback(made.kill_worker)
        yield made


@pytest.mark.real_time
@pytest.mark.fault
@pytest.mark.faults
def test_plain_celery_loses_orders_at_the_same_places() -> None:
    # Each costs the start of a worker; a twentieth of the rounds shows it often enough.
    rounds = max(3, ROUNDS // 20)
    with plain() as it:
        undisturbed = it.play_undisturbed()
        wait_for(lambda: not it.lost([undisturbed]), seconds=SECONDS, what="plain Celery asks Azure when left alone")
        sent = [it.play(number) for number in range(SEED, SEED + rounds)]
        it.start_worker("late")
        # A worker runs so long before an order counts as lost.
        time.sleep(PROMISED_SECONDS)
        lost = it.lost(sent)
    gone = Counter((each.place, each.acks) for each in lost)
    sys.stdout.write(f"\nThe control, plain Celery without rows and sweep, lost {len(lost)} of {len(sent)} orders\n")
    for (place, acks), count in sorted(Counter((each.place, each.acks) for each in sent).items()):
        sys.stdout.write(f"{f'{place} (acks {acks})':55} {gone[place, acks]:5} of {count}\n")
    assert lost
