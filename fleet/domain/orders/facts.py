"""One order as the relay judges it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleet.domain.states import OPEN_ORDERS, OrderState


@dataclass(frozen=True, slots=True)
class OrderFacts:
    """One order of the approval; `refused` means that asking this machine again is no use."""

    order_id: Any
    machine_id: int
    state: OrderState
    offered_at: datetime
    delivered_at: datetime | None = None
    answered_at: datetime | None = None
    outcome: str = ""
    azure_status: int | None = None
    # How often its machine has asked Azure, and after how many seconds Azure wants to be asked again, where known.
    posts: int | None = None
    retry_after_seconds: float | None = None
    reason: str = ""

    @property
    def open(self) -> bool:
        return self.state in OPEN_ORDERS

    @property
    def last_seen_at(self) -> datetime:
        """When it reached its machine; as long as that is not known, when it was offered."""
        return self.delivered_at or self.offered_at

    @property
    def refused(self) -> bool:
        if self.outcome == "refused":
            return True
        # 404, 410, 429 and 5xx mean "later" at the metadata service.
        return self.outcome == "answered" and self.azure_status in (400, 401, 403, 405, 422)

    @property
    def accepted(self) -> bool:
        return self.outcome == "answered" and self.azure_status == 200

    @property
    def busy(self) -> bool:
        """Azure answered neither yes nor no: it wants to be asked later, and what it has done nobody knows."""
        return is_busy(self.outcome, self.azure_status)

    @property
    def asked(self) -> int:
        """How often Azure was asked for it, or may have been."""
        if self.outcome == "refused":
            return 0
        # An agent of 0.1.0 does not tell: it asked up to three times where Azure was busy.
        unknown = 3 if self.busy else int(self.delivered_at is not None)
        return unknown if self.posts is None else self.posts


def is_busy(outcome: str, azure_status: int | None) -> bool:
    """Whether an answer to an order says that Azure wants to be asked later."""
    status = azure_status or 0
    return outcome == "answered" and (status in (202, 429) or status >= 500)


def answered_at(order: OrderFacts) -> datetime:
    """When it was answered; where that is not known, when it was offered."""
    return order.answered_at or order.offered_at
