"""Whether the database numbers its transactions anew, as after a dump was restored, and no new era has begun."""

from fleet.models.timeline import Numbering, numbering


def current() -> Numbering:
    """How this server numbers transactions, beside what the timeline names. One query."""
    return numbering()
