"""Fixtures that every test may use, and what the marked groups need.

The servers themselves are started by `tests.servers`, before this file is read. Databases are in `tests.databases`.
"""

import gc
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
import redis
from django.conf import settings

# Of these `make test` plays a few tests, or none: whole browsers, rings, demos, upgrades, rounds of kills, outages that
# last for seconds, programs of others, and tests of what plays the tests. `make test-long` plays them all.
LONG = (
    "tests/access/test_hostile_texts_of_rules_waves_and_drills.py",
    "tests/agent/backend/test_held_calls.py::test_a_whole_agent_says_it_all_with_the_call_that_it_holds",
    "tests/agent/redis/test_examples.py",
    "tests/agent/redis/test_listening.py::test_a_line_of_which_only_a_part_comes_is_found_as_well",
    "tests/agent/redis/test_listening.py::test_a_path_that_swallows_bytes_is_found_and_left",
    "tests/agent/redis/test_listening.py::test_a_server_that_cuts_each_connection_at_once_is_asked_less_and_less",
    "tests/agent/redis/test_listening.py::test_renewing_neither_loses_nor_doubles_a_line",
    "tests/api/test_docs_page_in_a_browser.py",
    "tests/browser/",
    "tests/demo/",
    "tests/embedded/test_embedded_servers.py::test_a_command_with_servers_finds_them_again",
    "tests/embedded/test_embedded_servers.py::test_both_restart_at_their_addresses",
    "tests/embedded/test_embedded_servers.py::test_however_it_is_ended_the_command_and_the_servers_end_too",
    "tests/embedded/test_embedded_servers.py::test_what_was_committed_outlives_kill_9_which_leaves_nothing_running",
    "tests/faults/test_no_granted_approval_is_lost.py",
    "tests/gateway/test_enrolment.py::test_guesses_of_join_tokens_are_slowed_and_keep_out_no_machine_at_the_same_address",
    "tests/gateway/test_metrics.py::test_unavailable_or_hanging_database_delays_no_scrape",
    "tests/gateway/test_open_calls_end_with_their_access.py::test_a_session_of_the_login_proxy_opens_nothing_without_it",
    "tests/gateway/test_outages.py",
    "tests/gateway/test_streams.py::test_a_stream_pings_ends_itself_or_at_sigterm_and_is_counted",
    "tests/hooks/test_examples.py::test_one_who_stays_is_a_failure_in_words",
    "tests/hooks/test_examples.py::test_sessions_that_stay_are_a_failure_in_words",
    "tests/packaging/test_kubernetes.py",
    "tests/repository/test_second_tries.py",
    "tests/ring/",
    "tests/simulator/test_redis_plays.py",
    "tests/upgrades/",
)
NOT_LONG = (
    "tests/browser/test_deciding_in_a_browser.py::test_a_click_can_be_undone_in_front_of_everybody",
    "tests/browser/test_everybody_can_use_it.py::test_a_long_queue_and_a_decision_can_be_used_by_everybody[chromium-zoomed]",
    "tests/browser/test_pages_follow_the_fleet.py::test_a_comment_that_is_being_typed_is_not_swept_away",
    "tests/browser/test_pages_follow_the_fleet.py::test_without_scripts_everything_can_still_be_done",
    "tests/demo/test_the_demo_starts_and_ends.py::test_a_taken_port_is_one_sentence",
    "tests/gateway/test_outages.py::test_one_locked_event_delays_no_report_and_no_order_of_the_others",
    "tests/gateway/test_outages.py::test_while_postgres_refuses_connections_agents_get_a_retry_answer",
    "tests/ring/test_once_round_the_ring.py::test_the_documented_live_migration",
)
# In CI these must run: a skip there means that nothing was tested.
NEVER_SKIPPED_IN_CI = ("browser", "debian", "deploy", "flow", "fault", "faults", "node")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(LONG) and not item.nodeid.startswith(NOT_LONG):
            item.add_marker(pytest.mark.long)
        if "one_gateway" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.flow)
    browser = [item for item in items if item.get_closest_marker("browser")]
    if browser:
        # Playwright leaves an event loop in this thread, also for the tests that follow; Django refuses models there.
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    if not shutil.which("chromium"):
        for item in browser:
            item.add_marker(pytest.mark.skip(reason="no chromium here; `make browser` installs it on Debian"))


def pytest_collection_finish() -> None:
    """Collect garbage seldom, and never again what was imported and collected so far: it stays until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def released_version() -> None:
    """Use the version that machines of the factories state: the version of a build is another one at each commit."""
    settings.VERSION = "0.1.0"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        for mark in NEVER_SKIPPED_IN_CI:
            if item.get_closest_marker(mark):
                reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
                report.outcome = "failed"
                report.longrepr = f"A test marked `{mark}` must not be skipped in CI. {reason}"
                break
    return report


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """Debian's own chromium: quiet, and without its sandbox only where root leaves no choice."""
    quiet = ["--disable-background-networking", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    return {**browser_type_launch_args, "executable_path": shutil.which("chromium"), "args": quiet}


# Here and not in `tests.databases`: only a fixture in a conftest.py takes precedence over that of pytest-django.
@pytest.fixture(scope="session")
def django_db_setup(own_database: str) -> None:
    """Replace the fixture that would migrate in each worker."""


@pytest.fixture
def fleet() -> Any:
    """A fleet without machines (`tests.factories.Fleet`)."""
    return import_module("tests.factories").Fleet()


@pytest.fixture
def event(fleet: Any) -> Any:
    """An event that all machines of the set `web` list (`tests.factories.announced`)."""
    return import_module("tests.factories").announced(fleet)


@pytest.fixture
def approval(fleet: Any, event: Any) -> Any:
    """An operator's approval of this event."""
    return fleet.approve()


@pytest.fixture
def redis_url() -> str:
    """The Redis of the test run, emptied."""
    url = os.environ["REDIS_URL"]
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the emptied Redis."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture(autouse=True)
def clock_without_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test without a database this process's time, whether or not an earlier test has read the database's."""
    # Django is not set up yet where this file is read as a plugin.
    clock = import_module("fleet.operations.clock")
    measure = clock.measure

    def measured_if_allowed() -> None:
        # What pytest-django raises.
        with suppress(RuntimeError):
            measure()

    monkeypatch.setattr(clock, "measure", measured_if_allowed)


@pytest.fixture
def product_passwords() -> None:
    """For a test with a sign-in at the real server: that is another process, which knows the product's hash only."""


@pytest.fixture(autouse=True)
def quick_passwords(request: pytest.FixtureRequest, settings: Any) -> None:
    """Use a fast hash: no attacker guesses passwords here, and the product's slow hash costs a second a person."""
    if "product_passwords" in request.fixturenames:
        return
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
