"""The folder of examples: the documents' uses and one more, each with a test of its own, each described."""

import re

import pytest
from drydock_agent.hooks.folder import list_hooks
from drydock_agent.hooks.process import GRACE_SECONDS, STOP_GRACE_SECONDS
from drydock_agent.hooks.progress import OUTPUT_CHARACTERS
from drydock_agent.platforms import posix
from drydock_agent.settings.load import SPEC

from tests.processes import ROOT

EXAMPLES = ROOT / "examples" / "hooks"
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


def test_numbers_of_the_page_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "admin" / "hooks.md").read_text(encoding="utf-8")
    assert f"last {OUTPUT_CHARACTERS:,} characters" in page
    assert f"{GRACE_SECONDS:g} seconds later" in page
    assert f"{STOP_GRACE_SECONDS:g} seconds later" in page
    assert "hooks_dir" in SPEC and posix.hooks_dir({}) in page
    assert r"%ProgramData%\Drydock\Hooks" in page
