"""Steps of an uploader, by hand."""

from dataclasses import dataclass, field

from drydock_agent import wire
from drydock_agent.backend.uploader import Uploader
from drydock_agent.clock import Clock
from drydock_agent.spool.store import Spool

from tests.agent.agents import SteppedClock
from tests.agent.fleet_double import FleetDouble


@dataclass
class Delivery:
    """An uploader with one document in its spool, the backend that it delivers to, and the machine's clock."""

    spool: Spool
    fleet: FleetDouble
    clock: SteppedClock
    # Of each full resend: the acknowledgement up to which the backend still had the reports.
    resends: list[int] = field(default_factory=list)

    def begin(self, uploader: Uploader) -> None:
        self.uploader = uploader
        self.step = uploader.step

    def until_idle(self) -> float:
        while (pause := self.step()) == 0.0:
            pass
        return pause

    def fill(self, count: int, kind: str = wire.REMINDER) -> None:
        for number in range(count):
            self.spool.add(kind, Clock().now(), {"number": number})
