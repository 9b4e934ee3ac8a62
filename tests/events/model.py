"""A plain model of one set: each machine's view in turn, and the event state computed from these views by hand.

It shares no code with the product. `World` plays Azure and the agents at random and keeps the model next to the real
merging; `World.compare` reports where they differ.
"""

import random
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from fleet.gateway.readers import Clock
from fleet.models import ScheduledEvent
from fleet.operations.intake import presence
from fleet.operations.intake.keep import Delivery
from tests.factories import Agent, Fleet, listing, seconds

LIVE, LATE = 60, 600
TOLERANCE = 2.0


@dataclass
class Listed:
    """One event as Azure has it."""

    event_id: str
    status: str
    event_type: str
    not_before: datetime
    resources: tuple[str, ...]


@dataclass
class Told:
    """What one machine read at one time."""

    at: datetime
    incarnation: int
    events: dict[str, Listed]


# State folders of machines, and the reports from them that the backend received, kept by hand.


@dataclass
class Heard:
    """Of one machine: its spools in the order in which each first spoke, and up to where each came."""

    order: list[str] = field(default_factory=list)
    upto: dict[str, int] = field(default_factory=dict)

    def speaks(self, spool: str) -> None:
        """A call came with this spool."""
        if spool not in self.upto:
            self.order.append(spool)
            self.upto[spool] = 0

    def counts(self, spool: str, seq: int) -> bool:
        """A report came: whether it is news of the newest spool, or history."""
        self.speaks(spool)
        new = seq > self.upto[spool]
        self.upto[spool] = max(seq, self.upto[spool])
        return new and self.order[-1] == spool

    def behind(self, spool: str) -> bool:
        """A newer spool has spoken."""
        return spool in self.upto and self.order[-1] != spool


@dataclass(frozen=True)
class Backup:
    """A state folder as it was."""

    spool: str
    seq: int
    current: Any
    unsent: tuple[Any, ...]


@dataclass
class Node:
    """One machine: what it read, what of it has arrived, and when it was heard."""

    name: str
    agent: Agent
    up: bool = True
    current: dict[str, tuple[Any, ...]] | None = None
    polled_at: datetime | None = None
    # Seconds that its clock is ahead, now and, for each unsent document, when it was read.
    ahead: float = 0.0
    unsent: list[tuple[Delivery, Told, float]] = field(default_factory=list)
    sent: list[Delivery] = field(default_factory=list)
    arrived: list[Told] = field(default_factory=list)
    heard: Heard = field(default_factory=Heard)
    # What it may be put back to; what still is on its way out of a folder that is lost; and whether the first call of
    # its agent was made, and how far numbers were given when that one began.
    backup: Backup | None = None
    astray: list[tuple[Delivery, Told, float]] = field(default_factory=list)
    greeted: bool = True
    sent_upto: int = 0
    heard_at: datetime | None = None
    known_poll: datetime | None = None


class World:
    """Azure, a set of machines, and the backend. Every step is drawn from `choice`, so a seed tells a whole story."""

    def __init__(self, choice: random.Random, *, machines: int = 4) -> None:
        self.choice = choice
        self.fleet = Fleet()
        self.nodes = []
        for number in range(machines):
            agent = self.fleet.enrol(f"m{number}", heard=False, update_domain=0)
            self.nodes.append(Node(agent.machine.resource_name, agent))
        self.azure: dict[str, Listed] = {}
        self.count = 0
        self.steps = 0
        self.ended: set[str] = set()
        self.wrong: list[str] = []

    # Azure

    def announce(self) -> None:
        self.count += 1
        event_id = f"{self.choice.getrandbits(32):08X}-0000-4000-8000-{self.count:012}"
        kind = self.choice.choice(["Freeze", "Reboot", "Redeploy", "Preempt"])
        status = self.choice.choice(["Scheduled", "Scheduled", "Scheduled", "Started"])
        names = tuple(node.name for node in self.nodes if self.choice.random() < 0.5) or (self.nodes[0].name,)
        not_before = self.fleet.now + seconds(self.choice.choice([30, 300, 900]))
        self.azure[event_id] = Listed(event_id, status, kind, not_before, names)

    def move(self) -> None:
        if not self.azure:
            return self.announce()
        event = self.choice.choice(sorted(self.azure.values(), key=lambda event: event.event_id))
        what = self.choice.random()
        if what < 0.4:
            event.status = "Started"
        elif what < 0.8:
            del self.azure[event.event_id]
        else:
            event.not_before += seconds(60)
        return None

    # Machines

    def poll(self, node: Node) -> None:
        if not node.up:
            return
        node.polled_at = self.fleet.now
        listed = {key: (e.status, e.not_before, e.resources) for key, e in self.azure.items()}
        if listed == node.current:
            return
        node.current = listed
        if self.choice.random() < 0.2:
            # Something came and went between two polls.
            node.agent.incarnation += 1
        events = [
            listing(
                e.event_id, status=e.status, event_type=e.event_type, resources=e.resources, not_before=e.not_before
            )
            for e in self.azure.values()
        ]
        report = node.agent.document(*events, at=self.fleet.now)
        copies = {key: Listed(**vars(event)) for key, event in self.azure.items()}
        told = Told(self.fleet.now, node.agent.incarnation, copies)
        node.unsent.append((node.agent.delivery(report), told, node.ahead))

    def send(self, nodes: list[Node]) -> None:
        batch: list[Delivery] = []
        calls: list[tuple[Node, list[tuple[Delivery, Told, float]]]] = []
        for node in nodes:
            if not node.up:
                continue
            if not node.greeted:
                self.greet(node)
            taken = [node.unsent.pop(0) for _ in range(self.choice.randint(0, len(node.unsent)))]
            batch += [self.arrives(node, *one) for one in taken]
            if taken or node.heard.behind(node.agent.spool):
                calls.append((node, taken))
            if not taken and node.heard.behind(node.agent.spool):
                batch.append(node.agent.delivery())
            elif not taken and node.astray and self.choice.random() < 0.3:
                batch.append(self.arrives(node, *node.astray.pop(0)))
            if node.sent and self.choice.random() < 0.3:
                # An answer was lost: it comes again.
                batch.insert(self.choice.randint(0, len(batch)), self.choice.choice(node.sent[-5:]))
            node.heard_at = self.fleet.now
            if not node.unsent:
                node.known_poll = node.polled_at or node.known_poll
        presence.flush(
            contacts=[
                presence.Contact(node.agent.machine.pk, node.heard_at, node.known_poll)
                for node in nodes
                if node.up and node.heard_at is not None
            ]
        )
        if batch:
            answers = self.fleet.record(*batch)
            self.watch()
            for node, taken in calls:
                answer = answers.get((node.agent.machine.pk, node.agent.spool))
                if answer is not None and answer.renumber_spool:
                    self.begin_again(node, taken)

    def arrives(self, node: Node, delivery: Delivery, told: Told, ahead: float) -> Delivery:
        """One document reaches the backend; as it comes there."""
        seq = delivery.reports[0].seq
        node.sent_upto = max(node.sent_upto, seq)
        if node.heard.counts(delivery.spool, seq):
            node.arrived.append(replace(told, at=self.corrected_by_hand(node, told.at, ahead)))
        sent = self.corrected(node, delivery, ahead)
        node.sent.append(sent)
        return sent

    def greet(self, node: Node) -> None:
        """The first call of an agent carries nothing, and tells it where its spool stands."""
        node.greeted = True
        node.heard.speaks(node.agent.spool)
        for answer in self.fleet.record(node.agent.delivery()).values():
            if answer.renumber_spool or answer.acknowledged > node.sent_upto:
                self.begin_again(node, [])
        node.unsent = [one for one in node.unsent if one[0].reports[0].seq > node.heard.upto.get(one[0].spool, 0)]

    def begin_again(self, node: Node, taken: list[tuple[Delivery, Told, float]]) -> None:
        """Give the agent's spool a new name, renumber its waiting reports, and resend its document."""
        agent = node.agent
        agent.spool, agent.seq, node.sent_upto, node.current = f"spool {self.choice.getrandbits(64)}", 0, 0, None
        node.unsent = [
            (agent.delivery(agent.numbered(delivery.reports[0])), told, ahead)
            for delivery, told, ahead in [*taken, *node.unsent]
        ]

    def corrected(self, node: Node, delivery: Delivery, ahead: float) -> Delivery:
        """What the decoder makes of the times that this machine's clock showed."""
        sent_at = self.fleet.now + seconds(node.ahead)
        clock = Clock.measured(sent_at=sent_at, received_at=self.fleet.now, tolerance=TOLERANCE)
        read = [
            replace(report, at=clock.judged(report.at + seconds(ahead), self.fleet.now)[0])
            for report in delivery.reports
        ]
        return replace(delivery, reports=read)

    def corrected_by_hand(self, node: Node, at: datetime, ahead: float) -> datetime:
        """Only the clock at the contact is known; and nothing comes from tomorrow, nor from before there was Azure."""
        off = ahead - (node.ahead if abs(node.ahead) > TOLERANCE else 0.0)
        found = at + seconds(off)
        return self.fleet.now if found.year < 2000 else min(found, self.fleet.now)

    def restart(self, node: Node) -> None:
        """The state folder is lost: a new spool, and what was not sent is gone with the old one, or on its way."""
        node.astray += [one for one in node.unsent if self.choice.random() < 0.3]
        # It may come back later, as it was.
        self.back_up(node)
        node.agent.spool, node.agent.seq = f"spool {self.choice.getrandbits(64)}", 0
        node.unsent, node.current, node.greeted, node.sent_upto = [], None, True, 0
        node.up = True

    def back_up(self, node: Node) -> None:
        node.backup = Backup(node.agent.spool, node.agent.seq, node.current, tuple(node.unsent))

    def put_back(self, node: Node) -> None:
        """The state folder is again what it was at its last backup, as with the image of a whole machine."""
        if node.backup is None:
            return
        node.astray += [one for one in node.unsent if self.choice.random() < 0.3]
        node.agent.spool, node.agent.seq, node.current = node.backup.spool, node.backup.seq, node.backup.current
        node.unsent, node.greeted, node.sent_upto = list(node.backup.unsent), False, node.backup.seq
        node.up = True

    def step(self) -> None:
        """Play one random step of Azure, a machine or the clock."""
        self.steps += 1
        what = self.choice.random()
        node = self.choice.choice(self.nodes)
        if what < 0.06:
            self.move()
        elif what < 0.12:
            self.fleet.later(self.choice.choice([1, 5, 20, 45]))
        elif what < 0.125:
            self.fleet.later(700)
        elif what < 0.14:
            node.up = not node.up
        elif what < 0.15:
            self.restart(node)
        elif what < 0.152:
            self.back_up(node)
        elif what < 0.16:
            self.put_back(self.choice.choice([one for one in self.nodes if one.backup is not None] or [node]))
        elif what < 0.17:
            # A clock jumps, or is set right: what was written before it is sent after it.
            node.ahead = self.choice.choice([0, 0, 1, 30, 5000, 10**9, -40])
        elif what < 0.6:
            self.poll(node)
        elif what < 0.97:
            self.send([node] if what < 0.8 else self.nodes)
        else:
            self.sweep()

    # The model

    def sweep(self) -> None:
        self.fleet.advance()
        self.watch()

    def watch(self) -> None:
        """Note every wrong step into ENDED and out of it, at the moment at which it is taken."""
        ended = set(ScheduledEvent.objects.filter(status="ENDED").values_list("event_id", flat=True))
        for event_id in sorted(ended - self.ended):
            expected = self.expected(event_id)
            if expected is None or expected[0] != "ENDED":
                self.wrong.append(f"{event_id} ended, by the model it is {expected}")
        for event_id in sorted(self.ended - ended):
            if not any(self.presence(node) == "live" for node in self.listing_now(event_id)):
                self.wrong.append(f"{event_id} was reopened, and no live machine lists it")
        self.ended = ended

    def listing_now(self, event_id: str) -> list[Node]:
        return [node for node in self.nodes if node.arrived and event_id in node.arrived[-1].events]

    def presence(self, node: Node) -> str:
        polls = [time for time in (node.known_poll, self.newest(node)) if time is not None]
        if node.heard_at is None:
            return "expected"
        if not polls:
            return "silent"
        age = max((self.fleet.now - node.heard_at).total_seconds(), (self.fleet.now - max(polls)).total_seconds())
        return "live" if age < LIVE else "late" if age < LATE else "silent"

    @staticmethod
    def newest(node: Node) -> datetime | None:
        return node.arrived[-1].at if node.arrived else None

    def last_look(self, node: Node) -> datetime | None:
        looks = [time for time in (node.known_poll, self.newest(node)) if time is not None]
        return max(looks) if looks else None

    def expected(self, event_id: str) -> tuple[Any, ...] | None:
        """Return (status, ended as, watched, started at, NotBefore, Resources), or None until a machine reports it."""
        tellers = [node for node in self.nodes if any(event_id in told.events for told in node.arrived)]
        if not tellers:
            return None
        listing_now = self.listing_now(event_id)
        gone = [node for node in tellers if node not in listing_now]
        started = [
            told.at
            for node in tellers
            for told in node.arrived
            if event_id in told.events and told.events[event_id].status == "Started"
        ]
        last_listing = max(self.last_listing(node, event_id, node in listing_now) for node in tellers)
        live = [node for node in self.nodes if self.presence(node) == "live"]
        looked = [node for node in self.nodes if node not in listing_now and self.looked_since(node, last_listing)]
        status, ended_as = ("STARTED" if started else "SCHEDULED"), ""
        watched = any(node in live for node in listing_now)
        not_before = self.not_before(tellers, event_id)
        # What has ended stays so until a live machine lists it.
        stays = event_id in self.ended and not watched
        if gone and not watched and (stays or (looked and all(self.looked_since(node, last_listing) for node in live))):
            status, watched = "ENDED", True
            ended_as = "completed" if started else self.evicted(gone, event_id) or self.cancelled(gone, event_id)
        elif listing_now and self.kind(tellers, event_id) == "Preempt":
            silent = all(self.presence(node) in ("silent", "gone") for node in listing_now)
            if (silent or stays) and not watched and (not_before is None or not_before <= self.fleet.now):
                status, ended_as = "ENDED", "machine_deleted"
        resources = max(
            (
                (told.events[event_id].status == "Started", told.at, node.agent.machine.pk),
                told.events[event_id].resources,
            )
            for node in tellers
            for told in [self.last_told(node, event_id)]
        )[1]
        return (status, ended_as, watched, min(started) if started else None, not_before, list(resources))

    @staticmethod
    def last_told(node: Node, event_id: str) -> Told:
        return [told for told in node.arrived if event_id in told.events][-1]

    def kind(self, tellers: list[Node], event_id: str) -> str:
        return self.last_told(tellers[0], event_id).events[event_id].event_type

    def last_listing(self, node: Node, event_id: str, still: bool) -> datetime:
        last = self.last_told(node, event_id)
        if not still:
            # Whatever its clock showed, it was before the document that lists it no more.
            after = next(told for told in node.arrived[node.arrived.index(last) + 1 :])
            return min(last.at, after.at)
        look = self.last_look(node)
        return max(last.at, look) if look is not None else last.at

    def looked_since(self, node: Node, time: datetime) -> bool:
        look = self.last_look(node)
        return look is not None and look >= time

    def not_before(self, tellers: list[Node], event_id: str) -> datetime | None:
        best: tuple[Any, ...] | None = None
        for node in tellers:
            stated: datetime | None = None
            for told in node.arrived:
                if event_id in told.events and told.events[event_id].status == "Scheduled":
                    stated = told.events[event_id].not_before
            if stated is not None:
                last = self.last_told(node, event_id)
                rank = (last.events[event_id].status == "Started", last.at, node.agent.machine.pk, stated)
                best = max(best, rank) if best else rank
        return best[3] if best else None

    def evicted(self, gone: list[Node], event_id: str) -> str:
        """Whether a machine that a Preempt names was not heard since the others saw the event go."""
        if self.kind(gone, event_id) != "Preempt":
            return ""
        gone_at = max(self.gone_at(node, event_id) for node in gone)
        named = [
            node for node in self.nodes if node.name in self.last_told(gone[0], event_id).events[event_id].resources
        ]
        for node in named:
            look = self.last_look(node)
            unheard = node not in gone and (look is None or look < gone_at)
            if unheard and self.presence(node) != "live":
                return "machine_deleted"
        return ""

    def gone_at(self, node: Node, event_id: str) -> datetime:
        last = self.last_told(node, event_id)
        return next(told for told in node.arrived[node.arrived.index(last) + 1 :]).at

    def cancelled(self, gone: list[Node], event_id: str) -> str:
        for node in gone:
            last = self.last_told(node, event_id)
            after = next(told for told in node.arrived[node.arrived.index(last) + 1 :])
            not_before = self.not_before([node], event_id)
            in_time = not_before is not None and after.at < not_before
            if after.incarnation == last.incarnation + 1 and (in_time or self.kind([node], event_id) != "Preempt"):
                return "cancelled"
        return "cancelled_or_missed"

    def unheard(self) -> list[str]:
        """Machines whose newest word does not count, though all are up and have said everything."""
        self.announce()
        for node in self.nodes:
            # What is astray comes no more: the next word of its machine would make it good a minute later.
            node.up, node.astray = True, []
        for _ in range(4):
            self.fleet.later(61)
            for node in self.nodes:
                self.poll(node)
            while True:
                self.send(self.nodes)
                if not any(node.unsent for node in self.nodes):
                    break
        listed = set(self.azure)
        return [node.name for node in self.nodes if not node.arrived or set(node.arrived[-1].events) != listed]

    def compare(self) -> list[str]:
        """Every difference between the model and the real merging after a sweep; empty when there is none."""
        self.sweep()
        found = list(self.wrong)
        real = {event.event_id: event for event in ScheduledEvent.objects.all()}
        told = {key for node in self.nodes for one in node.arrived for key in one.events}
        if told != set(real):
            found.append(f"events {sorted(told)} against {sorted(real)}")
        for event_id in sorted(told & set(real)):
            event = real[event_id]
            is_real = (
                event.status, event.ended_as, event.watched, event.started_at, event.not_before, event.resources,
            )  # fmt: skip
            expected = self.expected(event_id)
            if is_real != expected:
                found.append(f"{event_id}: really {is_real}, by the model {expected}")
        return found
