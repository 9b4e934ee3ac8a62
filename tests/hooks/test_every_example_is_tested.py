"""The folder of examples: the documents' uses and one more, each with a test of its own, each described."""

import re

import pytest
from drydock_agent.hooks.folder import list_hooks

from tests.hooks.conftest import EXAMPLES
from tests.processes import ROOT

NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "redis")
# They run on other occasions, and are tested with a cache.
OF_CACHES = sorted(path.name for path in (EXAMPLES / "redis").iterdir())
TESTS = "".join(
    (ROOT / "tests" / folder / "test_examples.py").read_text("utf-8") for folder in ("hooks", "agent/redis")
)


def described(page: str, folder: str) -> list[str]:
    text = (ROOT / "docs" / "admin" / page).read_text(encoding="utf-8")
    return sorted(set(re.findall(rf"{folder}/([a-z-]+)\)", text)))


def test_there_is_one_for_each_use() -> None:
    uses = "checkpoint-and-restore drain-connections fail-over-a-primary leave-a-load-balancer-pool log-the-event"
    assert [*uses.split(), "shut-down-gracefully"] == NAMES
    assert OF_CACHES == ["circuit-breaker", "pause-writes", "refresh-topology", "replica-reads"]


def test_each_has_a_test_and_is_described() -> None:
    assert [name for name in [*NAMES, *OF_CACHES] if f'example("{name}"' not in TESTS] == []
    assert set(described("hooks.md", "examples/hooks")) >= set(NAMES)
    assert described("redis.md", "examples/hooks/redis") == OF_CACHES


@pytest.mark.parametrize("name", [*NAMES, *(f"redis/{name}" for name in OF_CACHES)])
def test_each_file_is_a_hook_that_the_agent_runs(name: str) -> None:
    files = sorted(path.name for path in (EXAMPLES / name).rglob("*") if path.is_file())
    hooks = [hook for phase in ("prepare", "recover", "redis") for hook in list_hooks(EXAMPLES / name, phase)]
    assert sorted(hook.name for hook in hooks) == files
    assert [hook.refused for hook in hooks if hook.refused] == []
