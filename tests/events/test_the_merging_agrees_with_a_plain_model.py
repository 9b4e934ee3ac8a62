"""Merging of reports: over random stories of one set, it agrees with a plain sequential model.

Machines poll, report late, repeat themselves, lose their spool or have it restored, fall silent and return. At the end
all are heard. `make soak` runs a million steps.
"""

import os
import random

import pytest
from django.db import transaction

from tests.events.model import World
from tests.searches import searched

STORY = 250


@pytest.mark.django_db
@pytest.mark.parametrize("part", range(4))
@searched("steps", share=400, whole=4_000, variable="MODEL_STEPS")
def test_every_story_ends_as_the_model_says(part: int, steps: int) -> None:
    first = int(os.environ.get("MODEL_SEED", "1"))
    length = min(STORY, steps // 4)
    for number in range(steps // 4 // length):
        seed = first + part * 1_000_000 + number
        with transaction.atomic():
            world = World(random.Random(seed))
            for step in range(length):
                world.step()
                if step % 25 == 24:
                    differences = world.compare()
                    assert not differences, f"seed {seed}, step {step}: {differences}"
            unheard = world.unheard()
            assert not unheard, f"seed {seed}: {unheard} speak and are not heard"
            differences = world.compare()
            assert not differences, f"seed {seed}, at its end: {differences}"
            transaction.set_rollback(True)
