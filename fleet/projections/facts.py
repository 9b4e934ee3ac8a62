"""The facts that guards judge, without the names of sets that the reader does not see: that something is under way
there counts for everybody.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import ParamSpec

from fleet.domain.approvals.guards import EventFacts
from fleet.models.facts import events
from fleet.projections.sight import limited, name_in_sight

P = ParamSpec("P")


def _unnamed(facts: EventFacts) -> EventFacts:
    others = (replace(other, set_name=name_in_sight(other.set_name, of=other.set_id)) for other in facts.others)
    return replace(facts, others=tuple(others))


def _in_sight(load: Callable[P, dict[int, EventFacts]]) -> Callable[P, Mapping[int, EventFacts]]:
    @wraps(load)
    def loaded(*args: P.args, **kwargs: P.kwargs) -> Mapping[int, EventFacts]:
        found = load(*args, **kwargs)
        return {pk: _unnamed(facts) for pk, facts in found.items()} if limited() else found

    return loaded


load_facts = _in_sight(events.load_facts)
facts_of = _in_sight(events.facts_of)
