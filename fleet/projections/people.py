"""What every edge reads of its user: rights, settings, and whether the account is a service account."""

from dataclasses import dataclass
from datetime import datetime

from fleet.domain.people import Rights
from fleet.domain.shapes import from_row
from fleet.models import Profile
from fleet.models.people import Person, rights_of, service_of
from fleet.projections.visibility import visible


def rights(person: Person) -> Rights:
    """What somebody may do, and where. One query for each object of a person."""
    return rights_of(person)


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """`time_zone` is an IANA name, `browser`, or empty for UTC."""

    time_zone: str = ""
    shortcuts: bool = True
    sound: bool = False
    notifications: bool = False
    first_steps: bool = True
    # What changed until then, they have read.
    looked_until: datetime | None = None


def own_settings(*, user_id: int) -> OwnSettings:
    """What this person (row id) has chosen. One query."""
    row = visible(Profile).filter(pk=user_id).first()
    return from_row(OwnSettings, row) if row else OwnSettings()


def is_service(person: Person) -> bool:
    """Whether an account is no person. At most one query; none where its token was looked up with it."""
    return service_of(person) is not None
