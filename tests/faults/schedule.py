"""What each round does. A round's number is its seed: the same number is the same round, alone or among a thousand."""

import os
from dataclasses import dataclass
from enum import StrEnum
from random import Random

# `make faults` sets them.
ROUNDS = int(os.environ.get("ROUNDS") or 20)
SEED = int(os.environ.get("SEED") or 1)


class Victim(StrEnum):
    GATEWAY = "gateway"
    WORKER = "worker"
    BEAT = "beat"
    REDIS = "redis"
    POSTGRES = "postgres"
    AGENT = "the asked agent"


class Moment(StrEnum):
    """In the order in which an approval passes them."""

    IN_THE_GRANT = "in the grant's transaction"
    AT_THE_COMMIT = "at the grant's commit"
    AFTER_THE_COMMIT = "after the commit, before the answer and the task"
    TASK_POPPED = "the task is popped and no worker has it"
    TASK_RUNNING = "in the task's transaction"
    ORDER_HANDED = "the order is handed to the agent, which has not read it"
    AZURE_ACTED = "Azure has acted and not answered yet"
    BEFORE_THE_RECEIPT = "Azure has answered, the receipt is not committed"


# Who is at work at which moment: any twenty rounds in a row hold each of these.
AT_WORK = {
    Victim.GATEWAY: (Moment.IN_THE_GRANT, Moment.AT_THE_COMMIT, Moment.AFTER_THE_COMMIT, Moment.BEFORE_THE_RECEIPT),
    Victim.WORKER: (Moment.TASK_POPPED, Moment.TASK_RUNNING),
    Victim.BEAT: (Moment.AFTER_THE_COMMIT,),
    Victim.REDIS: (Moment.AFTER_THE_COMMIT, Moment.TASK_POPPED),
    Victim.POSTGRES: (Moment.IN_THE_GRANT, Moment.AT_THE_COMMIT, Moment.TASK_RUNNING, Moment.BEFORE_THE_RECEIPT),
    Victim.AGENT: (Moment.ORDER_HANDED, Moment.AZURE_ACTED, Moment.BEFORE_THE_RECEIPT),
}
TELLING = tuple((victim, moment) for victim, moments in AT_WORK.items() for moment in moments)
BLOCK = 20

WEST = ("WestNO_0", "WestNO_1", "WestNO_2")
EAST = ("EastNO_0", "EastNO_1")

LONG_NOTICE = 300.0
# NotBefore passes while the victim is stopped.
SHORT_NOTICE = 4.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One round. `returns` False: the asked agent stays away until the round is over, so another has to be asked."""

    number: int
    victim: Victim
    moment: Moment
    # Between the moment and the kill, and between the kill and the restart.
    delay_seconds: float
    outage_seconds: float
    returns: bool
    notice_seconds: float
    # Set and resources of each event; the first is the one that the moment is about.
    events: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def short(self) -> bool:
        return self.notice_seconds == SHORT_NOTICE

    def __str__(self) -> str:
        more = [f"down for {self.outage_seconds:.1f} s"]
        more += ["a second event"] if len(self.events) > 1 else []
        more += ["NotBefore passes"] if self.short else []
        more += [] if self.returns else ["it does not come back"]
        return f"round {self.number}: {self.victim}, {self.moment} ({', '.join(more)})"


def plan(number: int) -> Plan:
    """The round of this number."""
    random = Random(number)
    place = number % BLOCK
    if place < len(TELLING):
        victim, moment = TELLING[place]
    else:
        victim, moment = random.choice(tuple(Victim)), random.choice(tuple(Moment))
    hit = list(WEST)
    random.shuffle(hit)
    events = [("west", tuple(hit[: random.choice((1, 1, 2))]))]
    if random.random() < 0.25:
        events.append(("east", (random.choice(EAST),)))
    return Plan(
        number=number,
        victim=victim,
        moment=moment,
        delay_seconds=random.uniform(0.0, 0.05),
        # Mostly as long as a supervisor takes; now and then long enough that everybody has grown patient.
        outage_seconds=random.uniform(0.0, 1.0) if random.random() < 0.95 else random.uniform(5.0, 15.0),
        returns=victim is not Victim.AGENT or random.random() < 0.5,
        notice_seconds=SHORT_NOTICE if random.random() < 0.15 else LONG_NOTICE,
        events=tuple(events),
    )
