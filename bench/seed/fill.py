"""Filling of an empty database: sets and machines, a year of history, and open events. It is sealed meanwhile."""

from __future__ import annotations

import hashlib
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from multiprocessing import get_context
from typing import Any
from uuid import UUID

import django
from django.contrib.auth.models import Group, User
from django.db import connection, models, transaction

from bench.seed import stories
from bench.seed.pattern import Copy, Pattern, Table, largest_ids
from fleet.audit.seals import seal
from fleet.embedded.parent_death import end_with_parent
from fleet.models import AvailabilitySet, Cache, DocumentBody, Entry, Machine, Spool
from fleet.operations import clock

# So many lines go into one transaction: a few seconds.
PORTION = 60_000
PAST = timedelta(days=365)
# One in so many entries belongs to an event of the past; most others to connections to caches that came and went.
ENTRIES_AN_EVENT = 100
WATCHERS = 3
MACHINES_A_CACHE = 250
SETS_A_SERVICE, SETS_A_GROUP, SUBSCRIPTIONS = 10, 50, 4
ROLES = ("web", "api", "worker", "db", "queue", "search")
PERSON = "seed"


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the fleet: `set_size` machines a set, at most one open event a set, and in addition `flood` open
    events that one machine of the last set listed.
    """

    machines: int
    set_size: int
    entries: int
    open_events: int
    flood: int = 0

    @property
    def sets(self) -> int:
        return -(-self.machines // self.set_size)

    def count(self, number: int) -> int:
        """Return how many machines the set of this number has."""
        return min(self.set_size, self.machines - number * self.set_size)


@dataclass(slots=True)
class Place:
    """One set and its machines, whose row ids follow one another from `first` on."""

    id: int
    first: int
    count: int
    names: dict[str, str]

    def refs(self, numbers: list[int]) -> dict[str, int]:
        """Row ids for a story of these machines of the set."""
        return {"set": self.id, **{f"machine {at}": self.first + number for at, number in enumerate(numbers)}}

    def named(self, numbers: list[int], **more: str) -> dict[str, str]:
        """Names for a story of these machines of the set."""
        machines = {f"machine {at}": self.machine(number) for at, number in enumerate(numbers)}
        return {**self.names, **machines, **more}

    def machine(self, number: int) -> str:
        return f"{self.names['set']}-vm{number + 1:02d}"


@dataclass
class Filler:
    """Collects copies and commits them in portions; `written` counts the rows of each table."""

    now: datetime
    person: User
    seals: Callable[[], None]
    writer: ThreadPoolExecutor
    # The same fleet each time.
    random: random.Random = field(default_factory=lambda: random.Random(14))
    ids: Counter[type[models.Model]] = field(default_factory=Counter)
    written: Counter[type[models.Model]] = field(default_factory=Counter)
    waiting: dict[int, tuple[Table, list[str]]] = field(default_factory=dict)
    lines: int = 0
    writing: Future[None] | None = None
    places: list[Place] = field(default_factory=list)
    # How many reports each machine has sent, by its row id.
    sent: Counter[int] = field(default_factory=Counter)

    def put(self, pattern: Pattern, at: datetime, names: dict[str, str], refs: dict[str, int]) -> None:
        """One copy; a full portion is committed."""
        machines = [refs[f"machine {number}"] for number in range(len(pattern.numbers))]
        numbers = [self.sent[machine] for machine in machines]
        for table, line in pattern.lines(Copy(at, names, refs, numbers, self.ids)):
            self.waiting.setdefault(id(table), (table, []))[1].append(line)
            self.written[table.model] += 1
            self.lines += 1
        for machine, count in zip(machines, pattern.numbers, strict=True):
            self.sent[machine] += count
        if self.lines >= PORTION:
            self.commit()

    def commit(self) -> None:
        """Write the waiting rows in parallel to the making of further ones, once the portion before is stored."""
        self.settle()
        self.writing = self.writer.submit(self._write, self.waiting, Counter(self.ids))
        self.waiting, self.lines = {}, 0

    def settle(self) -> None:
        """Returns once everything that was committed is there."""
        if self.writing is not None:
            self.writing.result()

    def _write(self, waiting: dict[int, tuple[Table, list[str]]], ids: Counter[type[models.Model]]) -> None:
        """Write the rows of all tables. Foreign keys are checked at the end of the transaction, so the tables may have
        any order."""
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                for table, lines in waiting.values():
                    names = ", ".join(f'"{column}"' for column in table.columns)
                    with cursor.copy(f"COPY {table.model._meta.db_table} ({names}) FROM STDIN") as copy:
                        copy.write("".join(lines))
                for model, largest in ids.items():
                    if not largest:
                        continue
                    sequence = f"pg_get_serial_sequence('{model._meta.db_table}', 'id')"
                    cursor.execute(f"SELECT setval({sequence}, %s)", [largest])
        finally:
            # It is this thread's own.
            connection.close()
        self.seals()


@dataclass(frozen=True, slots=True)
class Patterns:
    """All that is copied. They are played while the database is empty; `of_open` by (story, machines of the set)."""

    of_a_set: Pattern
    of_a_machine: Pattern
    last: Pattern
    of_a_cache: Pattern
    reconnected: Pattern
    over: list[Pattern]
    of_open: dict[tuple[int, int], Pattern]
    of_flood: Pattern

    @property
    def bodies(self) -> dict[str, bytes]:
        """Documents that are the same for everybody, by hash."""
        every = [self.of_a_machine, *self.over, *self.of_open.values(), self.of_flood]
        return {hashed: body for pattern in every for hashed, body in pattern.bodies.items()}


def patterns(size: Size, *, at: datetime, person: User) -> Patterns:
    """Play every story once."""
    of_a_machine, last = stories.of_a_machine(at=at, person=person)
    of_a_cache, reconnected = stories.of_a_cache(at=at, person=person)
    watchers = min(WATCHERS, size.set_size)
    counts = {size.count(number) for number in (0, size.sets - 1)} if size.open_events else set()
    return Patterns(
        of_a_set=stories.of_a_set(at=at, person=person),
        of_a_machine=of_a_machine,
        last=last,
        of_a_cache=of_a_cache,
        reconnected=reconnected,
        over=[stories.of_an_event(story, at=at, person=person, machines=watchers) for story in stories.ENDED],
        of_open={
            (number, count): stories.of_an_event(story, at=at, person=person, machines=count, still_open=True)
            for number, story in enumerate(stories.OPEN)
            for count in counts
        },
        of_flood=stories.of_an_event(stories.undecided, at=at, person=person, machines=1),
    )


def fill(size: Size, *, now: datetime, tell: Callable[[str], None]) -> Counter[type[models.Model]]:
    """Write it all; how many rows of each table. The database has no machine yet.

    Killed on the way it leaves what was committed: whole machines and whole stories.
    """
    person, _ = User.objects.get_or_create(username=PERSON, defaults={"is_active": False, "password": "!"})
    person.groups.set([Group.objects.get_or_create(name="operator")[0]])
    # The writer ends before the seals do: what it has written last is sealed, too.
    with _sealing() as seals, ThreadPoolExecutor(1) as writer:
        filler = Filler(now, person, seals, writer, ids=largest_ids(stories.NUMBERED))
        played = patterns(size, at=now, person=person)
        _machines(filler, size, played)
        tell(f"{size.machines:,} machines in {size.sets:,} sets")
        _past(filler, size, played)
        tell(f"{filler.written[Entry]:,} entries of the past")
        _present(filler, size, played)
        tell(f"{size.open_events:,} open events; sealing the rest")
    return filler.written


def _machines(filler: Filler, size: Size, played: Patterns) -> None:
    """Sets with their machines, which enrolled before the history begins."""
    at = filler.now - PAST - timedelta(days=30)
    bodies = [
        DocumentBody(hash=hashed, body=body, readable=True, first_received_at=at)
        for hashed, body in played.bodies.items()
    ]
    DocumentBody.objects.bulk_create(bodies, ignore_conflicts=True)
    for number in range(size.sets):
        of_the_set = _names(number)
        filler.put(played.of_a_set, at, of_the_set, {})
        place = Place(
            filler.ids[AvailabilitySet],
            filler.ids[Machine] + 1,
            size.count(number),
            of_the_set,
        )
        filler.places.append(place)
        for machine in range(place.count):
            own = hashlib.sha256(f"{place.machine(machine)} {number}".encode()).hexdigest()
            ids = {"vm 0": str(UUID(own[:32])), "spool 0": str(UUID(own[32:])), "credential 0": own}
            filler.put(
                played.of_a_machine, at + timedelta(seconds=number), place.named([machine], **ids), {"set": place.id}
            )
            filler.sent[filler.ids[Machine]] = 1
    filler.commit()


def _names(number: int) -> dict[str, str]:
    """Return the name and place of the set with this number."""
    role = ROLES[number // SETS_A_SERVICE % len(ROLES)]
    service = f"{role}-{number // (SETS_A_SERVICE * len(ROLES)):03d}"
    return {
        "set": f"{service}-{number % SETS_A_SERVICE:02d}",
        "service": service,
        "group": f"group-{number // SETS_A_GROUP:04d}",
        "subscription": str(UUID(int=number // SETS_A_GROUP % SUBSCRIPTIONS + 1)),
    }


def _past(filler: Filler, size: Size, played: Patterns) -> None:
    """A year of events that are over, and of connections to caches, in the order of time."""
    begin = filler.now - PAST
    caches = []
    for number in range(max(2, size.machines // MACHINES_A_CACHE)):
        host = f"cache-{number:04d}.redis.cache.windows.net"
        filler.put(played.of_a_cache, begin, {"host": host}, {})
        caches.append((filler.ids[Cache], host))
    watchers = min(WATCHERS, size.set_size)
    pick, already = filler.random, filler.written[Entry]

    def moment() -> datetime:
        told = filler.written[Entry] - already
        return begin + (PAST - timedelta(hours=1)) * (told / max(1, size.entries - already))

    while filler.written[Entry] < size.entries:
        until = min(size.entries, filler.written[Entry] + ENTRIES_AN_EVENT)
        place = pick.choice(filler.places)
        if place.count >= watchers:
            watching = pick.sample(range(place.count), watchers)
            names = place.named(watching, event=_event_id(pick))
            filler.put(pick.choice(played.over), moment(), names, place.refs(watching))
        while filler.written[Entry] < until:
            place, (cache, host) = pick.choice(filler.places), pick.choice(caches)
            one = [pick.randrange(place.count)]
            names, refs = place.named(one, host=host), {**place.refs(one), "cache": cache}
            filler.put(played.reconnected, moment(), names, refs)
    filler.commit()


def _present(filler: Filler, size: Size, played: Patterns) -> None:
    """Write the open events, at most one a set, which all its machines list, and the current state of every machine."""
    pick = filler.random
    chosen = {place.id: number for number, place in enumerate(pick.sample(filler.places, size.open_events))}
    for place in filler.places:
        everyone = list(range(place.count))
        if place.id in chosen:
            pattern = played.of_open[chosen[place.id] % len(stories.OPEN), place.count]
            began = filler.now - pattern.took - timedelta(seconds=10 + 240 * pick.random())
            filler.put(pattern, began, place.named(everyone, event=_event_id(pick)), place.refs(everyone))
        else:
            for number in everyone:
                filler.put(played.last, filler.now, place.named([number]), place.refs([number]))
    flooded = filler.places[-1]
    for _ in range(size.flood):
        began = filler.now - timedelta(seconds=10 + 600 * pick.random())
        filler.put(played.of_flood, began, flooded.named([0], event=_event_id(pick)), flooded.refs([0]))
    filler.commit()
    filler.settle()
    machines, counts = zip(*filler.sent.items(), strict=True)
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {Spool._meta.db_table} AS spool SET acknowledged = sent.count"
            " FROM unnest(%s::bigint[], %s::bigint[]) AS sent (machine, count) WHERE spool.machine_id = sent.machine",
            [list(machines), list(counts)],
        )


def _event_id(pick: random.Random) -> str:
    return str(UUID(int=pick.getrandbits(128), version=4)).upper()


def _seal(database: dict[str, Any]) -> int:
    """Return how many rows were sealed, in a separate process."""
    # Killed, its parent could not end it.
    end_with_parent(signal.SIGKILL)
    connection.settings_dict.update(database)
    return seal(now=clock.now(), via="command").rows


@contextmanager
def _sealing() -> Iterator[Callable[[], None]]:
    """Yield a function that starts sealing in a separate process, in parallel to writing, unless it is sealing already;
    seal the rest at the end.
    """
    database = {name: connection.settings_dict[name] for name in ("NAME", "HOST", "PORT", "USER")}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=django.setup) as pool:
        at_work: list[Future[int]] = []
        # It ends with the thread that starts it, and the one that writes ends before the last seals do.
        pool.submit(int).result()

        def again() -> None:
            if not at_work or at_work[-1].done():
                for done in at_work:
                    done.result()
                at_work[:] = [pool.submit(_seal, database)]

        yield again
        while at_work[-1].result() if at_work else False:
            at_work.append(pool.submit(_seal, database))
