"""State badges: colour alone never shows a state. Each has its own word, and another colour means another shape."""

from itertools import combinations
from typing import Any

import pytest

from fleet.domain.event_types import TYPES, event_type_of
from fleet.domain.timeline import EntryKind
from fleet.wording.badges import BY_KIND, COVERAGE_BADGES, RUNNING_BADGE, STEP_BADGES, Badge

# Kinds of entries show their word next to each badge, and are too many for as many shapes.
TABLES: dict[str, dict[Any, Badge]] = {
    kind.__name__: dict(table) for kind, table in BY_KIND.items() if kind is not EntryKind
}
TABLES |= {"coverage": dict(COVERAGE_BADGES), "steps": dict(STEP_BADGES)}


@pytest.mark.parametrize("name", TABLES)
def test_states_of_one_kind_differ_in_word_and_those_of_another_colour_in_shape(name: str) -> None:
    for (first, one), (second, other) in combinations(TABLES[name].items(), 2):
        assert one.label != other.label, (first, second)
        if one.tone != other.tone:
            assert one.icon != other.icon, (first, second)


def test_what_is_under_way_looks_like_no_outcome() -> None:
    assert RUNNING_BADGE.icon not in {look.icon for look in TABLES["Outcome"].values()}


def test_types_of_events_differ_in_shape() -> None:
    icons = [event_type_of(kind).icon for kind in TYPES]
    assert len(set(icons)) == len(icons)
