"""Agent installation: one line for each platform, quoted and carried out here, from the backend and no index; and the
scripts for Windows.
"""

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import tree_sitter_powershell
from django.test import Client
from pytest_django import Settings
from tree_sitter import Language, Node, Parser

from fleet.dashboard import agent_package
from fleet.domain.machines.enrolment import CA_FILE, SETTINGS_FILE, UNIT, UNIT_FILE, install_lines
from fleet.environment import certificates as form
from fleet.wording.machines import PLATFORMS
from tests.certificates import Authority
from tests.processes import ROOT

pytestmark = pytest.mark.django_db

URL, TOKEN = "https://desk.example.org", "join_abc-DEF_123"

PACKAGE = f"drydock-agent[signed] @ {URL}/agent/drydock_agent-1-py3-none-any.whl#sha256=0a1b"

CURRENT = f"{URL}/agent/requirements.txt"
INSTALLER = f"{URL}/agent/install.ps1#sha256=0a1b"
CERTIFICATES = "-----BEGIN CERTIFICATE-----\nMIIB+/8=\n-----END CERTIFICATE-----"


def lines_of(fleet_url: str = URL, join_token: str = TOKEN, **stated: str) -> dict[str, str]:
    usual = {"package": PACKAGE, "current": CURRENT, "installer": INSTALLER, "certificates": ""}
    lines = install_lines(fleet_url=fleet_url, join_token=join_token, **usual | stated)
    # Only the script for Windows asks for the token, which its command does not contain.
    assert [line.token for line in lines if line.token] == [join_token]
    return {line.platform: line.text for line in lines}


LINES = lines_of()


def test_each_platform_has_a_line_and_a_name_and_only_scripts_have_two() -> None:
    assert set(LINES) == set(PLATFORMS)
    assert {name: text.count("\n") for name, text in LINES.items()} == {
        "linux": 0, "windows": 0, "azure-cli": 0, "cloud-init": 1, "custom-script": 0, "other": 1,
    }  # fmt: skip
    for name, text in LINES.items():
        assert URL in text and (TOKEN in text) == (name != "windows")


@dataclass
class Pretended:
    """A folder that stands for the root of a machine, with programs that only say that they were called."""

    root: Path
    environment: dict[str, str]

    def path(self, name: str) -> Path:
        return Path(f"{self.root}{name}")

    def moved(self, text: str) -> str:
        return text.replace("/etc/", f"{self.root}/etc/").replace("/opt/", f"{self.root}/opt/")

    def run(self, script: str, **options: Any) -> None:
        subprocess.run(["/bin/sh", "-c", self.moved(script)], check=True, **{"env": self.environment, **options})


@pytest.fixture
def pretended(tmp_path: Path) -> Pretended:
    programs = tmp_path / "programs"
    for folder in (programs, tmp_path / "etc/systemd/system", tmp_path / "opt/drydock-agent/bin"):
        folder.mkdir(parents=True)
    note = f'echo "$(basename "$0") $*" >> {tmp_path}/calls'
    agent = tmp_path / "opt/drydock-agent/bin"
    scripts = dict.fromkeys((programs / "python3", programs / "systemctl", agent / "pip"), note)
    scripts |= {agent / "python": 'echo "public ones: $*"', programs / "sudo": 'exec "$@"'}
    for path, script in scripts.items():
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    return Pretended(tmp_path, {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})


@pytest.mark.parametrize("platform", ["linux", "cloud-init", "custom-script", "azure-cli"])
def test_install_lines_run_in_a_shell_and_protect_the_token(pretended: Pretended, platform: str) -> None:
    root, text = pretended.root, LINES[platform]
    if platform == "azure-cli":
        words = shlex.split(text)
        assert words[: words.index("--scripts")][-2:] == ["--command-id", "RunShellScript"]
        text = words[-1]
    elif platform == "custom-script":
        text = json.loads(shlex.split(text)[-1])["commandToExecute"]
    for _ in range(2):
        pretended.run(text, umask=0o022)
    settings = pretended.path(SETTINGS_FILE)
    assert settings.read_text() == f"DRYDOCK_FLEET_URL={URL}\nDRYDOCK_JOIN_TOKEN={TOKEN}\n"
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    assert pretended.path(UNIT_FILE).read_text() == pretended.moved(UNIT)
    calls = (root / "calls").read_text().splitlines()
    # Only the model of a scale set outlasts the backend's version.
    package = f"-r {CURRENT}" if platform in ("cloud-init", "custom-script") else PACKAGE
    once = [f"python3 -m venv {root}/opt/drydock-agent", f"pip install --quiet {package}"]
    once += ["systemctl daemon-reload", "systemctl enable drydock-agent", "systemctl restart drydock-agent"]
    assert calls == once * 2


def test_private_authorities_are_stored_for_pip_and_the_agent(pretended: Pretended) -> None:
    root, texts = pretended.root, lines_of(certificates=CERTIFICATES)
    pretended.run(texts["linux"], umask=0o077)
    stored = pretended.path(CA_FILE)
    # The agent is not root.
    assert (stored.read_text(), stat.S_IMODE(stored.stat().st_mode)) == (f"{CERTIFICATES}\n", 0o644)
    assert pretended.path(SETTINGS_FILE).read_text().endswith(f"\nDRYDOCK_CA_FILE={stored}\n")
    bundle = root / "opt/drydock-agent/pip-ca.pem"
    assert bundle.read_text() == f"public ones: -m pip._vendor.certifi --contents\n{CERTIFICATES}\n"
    assert (root / "opt/drydock-agent/pip.conf").read_text() == f"[global]\ncert = {bundle}\n"
    windows = texts["windows"]
    quoted = ", ".join(f"'{line}'" for line in CERTIFICATES.splitlines())
    assert rf"Set-Content -Encoding ascii 'C:\Program Files\Drydock Agent\ca.pem' {quoted}; " in windows
    assert windows.endswith(r" -CaFile 'C:\Program Files\Drydock Agent\ca.pem'") and "Invoke-WebRequest" not in windows
    assert texts["other"].endswith(f"\nDRYDOCK_CA_FILE={CA_FILE}")


@pytest.mark.long
def test_agent_is_installed_from_a_backend_with_a_private_authority(pretended: Pretended, settings: Settings) -> None:
    root = pretended.root
    shutil.rmtree(root / "opt")
    (root / "programs" / "python3").unlink()
    authority, found = Authority(root), agent_package.package()
    (root / "agent").mkdir()
    (root / "agent" / found.name).write_bytes(found.content)
    handler = partial(SimpleHTTPRequestHandler, directory=str(root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = authority.server("127.0.0.1").wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings.BASE_URL = f"https://127.0.0.1:{server.server_port}"
        certificates = form.read(str(authority.path))
        text = lines_of(settings.BASE_URL, package=agent_package.requirement(), certificates=certificates)["linux"]
        # As `sudo` does; its libraries are not here.
        alone = {name: pretended.environment[name] for name in ("PATH", "HOME")} | {"PIP_NO_DEPS": "1"}
        pretended.run(text, env=alone)
        server.shutdown()
    show = "import importlib.metadata as m; print(m.version('drydock-agent'))"
    said = subprocess.check_output([root / "opt/drydock-agent/bin/python", "-c", show], text=True)
    assert said.strip() == found.name.split("-")[1]


def test_what_a_shell_would_take_for_its_own_stays_text(pretended: Pretended) -> None:
    hostile = "https://x.example/$(touch${IFS}owned)`id`'\"%s\\"
    text = lines_of(hostile, "t", package=f"agent @ {hostile}")["linux"]
    pretended.run(text, cwd=pretended.root)
    assert pretended.path(SETTINGS_FILE).read_text().splitlines()[0] == f"DRYDOCK_FLEET_URL={hostile}"
    assert not (pretended.root / "owned").exists()


def test_one_address_names_the_current_agent_with_its_hash_whatever_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def named() -> tuple[str, str]:
        answer = Client().get("/agent/requirements.txt")
        assert answer["Content-Type"] == "text/plain" and answer["Cache-Control"] == "no-cache"
        text = answer.content.decode()
        assert text == f"{agent_package.requirement()}\n"
        found = re.fullmatch(r"drydock-agent\[signed\] @ http\S+?(/agent/\S+\.whl)#sha256=([0-9a-f]{64})\n", text)
        # Without a login.
        assert found and sha256(Client().get(found[1]).content).hexdigest() == found[2]
        return found[1], found[2]

    before = named()
    newer = agent_package.AgentPackage("drydock_agent-99-py3-none-any.whl", b"newer", sha256(b"newer").hexdigest())
    monkeypatch.setattr(agent_package, "package", lambda: newer)
    assert named() == (f"/agent/{newer.name}", newer.digest)
    # An older one is no longer there.
    assert Client().get(before[0]).status_code == 404


def test_packages_have_addresses_that_never_change_and_sums(
    ada: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    packages = {
        "drydock-agent_amd64.deb": "application/vnd.debian.binary-package",
        "drydock-agent.x86_64.rpm": "application/x-rpm",
        "drydock-agent_amd64.deb.cdx.json": "application/vnd.cyclonedx+json",
    }
    for name in packages:
        (folder / name).write_text(name)
    (tmp_path / "drydock-agent_secret.deb").write_text("elsewhere")
    monkeypatch.setattr(agent_package, "PACKAGES", folder)
    agent_package.sums.cache_clear()
    try:
        answer = Client().get("/agent/SHA256SUMS")
        stated = dict(reversed(line.split()) for line in answer.content.decode().splitlines())
        assert set(stated) == {*packages, agent_package.package().name} and answer["Cache-Control"] == "no-cache"
        for name, digest in stated.items():
            answer = Client().get(f"/agent/{name}")
            assert (answer.status_code, sha256(answer.getvalue()).hexdigest()) == (200, digest)
            assert answer["Content-Type"] == packages.get(name, "application/zip")
        page = ada.post("/join-tokens/make/", {"comment": "for web", "expires_in_seconds": "86400"}).content.decode()
        assert set(re.findall('href="/agent/([^"]+)"', page)) == {*list(packages)[:2], "SHA256SUMS"}
        for name in ("..%2Fdrydock-agent_secret.deb", "drydock-agent_secret.deb", "drydock-agent_arm64.deb"):
            assert Client().get(f"/agent/{name}").status_code in (302, 404)
        for name in ("drydock_agent-0.0.0-py3-none-any.whl", "x", "requests-2.32-py3-none-any.whl"):
            assert Client().get(f"/agent/{name}").status_code == 404
    finally:
        agent_package.sums.cache_clear()


def test_each_process_makes_the_same_bytes() -> None:
    first = agent_package.package()
    agent_package.package.cache_clear()
    assert agent_package.package() == first


def test_no_line_names_a_package_of_an_index(ada: Client, settings: Settings) -> None:
    page = ada.post("/join-tokens/make/", {"comment": "for web", "expires_in_seconds": "86400"})
    body = page.content.decode()
    assert len(PLATFORMS) > 2 and "/agent/drydock_agent-" in body
    assert bare_names(body) == [] and CA_FILE not in body
    settings.AGENT_CA_FILE = CERTIFICATES
    page = ada.post("/join-tokens/make/", {"comment": "for web", "expires_in_seconds": "86400"})
    assert "pip.conf" in page.content.decode() and CA_FILE in page.content.decode()
    documents = [*ROOT.glob("*.md"), *ROOT.glob("agents/*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Dockerfile"]
    documents += [path for path in (ROOT / "examples").rglob("*") if path.is_file()]
    assert len(documents) > 30
    assert {path.name: found for path in documents if (found := bare_names(path.read_text()))} == {}


def test_the_agent_carries_the_licence_of_the_whole() -> None:
    assert (ROOT / "agents" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def bare_names(text: str) -> list[str]:
    """Our names where an installer is given one that it would ask an index for: no address, and no file."""
    lines = re.findall(
        r"\b(?:pip3?(?:\.exe)?|pipx|uv tool|uv pip|uv|poetry)['\"]? (?:install|run|add)\b([^`;&|\n]*)", text
    )
    words = re.compile(r"(?<![\w./-])drydock(?:-fleet|-agent)?(?:\[[\w,]*\])?(?![\w.[-])(?!\s*@)")
    return [found for line in lines for found in words.findall(line)]


def test_a_bare_name_would_be_found() -> None:
    for bare in ("drydock", "--quiet 'drydock-agent[signed]'", "-U drydock-fleet"):
        assert len(bare_names(f"pip.exe' install {bare}")) == 1, bare
    named = ("'drydock-agent[signed] @ https://x/y.whl'", "-r drydock-fleet.txt")
    for well in (*(f"pip install {package}" for package in named), "drydock-fleet web"):
        assert bare_names(well) == [], well


# The PowerShell scripts. No PowerShell is here: they are parsed, and compared with the agent and with each other.

SCRIPT, TEST = agent_package.INSTALLER, ROOT / "examples/windows/Test-DrydockAgent.ps1"
SCRIPTS = {path.name: path.read_text("ascii") for path in (SCRIPT, TEST)}
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


@pytest.mark.parametrize("fault", ["$a = $b ?? 1", "$a ? 1 : 2", "$a?.b", "icacls.exe x && py", "if ($a) {"])
def test_newer_syntax_would_be_found(fault: str) -> None:
    assert faults("$a = 1\n") == [] and faults(fault)


@pytest.mark.parametrize("name", [*SCRIPTS, "line", "line with certificates"])
def test_scripts_are_powershell_5_1_and_use_commands_that_exist(name: str) -> None:
    with_certificates = lines_of(certificates=CERTIFICATES)["windows"]
    text = {**SCRIPTS, "line": LINES["windows"], "line with certificates": with_certificates}[name]
    assert faults(text) == []
    assert commands(text) - functions(text) - KNOWN == set()
    # A native program that fails stops nothing by itself.
    unchecked = re.findall(r"^\s*(?:icacls|py)\.exe .*", SCRIPTS[SCRIPT.name], re.MULTILINE)
    assert unchecked == []


def test_the_installer_stores_no_token_on_a_command_line() -> None:
    assert "JoinToken" not in parameters(SCRIPTS[SCRIPT.name])
    assert "join" not in LINES["windows"].lower()


def test_parameters_that_others_use_exist() -> None:
    known = parameters(SCRIPTS[SCRIPT.name])
    assert known == {"Server", "JoinTokenFile", "NoJoinToken", "Bundle", "CaFile", "Python", "Remove", "Purge"}
    given = re.search(r"\$installation = @\{(.*?)\}", SCRIPTS[TEST.name])
    assert given
    used = {*re.findall(r"(\w+) = ", given[1]), *re.findall(r"\$installation\.(\w+)", SCRIPTS[TEST.name])}
    others = [path.read_text() for path in (DOCUMENT, ROOT / "requirements/bundle.py")]
    others.append(lines_of(certificates="PEM")["windows"])
    used |= {word for text in others for word in re.findall(r"(?<=[` ])-([A-Z]\w+)", text)}
    # PowerShell's own.
    used -= {"File", "ExecutionPolicy", "NoProfile", "Encoding", "ItemType", "Force"}
    used -= {"UseBasicParsing", "OutFile", "Uri"}
    assert used == known


def test_names_and_folders_are_those_of_the_agent() -> None:
    service, windows = ((AGENT / f"{name}.py").read_text() for name in ("windows_service", "platforms/windows"))
    installer, test = SCRIPTS[SCRIPT.name], SCRIPTS[TEST.name]
    name = re.search(r'^NAME = "(\w+)"', service, re.MULTILINE)
    assert name and all(f"$ServiceName = '{name[1]}'" in text for text in SCRIPTS.values())
    trusted = set(re.findall(r'"(S-1-5-[\d-]+)"', windows))
    assert set(re.findall(r"'(S-1-5-[\d-]+)'", installer)) == trusted and len(trusted) == 3
    assert r'"\Drydock"' in windows and all("Join-Path $env:ProgramData 'Drydock'" in text for text in SCRIPTS.values())
    for folder in ("Agent", "Hooks", "agent.toml"):
        assert rf'r"\{folder}"' in windows and f"'{folder}'" in installer
    assert r"'Logs\agent.log'" in test and '"Logs"' in service and '"agent.log"' in service


def test_the_backend_serves_the_script_with_its_address_and_the_hashes(settings: Settings) -> None:
    settings.BASE_URL = "https://o'hara.example"
    answer = Client().get("/agent/install.ps1")
    assert answer.status_code == 200 and answer["Content-Type"] == "text/plain; charset=utf-8"
    address = agent_package.installer_address()
    assert address == f"https://o'hara.example/agent/install.ps1#sha256={sha256(answer.content).hexdigest()}"
    line = lines_of(installer=address)["windows"]
    assert sha256(answer.content).hexdigest() in line and "'https://o''hara.example/agent/install.ps1'" in line
    assert faults(line) == []
    text = answer.content.decode("ascii")
    package = agent_package.package()
    assert faults(text) == [] and "@SERVER@" not in text and "@PACKAGE@" not in text
    assert f"/agent/{package.name}#sha256={package.digest}'" in text
    assert "$Server = 'https://o''hara.example'" in text


def test_the_bundled_script_asks_for_the_address() -> None:
    text = SCRIPT.read_text("ascii")
    # Neither mark is an address or a package with a hash, which the script requires.
    assert "= '@SERVER@'" in text and "= '@PACKAGE@'" in text
    assert "$Server -notmatch '^https?://" in text and "$Package -notmatch '#sha256='" in text


def test_the_wheels_of_the_agent_for_windows_are_pinned() -> None:
    lock = Path(ROOT / "requirements/agent.txt").read_text()
    assert re.search(r"^pywin32==\S+ ; .*sys_platform == 'win32'", lock, re.MULTILINE)
