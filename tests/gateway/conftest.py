"""One real gateway for these tests, on a database and a Redis of their own, which the test process shares.

So a test may arrange with operations, act over HTTP, and look at rows. Each test uses machines of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from pytest_django.plugin import DjangoDbBlocker

from fleet.embedded import Urls
from fleet.operations import wake_up
from tests.databases import django_on, own_servers
from tests.gateway.enrolment import Installation, opened
from tests.gateway_process import Gateway, running_gateway


@pytest.fixture(scope="package")
def one_gateway(migrated_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway on a migrated database and a Valkey of its own."""
    with (
        own_servers(migrated_template, tmp_path_factory.mktemp("valkey")) as urls,
        running_gateway(urls, tmp_path_factory.mktemp("log")) as running,
    ):
        yield running


@contextmanager
def shared(urls: Urls, blocker: DjangoDbBlocker) -> Iterator[None]:
    """Django's connections and wake-ups of this process go to these servers, for the length of a block."""
    redis_url, settings.REDIS_URL = settings.REDIS_URL, urls.redis
    wake_up._local.line = None
    try:
        with blocker.unblock(), django_on(urlsplit(urls.database).path.lstrip("/")):
            yield
    finally:
        settings.REDIS_URL = redis_url
        wake_up._local.line = None


@pytest.fixture
def gateway(one_gateway: Gateway, django_db_blocker: DjangoDbBlocker) -> Iterator[Gateway]:
    """The gateway that the tests of this package share; Django in this process uses its servers, too."""
    with shared(one_gateway.urls, django_db_blocker):
        yield one_gateway


@pytest.fixture
def servers(gateway: Gateway) -> Urls:
    """The servers behind it."""
    return gateway.urls


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a gateway of one test writes its log."""
    return tmp_path


@pytest.fixture(scope="package")
def one_without_redis(one_gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway on the same database whose Redis address refuses connections."""
    nowhere = Urls(one_gateway.urls.database, "redis://127.0.0.1:1/0")
    with running_gateway(nowhere, tmp_path_factory.mktemp("log")) as running:
        yield running


@pytest.fixture
def without_redis(gateway: Gateway, one_without_redis: Gateway) -> Gateway:
    """The gateway without Redis that the tests of this package share."""
    return one_without_redis


@pytest.fixture(scope="package")
def one_installation(one_gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A second gateway on the same servers; it trusts a simulated Azure."""
    with opened(one_gateway.urls, tmp_path_factory.mktemp("installation")) as found:
        yield found


@pytest.fixture
def installation(gateway: Gateway, one_installation: Installation) -> Installation:
    """Where machines enrol as Azure attests them; the tests of this package share it, and no machine of it."""
    return one_installation
