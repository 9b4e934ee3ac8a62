"""The agent's modules for Windows, imported with doubles of pywin32."""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import pytest

from tests.agent.windows.doubles import Windows, install

NAMES = ("platforms.windows", "platforms.windows_processes", "windows_service")


@dataclass
class Agent:
    """The doubles, and the agent's modules that use them."""

    machine: Windows
    windows: ModuleType
    windows_processes: ModuleType
    windows_service: ModuleType


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    machine = install(lambda name, module: monkeypatch.setitem(sys.modules, name, module))
    modules = [importlib.import_module(f"drydock_agent.{name}") for name in NAMES]
    yield Agent(machine, *modules)
    for process in machine.processes:
        process.kill()
        process.popen.wait()
    for name in NAMES:
        package, _, module = f"drydock_agent.{name}".rpartition(".")
        del sys.modules[f"drydock_agent.{name}"]
        delattr(sys.modules[package], module)
