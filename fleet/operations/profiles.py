"""What people choose for themselves: the time zone of their pages, the keyboard's shortcuts, their password."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from fleet.domain.entries import EntryKind
from fleet.domain.hours import zone_of
from fleet.models import Profile
from fleet.operations import entries
from fleet.operations.errors import Refused
from fleet.operations.membership import note_password

# Stands for the time zone of whichever browser the page is read in.
BROWSER = "browser"


@transaction.atomic
def choose(
    *,
    by: User,
    via: str,
    now: datetime,
    token_name: str = "",
    time_zone: str | None = None,
    shortcuts: bool | None = None,
) -> Profile:
    """One's own settings; what is None stays as it is.

    `time_zone` is an IANA name, `browser`, or empty for UTC. Raises Refused `validation`.
    """
    Profile.objects.get_or_create(user=by)
    row = Profile.objects.select_for_update().get(user=by)
    before = {"time_zone": row.time_zone or "UTC", "shortcuts": row.shortcuts}
    if time_zone is not None:
        row.time_zone = _zone(time_zone)
    if shortcuts is not None:
        row.shortcuts = shortcuts
    after = {"time_zone": row.time_zone or "UTC", "shortcuts": row.shortcuts}
    changed = [name for name in after if after[name] != before[name]]
    if changed:
        row.save(update_fields=changed)
        entries.write(
            [
                entries.entry(
                    EntryKind.PERSON_CHANGED,
                    f"{by.get_username()} changed their own settings: {' and '.join(changed).replace('_', ' ')}.",
                    at=now,
                    actor=by.get_username(),
                    via=via,
                    token_name=token_name,
                    before={name: before[name] for name in changed},
                    after={name: after[name] for name in changed},
                    person=by.get_username(),
                )
            ]
        )
    return row


@transaction.atomic
def set_own_password(*, by: User, password: str, via: str, now: datetime) -> None:
    """A new password of one's own. That it is good, and that the old one was known, the edge's form has checked."""
    by.set_password(password)
    by.save(update_fields=["password"])
    note_password(by, now=now, by=by, via=via)


def _zone(name: str) -> str:
    name = name.strip()
    if name in ("", "UTC"):
        return ""
    if name == BROWSER:
        return name
    try:
        zone_of(name)
    except ValueError as error:
        raise Refused("validation", f"There is no time zone {name[:100]}: say one such as Europe/Berlin.") from error
    return name
