"""Facts about the current user for pages, API and gateway: rights, settings, and whether it is a service account."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from django.contrib.auth.models import User

from fleet.domain.people import Place, Right, Rights
from fleet.domain.shapes import from_row
from fleet.models import Profile
from fleet.models.people import Person, prefetch_rights, rights_of, service_of
from fleet.projections.visibility import visible


def rights(person: Person) -> Rights:
    """Return a user's rights and their scopes. One query; the result is cached on the object `person`."""
    return rights_of(person)


# Users that a form offers by name; others can be typed.
MOST_NAMED = 500


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """The settings of a user."""

    time_zone: Annotated[str, "An IANA name, `browser`, or empty for UTC. Only pages use it."] = ""
    shortcuts: Annotated[bool, "Whether pages accept keyboard shortcuts."] = True
    sound: Annotated[bool, "Whether pages sound when something new needs a decision."] = False
    notifications: Annotated[bool, "Whether the browser notifies then, if it is allowed to."] = False
    first_steps: Annotated[bool, "Whether the front page of an empty installation begins with the first steps."] = True
    handover_read_until: Annotated[
        datetime | None, "The time up to which they have read changes on the page Handover; null before the first time."
    ] = None


def own_settings(*, user_id: int) -> OwnSettings:
    """Return the settings of a user (row id). One query."""
    row = visible(Profile).filter(pk=user_id).first()
    return from_row(OwnSettings, row) if row else OwnSettings()


def deciders(place: Place) -> list[str]:
    """Return the names of the users who may decide events in this place, at most `MOST_NAMED`, without service
    accounts. Two queries.
    """
    users = list(visible(User).filter(is_active=True, service_account=None).order_by("username")[:MOST_NAMED])
    prefetch_rights(users)
    return [user.get_username() for user in users if rights_of(user).may(Right.APPROVE, place)]


def is_service(person: Person) -> bool:
    """Return whether the account is a service account. At most one query; none if the user was loaded with a token."""
    return service_of(person) is not None
