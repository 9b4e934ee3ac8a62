"""Windows: both platforms have the same functions, nothing of POSIX is imported, and permissions are checked."""

import inspect
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from drydock_agent.hooks import folder
from drydock_agent.metadata_service import discovery
from drydock_agent.platforms import posix, posix_processes

from tests.agent.windows.conftest import Agent
from tests.agent.windows.doubles import ADMINISTRATORS, FULL, INSTALLER, READ, SYSTEM, USERS, WRITE_DATA, Permissions

IMPORTS = """
import importlib, os, pkgutil, signal, socket, sys, time
from tests.agent.windows import doubles
from tests.agent.test_portability import POSIX_NAMES, POSIX_ONLY

machine = doubles.pretend()
import drydock_agent
for name in (*POSIX_ONLY, "redis", "cryptography"):
    sys.modules[name] = None
for module, names in POSIX_NAMES.items():
    for name in names:
        getattr(sys.modules[module], name, None) and delattr(sys.modules[module], name)
os.name = "nt"
for found in pkgutil.walk_packages(drydock_agent.__path__, "drydock_agent."):
    if not found.name.endswith((".posix", ".posix_processes", ".config_map", ".subscription", ".ed25519")):
        importlib.import_module(found.name)
from drydock_agent.platforms import processes, system
print(system.__name__, processes.Child.__module__)
print(*[name for name in sys.modules if name.startswith("drydock_agent.platforms.posix")])
"""


def test_every_module_can_be_imported_on_windows() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    chosen, posix_modules = done.stdout.splitlines()
    assert chosen == "drydock_agent.platforms.windows drydock_agent.platforms.windows_processes"
    assert posix_modules == ""


def signatures(module: ModuleType) -> dict[str, object]:
    found = {
        name: inspect.signature(value)
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }
    return {name: [*shape.parameters] for name, shape in found.items()}


def test_both_platforms_have_the_same_functions(agent: Agent) -> None:
    on_windows = signatures(agent.windows)
    assert on_windows.pop("data_dir") == ["environ"]
    # It keeps its result, so it is no plain function there.
    assert {**on_windows, "boot_id": []} == signatures(posix)
    constants = {name for name in vars(posix) if name.isupper()}
    assert constants <= set(vars(agent.windows))
    assert signatures(agent.windows_processes) == signatures(posix_processes)
    for name in ("end", "release", "__init__"):
        here, there = (getattr(module.Child, name) for module in (posix_processes, agent.windows_processes))
        assert [*inspect.signature(here).parameters] == [*inspect.signature(there).parameters]


@pytest.mark.parametrize(
    ("permissions", "reason"),
    [
        (Permissions(), ""),
        (Permissions(owner=SYSTEM), ""),
        (Permissions(owner=INSTALLER), ""),
        (Permissions(owner=USERS), r"belongs to BUILTIN\Users, not to SYSTEM, Administrators or TrustedInstaller"),
        (Permissions(owner="S-1-5-21-1"), "belongs to S-1-5-21-1, not to SYSTEM, Administrators or TrustedInstaller"),
        (Permissions(entries=None), "can be written by everybody"),
        (Permissions(entries=[((0, 0), READ, USERS)]), ""),
        (Permissions(entries=[((0, 0), READ | WRITE_DATA, USERS)]), r"can be written by BUILTIN\Users"),
        (Permissions(entries=[((0, 0), 0x40000, USERS)]), r"can be written by BUILTIN\Users"),
        # A right that only what is created inside gets, one that is denied, and the owner's.
        (Permissions(entries=[((0, 8 | 3), FULL, "S-1-3-0")]), ""),
        (Permissions(entries=[((1, 0), FULL, USERS)]), ""),
        (Permissions(entries=[((0, 0), FULL, "S-1-3-4")]), ""),
        (Permissions(entries=[((5, 0), FULL, None, None, USERS)]), r"can be written by BUILTIN\Users"),
        (Permissions(entries=[NotImplemented]), "has permissions that cannot be read (ACE type not supported)"),
    ],
)
def test_only_administrators_change_hooks(agent: Agent, tmp_path: Path, permissions: Permissions, reason: str) -> None:
    agent.machine.permissions[str(tmp_path)] = permissions
    assert agent.windows.unsafe_reason(tmp_path) == reason


def test_an_open_hook_is_refused_and_others_run(agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "system", agent.windows)
    phase = tmp_path / "prepare.d"
    phase.mkdir()
    for name in ("10-a.ps1", "20-b.cmd", "30-c.exe", "40-d.BAT", "README.txt", "50-e.sh"):
        (phase / name).touch()
    agent.machine.allow(phase / "20-b.cmd", ADMINISTRATORS, ((0, 0), FULL, USERS))
    # A link is as safe as its target.
    (phase / "15-link.cmd").symlink_to(phase / "20-b.cmd")
    found = folder.list_hooks(tmp_path, "prepare")
    assert [hook.name for hook in found] == ["10-a.ps1", "15-link.cmd", "20-b.cmd", "30-c.exe", "40-d.BAT"]
    refused = [hook.refused for hook in found if hook.refused]
    assert refused == [
        rf"{name} is not run: it can be written by BUILTIN\Users." for name in ("15-link.cmd", "20-b.cmd")
    ]
    assert folder.list_hooks(tmp_path, "recover") == []
    agent.machine.allow(tmp_path, USERS)
    with pytest.raises(folder.FolderRefused, match="belongs to BUILTIN"):
        folder.list_hooks(tmp_path, "prepare")


def test_interpreters_are_those_of_the_system(agent: Agent) -> None:
    system = r"C:\Windows\system32"
    powershell = system + r"\WindowsPowerShell\v1.0\powershell.exe"
    options = ["-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-File"]
    assert agent.windows.hook_command(Path("10-a.ps1")) == [powershell, *options, "10-a.ps1"]
    assert agent.windows.hook_command(Path("10-a.BAT")) == [system + r"\cmd.exe", "/d", "/s", "/c", "10-a.BAT"]
    assert agent.windows.hook_command(Path("10-a.exe")) == ["10-a.exe"]


def test_folders_are_in_program_data_and_new_ones_for_system_and_administrators(agent: Agent, tmp_path: Path) -> None:
    environ = {"PROGRAMDATA": r"D:\Data"}
    assert agent.windows.state_dir(environ) == r"D:\Data\Drydock\Agent"
    assert agent.windows.hooks_dir(environ) == r"D:\Data\Drydock\Hooks"
    assert agent.windows.settings_file(environ) == ""
    there = Path(f"{tmp_path}\\Drydock\\agent.toml")
    there.touch()
    assert agent.windows.settings_file({"PROGRAMDATA": str(tmp_path)}) == str(there)
    for _ in range(2):
        agent.windows.make_private_folder(tmp_path / "Drydock" / "Agent")
    assert [Path(path).name for path in agent.machine.created] == ["Drydock", "Agent"]
    assert set(agent.machine.created.values()) == {agent.windows.PRIVATE}
    assert agent.windows.PRIVATE.startswith("D:P"), "nothing is inherited from ProgramData"
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        agent.windows.make_private_folder(tmp_path / "file" / "folder")


def test_the_id_of_a_boot_lasts_until_the_registry_forgets_it(agent: Agent) -> None:
    first = agent.windows.boot_id()
    agent.windows.boot_id.cache_clear()
    assert agent.windows.boot_id() == first != ""
    agent.machine.registry.clear()
    agent.windows.boot_id.cache_clear()
    assert agent.windows.boot_id() not in ("", first)


def test_discovery_states_that_the_system_keeps_its_port(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "system", agent.windows)

    def refuse(sock: socket.socket, address: tuple[str, int]) -> None:
        raise PermissionError(10013, "An attempt was made to access a socket in a way forbidden")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(discovery.NotAllowed, match=r"the DHCP client of Windows keeps.*; or set DRYDOCK_IMDS_URL"):
        discovery.query_dhcp(0.1)
