"""For whom something is worded: in which time zone, and in which form."""

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import StrEnum

from django.utils.timezone import get_current_timezone


class Form(StrEnum):
    """Where it is read: times on a page are short and in the reader's zone, elsewhere whole."""

    PAGE = "page"
    API = "api"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class Reader:
    """`now` decides whether a page names the day."""

    zone: tzinfo
    form: Form
    now: datetime | None = None


# The API, files and the command line: whole times in UTC.
API = Reader(UTC, Form.API)


def page_reader(now: datetime | None = None) -> Reader:
    """The person whose request is answered: their time zone is the active one."""
    return Reader(get_current_timezone(), Form.PAGE, now)
