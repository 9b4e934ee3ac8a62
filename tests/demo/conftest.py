"""The demo in a process of its own, on free ports, with one folder.

It takes long to start, so tests share it until one of them ends it.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.processes import PYTHON, Process, free_port, start, wait_for


@pytest.fixture(scope="package")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    # As for a visitor: the demo brings its own servers and its own key.
    own = dict.fromkeys(("DATABASE_URL", "REDIS_URL", "SECRET_KEY"), "")
    ports = {name: str(free_port()) for name in ("PORT", "SIMULATOR_PORT")}
    return {**own, **ports, "DEMO_DIR": str(tmp_path_factory.mktemp("demo")), "DEMO_STORY": "off"}


@pytest.fixture(scope="package")
def demos(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Process]]:
    """The demo that runs, or a new one on the same folder where it has ended."""
    processes: list[Process] = []

    def running() -> Process:
        if not processes or processes[-1].child.poll() is not None:
            log = tmp_path_factory.mktemp("log") / "demo.log"
            processes.append(start([PYTHON, "manage.py", "demo"], environment=environment, log=log))
            process = processes[-1]
            wait_for(lambda: says_how_to_sign_in(process), seconds=180, what="a demo that answers", every=0.2)
        return processes[-1]

    yield running
    for process in processes:
        process.kill()


@pytest.fixture
def demo(demos: Callable[[], Process]) -> Process:
    return demos()


def says_how_to_sign_in(process: Process) -> bool:
    assert process.child.poll() is None, process.said()
    return "Ctrl-C ends it" in process.said()
