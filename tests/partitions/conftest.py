"""A database of its own with partitions of a thousand rows: what is made and taken out here cannot be rolled back."""

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.databases import database, database_named, django_on

SIZE = 1000


@pytest.fixture
def own(migrated_template: str, django_db_blocker: DjangoDbBlocker, settings: Any) -> Iterator[str]:
    settings.PARTITION_ROWS = SIZE
    with database(migrated_template) as name, django_db_blocker.unblock(), django_on(name):
        yield database_named(name)
