"""A real gateway whose clock a test can set, on a database and a Redis of its own."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.databases import own_servers
from tests.gateway.conftest import shared
from tests.gateway_process import Gateway, running_gateway

WRONG_CLOCK = Path(__file__).parent / "wrong_clock"


def wrong_clock(file: Path) -> dict[str, str]:
    """The environment of a child whose clock is ahead by the seconds in this file."""
    path = os.pathsep.join(filter(None, [str(WRONG_CLOCK), os.environ.get("PYTHONPATH", "")]))
    return {"PYTHONPATH": path, "WRONG_CLOCK": str(file)}


@pytest.fixture(scope="package")
def one_gateway(
    migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Gateway, Callable[[float], None]]]:
    """The gateway, and what sets its clock: seconds by which it is ahead."""
    file = tmp_path_factory.mktemp("clock") / "ahead"
    file.write_text("0")
    with (
        own_servers(migrated_template, tmp_path_factory.mktemp("valkey")) as urls,
        running_gateway(urls, tmp_path_factory.mktemp("log"), environment=wrong_clock(file)) as running,
    ):
        yield running, lambda seconds: file.write_text(f"{seconds:g}") and None


@pytest.fixture
def gateway(
    one_gateway: tuple[Gateway, Callable[[float], None]], django_db_blocker: DjangoDbBlocker
) -> Iterator[Gateway]:
    with shared(one_gateway[0].urls, django_db_blocker):
        yield one_gateway[0]
        one_gateway[1](0)


@pytest.fixture
def set_clock(one_gateway: tuple[Gateway, Callable[[float], None]], gateway: Gateway) -> Callable[[float], None]:
    """Set the gateway's clock to so many seconds ahead; it is right again after the test."""
    return one_gateway[1]
