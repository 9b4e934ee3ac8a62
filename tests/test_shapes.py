"""`like` fills a dataclass out of a row: by name, by the type of the field, and without asking the database."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from fleet.domain.reasons import Reason
from fleet.domain.shapes import from_row, names_of, of_values
from fleet.domain.states import EndedAs, EventStatus
from fleet.models import AvailabilitySet, ScheduledEvent

NOW = datetime(2026, 3, 2, 14, 32, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Shape:
    event_id: str
    status: EventStatus
    ended_as: EndedAs | None
    resources: tuple[str, ...]
    warnings: tuple[Reason | str, ...]
    description: Reason | str
    first_seen_at: datetime
    open: bool = True


@dataclass(frozen=True, slots=True)
class WithSet:
    event_id: str
    availability_set: str = "none"


def event(**said: object) -> ScheduledEvent:
    row = ScheduledEvent(event_id="A", status="STARTED", ended_as="", first_seen_at=NOW, resources=["vm1"])
    row.warnings = [{"code": "no-votes", "values": {}}, "As it was said."]
    row.description = Reason("rule", at=NOW).stored
    for name, value in said.items():
        setattr(row, name, value)
    return row


def test_what_a_row_has_becomes_what_the_field_says() -> None:
    shaped = from_row(Shape, event(ended_as="completed"))
    assert shaped.status is EventStatus.STARTED
    assert shaped.ended_as is EndedAs.COMPLETED
    assert shaped.resources == ("vm1",)
    assert shaped.warnings == (Reason("no-votes"), "As it was said.")
    assert shaped.description == Reason("rule", at="2026-03-02T14:32:00Z")
    assert shaped.first_seen_at == NOW
    assert shaped.open is True


def test_an_empty_text_is_no_member_of_an_enum() -> None:
    assert from_row(Shape, event()).ended_as is None
    with pytest.raises(ValueError, match="EventStatus"):
        from_row(Shape, event(status=""))


def test_what_is_given_stays_as_it_is_and_another_shape_is_a_row_too() -> None:
    shaped = from_row(Shape, event(), resources=["vm2"], open=False)
    assert shaped.resources == ["vm2"]
    assert from_row(Shape, shaped, event_id="B") == from_row(
        Shape, event(), event_id="B", resources=("vm2",), open=False
    )


def test_missing_and_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError, match="event_id"):
        from_row(Shape, AvailabilitySet(name="a"))
    with pytest.raises(TypeError, match="unheard"):
        from_row(Shape, event(), unheard=1)


def test_the_database_is_never_asked() -> None:
    # A test without the database would fail at the query; a relation is refused before.
    row = event(availability_set_id=1)
    with pytest.raises(TypeError, match=r"WithSet\.availability_set has to be given"):
        from_row(WithSet, row)
    assert from_row(WithSet, row, availability_set="web").availability_set == "web"


def test_a_deferred_column_is_refused_even_where_the_field_has_a_default() -> None:
    row = event()
    del row.__dict__["event_id"]
    with pytest.raises(TypeError, match=r"WithSet\.event_id"):
        from_row(WithSet, row, availability_set="web")


def test_many_rows_are_made_of_their_values_alone() -> None:
    values = {"status": "STARTED", "ended_as": "completed", "resources": ["vm1"], "warnings": [], "first_seen_at": NOW}
    asked = [values.get(name, getattr(event(), name, "")) for name in names_of(Shape)]
    shaped = of_values(Shape, asked)
    assert (shaped.status, shaped.ended_as, shaped.resources) == (EventStatus.STARTED, EndedAs.COMPLETED, ("vm1",))
    with pytest.raises(ValueError, match="zip"):
        of_values(Shape, asked[:-1])
