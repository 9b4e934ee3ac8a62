"""The folder of examples: the documents' six uses and one more, each with a test of its own, each described."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from drydock_agent.hooks.folder import list_hooks

from tests.hooks.conftest import EXAMPLES
from tests.processes import ROOT

# Those for caches run on other occasions, and are tested with a cache.
NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "redis")


def test_there_is_one_for_each_use() -> None:
    assert NAMES == [
        "checkpoint-and-restore",
        "drain-connections",
        "fail-over-a-primary",
        "kubernetes-node",
        "leave-a-load-balancer-pool",
        "log-the-event",
        "shut-down-gracefully",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_each_has_a_test_and_is_described(name: str) -> None:
    assert (Path(__file__).parent / f"test_{name.replace('-', '_')}.py").is_file()
    described = re.findall(
        r"examples/hooks/([a-z-]+)\)", (ROOT / "docs" / "admin" / "hooks.md").read_text(encoding="utf-8")
    )
    assert name in described


@pytest.mark.parametrize("name", NAMES)
def test_each_file_is_a_hook_that_the_agent_runs(name: str) -> None:
    files = sorted(path.name for path in (EXAMPLES / name).rglob("*") if path.is_file())
    hooks = [hook for phase in ("prepare", "recover") for hook in list_hooks(EXAMPLES / name, phase)]
    assert sorted(hook.name for hook in hooks) == files
    assert [hook.refused for hook in hooks if hook.refused] == []
