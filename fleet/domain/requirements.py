"""Requirements of a set for decisions about its events, and their comparison."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import timedelta
from typing import Any, Self

from fleet.domain.people import Place

# How long a request to lower requirements waits for another administrator.
LOWERING_WAITS = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements of a set for approvals of its events.

    `second_person`: a second person must agree. `step_up`: the user must verify their identity again;
    `exempt_service_accounts`: service accounts need not. `min_live`: how many machines must remain live.
    """

    second_person: bool = False
    step_up: bool = False
    exempt_service_accounts: bool = False
    min_live: int | None = None

    @classmethod
    def of(cls, row: Any) -> Self:
        """Return the requirements of the row of a set, which has columns of these names."""
        return cls(**{each.name: getattr(row, each.name) for each in fields(cls)})

    def stricter(self, other: Self) -> Self:
        """Return requirements with the stricter value of both for each field."""
        both = (self, other)
        asks_services = any(each.step_up and not each.exempt_service_accounts for each in both)
        needed = [each.min_live for each in both if each.min_live is not None]
        return type(self)(
            second_person=any(each.second_person for each in both),
            step_up=any(each.step_up for each in both),
            exempt_service_accounts=not asks_services and any(each.exempt_service_accounts for each in both),
            min_live=max(needed, default=None),
        )

    def lowered(self, after: Self) -> list[str]:
        """Return the names of the requirements that are less strict in `after` than in this object."""
        found = [name for name in ("second_person", "step_up") if getattr(self, name) and not getattr(after, name)]
        if after.exempt_service_accounts and not self.exempt_service_accounts:
            found.append("exempt_service_accounts")
        if (self.min_live or 0) > (after.min_live or 0):
            found.append("min_live")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerSet(Place):
    """A set to which an open event belonged earlier, with the values of that time. `set_id` is the row id."""

    set_id: int


def requirements_to_keep(requirements: Requirements) -> dict[str, Any] | None:
    """Return the requirements to store with a new event, as JSON; None if the set has no requirements."""
    return None if requirements == Requirements() else KeptRequirements(requirements).as_json


@dataclass(frozen=True, slots=True)
class KeptRequirements:
    """Requirements of an open event since its announcement. They apply until it ends, even if its set becomes less
    strict.

    `homes` are the former sets of the event.
    """

    requirements: Requirements = field(default_factory=Requirements)
    homes: tuple[FormerSet, ...] = ()

    @classmethod
    def read(cls, stored: Mapping[str, Any] | None) -> Self:
        """Return the requirements from the JSON column of an event; empty ones if the column is NULL."""
        if stored is None:
            return cls()
        homes = tuple(FormerSet(**each) for each in stored["homes"])
        return cls(Requirements(**stored["requirements"]), homes)

    def and_also(self, requirements: Requirements, homes: Iterable[FormerSet] = ()) -> Self:
        """Return a copy with the stricter of both requirements, and with further former sets."""
        known = dict.fromkeys([*self.homes, *homes])
        return type(self)(self.requirements.stricter(requirements), tuple(known))

    @property
    def as_json(self) -> dict[str, Any]:
        return asdict(self)
