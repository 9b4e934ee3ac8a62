"""Length of random searches: a small seeded share in `make test`, a longer one in `make test-long`, hours in
`make soak`.

Hypothesis searches by profile: both commands play its tests, `make test` the same few examples each time.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

# A busy machine draws its examples slowly, which says nothing about what is tested.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("share", max_examples=8, derandomize=True, **PATIENT)
settings.register_profile("whole", max_examples=50, **PATIENT)
settings.register_profile("soak", max_examples=5000, **PATIENT)
settings.load_profile("share")


def searched(name: str, *, share: int, whole: int, variable: str) -> pytest.MarkDecorator:
    """Plays a test twice, with the argument `name` at two lengths; the whole one is marked `long`.

    A length in the environment variable takes the place of both, as `make soak` and `make faults` have it.
    """
    named = os.environ.get(variable)
    if named:
        return pytest.mark.parametrize(name, [int(named)])
    return pytest.mark.parametrize(name, [share, pytest.param(whole, marks=pytest.mark.long)])
