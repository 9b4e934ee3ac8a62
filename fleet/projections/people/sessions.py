"""Sessions of people in browsers, as they and admins see them."""

from dataclasses import dataclass
from datetime import datetime

from fleet.domain.secrets import hash_of
from fleet.domain.shapes import like
from fleet.models import PersonSession
from fleet.models.sessions import going_on
from fleet.projections.pages import Page, Segment, read_page
from fleet.projections.visibility import seen


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session that goes on. `way` is how its person came in; that, `began_at` and `address` are not known of one
    from before 0.2.0. `this`: the one in which somebody asks.
    """

    id: int
    browser: str
    system: str
    way: str
    address: str
    last_address: str
    began_at: datetime | None
    last_seen_at: datetime
    this: bool

    @property
    def elsewhere(self) -> bool:
        """Whether it is used from another address than that of its login."""
        return bool(self.address) and self.address != self.last_address


def sessions(
    *, username: str, session_key: str, now: datetime, cursor: str | None = None, size: int | None = None
) -> Page[SessionRow]:
    """Somebody's sessions that go on, those first that were seen last. One query."""
    own = hash_of(session_key) if session_key else ""
    rows = going_on(seen(PersonSession).filter(user__username=username), now=now)
    found = read_page([Segment(rows, "last_seen_at", descending=True)], cursor=cursor, size=size)
    return found.map(lambda shown: [like(SessionRow, row, this=row.key_hash == own) for row in shown])
