"""Keys of machines: new with each enrolment, handed over once, and made again of the master key to check calls."""

from datetime import datetime
from functools import lru_cache

from django.conf import settings

from fleet.domain.machines.keys import key_name, machine_key, next_generation
from fleet.models import Machine
from fleet.models.cipher import derived_keys

PURPOSE = "drydock machine keys"


def next_key(known: Machine | None, vm_id: str, *, now: datetime) -> tuple[str, int, str]:
    """The key of this machine's next generation in hex, that generation, and the name by which it is found."""
    generation = next_generation(known.key_generation if known is not None else 0, now)
    master = derived_keys(PURPOSE)[0]
    return machine_key(master, vm_id, generation).hex(), generation, key_name(master, vm_id, generation)


def possible_keys(vm_id: str, generation: int) -> tuple[tuple[bytes, str], ...]:
    """The key of that generation and its name: first by today's SECRET_KEY, then by those before it."""
    return _made(vm_id, generation, derived_keys(PURPOSE))


@lru_cache(maxsize=10_000)
def _made(vm_id: str, generation: int, masters: tuple[bytes, ...]) -> tuple[tuple[bytes, str], ...]:
    return tuple((machine_key(one, vm_id, generation), key_name(one, vm_id, generation)) for one in masters)


def bearers_count(now: datetime) -> bool:
    """Whether calls with a credential alone still count."""
    return settings.BEARER_UNTIL is None or now < settings.BEARER_UNTIL
