"""The page about the simulator names everything that there is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from azure_simulator.documents import VERSIONS
from azure_simulator.faults import STAGES
from azure_simulator.stories import STORIES

PAGE = (Path(__file__).parents[2] / "docs" / "dev" / "simulator.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("word", [*VERSIONS, *STAGES, *STORIES])
def test_the_page_names_every_version_fault_and_story(word: str) -> None:
    assert f"`{word}`" in PAGE


def test_the_page_names_every_option() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "azure_simulator", "--help"], capture_output=True, text=True, check=True, timeout=10
    )
    options = set(re.findall(r"--[a-z-]+", done.stdout)) - {"--help"}
    assert len(options) == 9
    assert [option for option in sorted(options) if f"`{option}" not in PAGE] == []
