"""The control: plain Celery at the same places. Without rows and a sweep, the same kills lose orders."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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
from tests.faults.rounds import PROMISED_SECONDS
from tests.faults.scene import Server, frozen_process
from tests.faults.schedule import ROUNDS, SEED, WEST
from tests.processes import PYTHON, Process, start, wait_for
from tests.ring.ring import fleet_file

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
@pytest.mark.long
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
