"""The PowerShell scripts. No PowerShell is here: they are parsed, and compared with the agent and with each other."""

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
import tree_sitter_powershell
from django.test import Client
from pytest_django import Settings
from tree_sitter import Language, Node, Parser

from fleet.dashboard import agent_package
from fleet.domain.machines.enrolment import install_lines
from tests.processes import ROOT

INSTALLER, TEST = agent_package.INSTALLER, ROOT / "examples/windows/Test-DrydockAgent.ps1"
SCRIPTS = {path.name: path.read_text("ascii") for path in (INSTALLER, TEST)}
DOCUMENT = ROOT / "docs/admin/windows.md"
AGENT = ROOT / "agents/drydock_agent"
# Programs and commands that Windows PowerShell 5.1 has on each Windows Server.
KNOWN = {
    "Add-Content", "ConvertFrom-Json", "ConvertTo-Json", "Copy-Item", "Disable-ScheduledTask", "Enable-ScheduledTask",
    "Get-Acl", "Get-ChildItem", "Get-CimInstance", "Get-Command", "Get-Content", "Get-Date", "Get-FileHash",
    "Get-Item", "Get-ItemProperty", "Get-Process", "Get-ScheduledTask", "Get-Service", "Get-WinEvent",
    "Invoke-WebRequest", "Join-Path", "New-Item", "New-Object", "Out-Host", "Out-Null", "Pop-Location",
    "Push-Location", "Read-Host", "Remove-Item", "Resolve-Path", "Restart-Service", "Select-Object", "Set-Content",
    "Set-StrictMode", "Start-Process", "Start-ScheduledTask", "Start-Service", "Start-Sleep", "Stop-Process",
    "Stop-ScheduledTask", "Stop-Service", "Test-Path", "Unregister-ScheduledTask", "Where-Object", "Write-Host",
    "Write-Verbose", "Write-Warning", "icacls.exe", "powershell.exe", "py.exe", "py",
}  # fmt: skip


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from walk(child)


def nodes(text: str) -> list[Node]:
    return list(walk(Parser(Language(tree_sitter_powershell.language())).parse(text.encode()).root_node))


def text_of(node: Node) -> str:
    return (node.text or b"").decode()


def faults(text: str) -> list[str]:
    """What is no PowerShell 5.1: the grammar knows no `??`, `?.` and `? :`; it lets `&&` and `||` pass."""
    wrong = [text_of(node)[:80] for node in nodes(text) if node.is_error or node.is_missing]
    return [*wrong, *re.findall(r"&&|\|\|", text)]


def commands(text: str) -> set[str]:
    return {text_of(node) for node in nodes(text) if node.type == "command_name"}


def functions(text: str) -> set[str]:
    return set(re.findall(r"^function ([\w-]+)", text, re.MULTILINE))


def parameters(text: str) -> set[str]:
    block = text[text.index("[CmdletBinding") : text.index("Set-StrictMode")]
    return set(re.findall(r"\[(?:string|switch|int)\] \$(\w+)", block))


def windows_line(certificates: str = "", address: str = "https://drydock.example/agent/install.ps1#sha256=0a1b") -> str:
    lines = install_lines(
        fleet_url="", join_token="", package="", current="", installer=address, certificates=certificates
    )
    return next(line.text for line in lines if line.platform == "windows")


@pytest.mark.parametrize("fault", ["$a = $b ?? 1", "$a ? 1 : 2", "$a?.b", "icacls.exe x && py", "if ($a) {"])
def test_newer_syntax_would_be_found(fault: str) -> None:
    assert faults("$a = 1\n") == [] and faults(fault)


@pytest.mark.parametrize("name", [*SCRIPTS, "line", "line with certificates"])
def test_scripts_are_powershell_5_1_and_use_commands_that_exist(name: str) -> None:
    lines = {"line": windows_line(), "line with certificates": windows_line("-----BEGIN CERTIFICATE-----\nMIIB+/8=")}
    text = {**SCRIPTS, **lines}[name]
    assert faults(text) == []
    assert commands(text) - functions(text) - KNOWN == set()
    # A native program that fails stops nothing by itself.
    unchecked = re.findall(r"^\s*(?:icacls|py)\.exe .*", SCRIPTS[INSTALLER.name], re.MULTILINE)
    assert unchecked == []


def test_the_installer_stores_no_token_on_a_command_line() -> None:
    assert "JoinToken" not in parameters(SCRIPTS[INSTALLER.name])
    assert "join" not in windows_line().lower()


def test_parameters_that_others_use_exist() -> None:
    known = parameters(SCRIPTS[INSTALLER.name])
    assert known == {"Server", "JoinTokenFile", "NoJoinToken", "Bundle", "CaFile", "Python", "Remove", "Purge"}
    given = re.search(r"\$installation = @\{(.*?)\}", SCRIPTS[TEST.name])
    assert given
    used = {*re.findall(r"(\w+) = ", given[1]), *re.findall(r"\$installation\.(\w+)", SCRIPTS[TEST.name])}
    others = [windows_line("PEM"), *(path.read_text() for path in (DOCUMENT, ROOT / "requirements/bundle.py"))]
    used |= {word for text in others for word in re.findall(r"(?<=[` ])-([A-Z]\w+)", text)}
    # PowerShell's own.
    used -= {"File", "ExecutionPolicy", "NoProfile", "Encoding", "ItemType", "Force"}
    used -= {"UseBasicParsing", "OutFile", "Uri"}
    assert used == known


def test_names_and_folders_are_those_of_the_agent() -> None:
    service, windows = ((AGENT / f"{name}.py").read_text() for name in ("windows_service", "platforms/windows"))
    installer, test = SCRIPTS[INSTALLER.name], SCRIPTS[TEST.name]
    name = re.search(r'^NAME = "(\w+)"', service, re.MULTILINE)
    assert name and all(f"$ServiceName = '{name[1]}'" in text for text in SCRIPTS.values())
    trusted = set(re.findall(r'"(S-1-5-[\d-]+)"', windows))
    assert set(re.findall(r"'(S-1-5-[\d-]+)'", installer)) == trusted and len(trusted) == 3
    assert r'"\Drydock"' in windows and all("Join-Path $env:ProgramData 'Drydock'" in text for text in SCRIPTS.values())
    for folder in ("Agent", "Hooks", "agent.toml"):
        assert rf'r"\{folder}"' in windows and f"'{folder}'" in installer
    assert r"'Logs\agent.log'" in test and '"Logs"' in service and '"agent.log"' in service


@pytest.mark.django_db
def test_the_backend_serves_the_script_with_its_address_and_the_hashes(settings: Settings) -> None:
    settings.BASE_URL = "https://o'hara.example"
    answer = Client().get("/agent/install.ps1")
    assert answer.status_code == 200 and answer["Content-Type"] == "text/plain; charset=utf-8"
    address = agent_package.installer_address()
    assert address == f"https://o'hara.example/agent/install.ps1#sha256={sha256(answer.content).hexdigest()}"
    line = windows_line(address=address)
    assert sha256(answer.content).hexdigest() in line and "'https://o''hara.example/agent/install.ps1'" in line
    text = answer.content.decode("ascii")
    package = agent_package.package()
    assert faults(text) == [] and "@SERVER@" not in text and "@PACKAGE@" not in text
    assert f"/agent/{package.name}#sha256={package.digest}'" in text
    assert "$Server = 'https://o''hara.example'" in text


def test_the_bundled_script_asks_for_the_address() -> None:
    text = INSTALLER.read_text("ascii")
    # Neither mark is an address or a package with a hash, which the script requires.
    assert "= '@SERVER@'" in text and "= '@PACKAGE@'" in text
    assert "$Server -notmatch '^https?://" in text and "$Package -notmatch '#sha256='" in text


def test_the_wheels_of_the_agent_for_windows_are_pinned() -> None:
    lock = Path(ROOT / "requirements/agent.txt").read_text()
    assert re.search(r"^pywin32==\S+ ; .*sys_platform == 'win32'", lock, re.MULTILINE)
