"""One real gateway for each file of tests, on a database and a Redis of their own, which the test process shares.

So a test may arrange with operations, act over HTTP, and look at rows. Each test uses machines of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connection, connections
from pytest_django.plugin import DjangoDbBlocker

from fleet.embedded import Urls, valkey
from fleet.operations import bells
from tests.conftest import database_named, execute
from tests.running import Gateway, running_gateway


@contextmanager
def shared(urls: Urls, blocker: DjangoDbBlocker) -> Iterator[None]:
    """Django's connections and bells of this process go to these servers, for the length of a block."""
    described, redis_url = connection.settings_dict, settings.REDIS_URL
    name = described["NAME"]
    with blocker.unblock():
        connections.close_all()
        bells._local.line = None
        described["NAME"], settings.REDIS_URL = urlsplit(urls.database).path.lstrip("/"), urls.redis
        try:
            yield
        finally:
            connections.close_all()
            bells._local.line = None
            described["NAME"], settings.REDIS_URL = name, redis_url


@pytest.fixture(scope="module")
def servers(
    migrated_template: str, tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker
) -> Iterator[Urls]:
    """A migrated database and a Valkey for this file; Django in this process uses them too."""
    name = f"drydock_gateway_{tmp_path_factory.getbasetemp().name}_{tmp_path_factory.mktemp('gateway').name}"
    name = "".join(letter if letter.isalnum() else "_" for letter in name)[:60]
    with ExitStack() as stack:
        execute("CREATE DATABASE {} TEMPLATE {}", name, migrated_template)
        stack.callback(execute, "DROP DATABASE {} WITH (FORCE)", name)
        redis_url = stack.enter_context(valkey(tmp_path_factory.mktemp("valkey")))
        urls = Urls(database=database_named(name), redis=redis_url)
        stack.enter_context(shared(urls, django_db_blocker))
        yield urls


@pytest.fixture(scope="module")
def gateway(servers: Urls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that the tests of one file share."""
    with running_gateway(servers, tmp_path_factory.mktemp("log")) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a gateway of one test writes its log."""
    return tmp_path
