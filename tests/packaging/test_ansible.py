"""The Ansible role: lint, and runs on this machine. Only the tasks of the service manager are not run."""

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from fleet.dashboard.agent_package import pack
from fleet.domain.machines.enrolment import SETTINGS_FILE, UNIT
from tests.packaging.deploy import DEPLOY, PROGRAMS, program

pytestmark = [pytest.mark.long, pytest.mark.deploy]

TOKEN = "join_abc-DEF_123"
# Run by systemd only, which the test leaves alone.
NOT_RUN = {"Start the agent", "Restart the agent"}
PLAY = "- {hosts: all, gather_facts: false, roles: [drydock_agent]}\n"


class Site(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        return


class Machine:
    """This machine, with folders of its own for what the role writes, and a backend that serves its agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backend = folder / "site" / "agent"
        self.settings = folder / "etc" / "drydock-agent.env"
        self.home = folder / "opt" / "drydock-agent"
        for path in (self.backend, self.settings.parent, self.home.parent):
            path.mkdir(parents=True)
        (folder / "play.yml").write_text(PLAY)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Site, directory=folder / "site"))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def serve(self, version: str, *, digest: str = "") -> None:
        """Offer an agent of this version, which only prints the version."""
        code = f"def main():\n    print({version!r})\n".encode()
        scripts = b"[console_scripts]\ndrydock-agent = drydock_agent:main\n"
        about = f"Metadata-Version: 2.1\nName: drydock-agent\nVersion: {version}\n".encode()
        content = pack(version, {"drydock_agent/__init__.py": code}, {"METADATA": about, "entry_points.txt": scripts})
        name = f"drydock_agent-{version}-py3-none-any.whl"
        (self.backend / name).write_bytes(content)
        line = f"drydock-agent @ {self.url}/agent/{name}#sha256={digest or sha256(content).hexdigest()}\n"
        (self.backend / "requirements.txt").write_text(line)

    def play(self, **variables: Any) -> tuple[dict[str, int], set[str], str]:
        """Run the role. Return the numbers of its recap, the names of skipped tasks, and all output."""
        values = {
            "ansible_connection": "local",
            "ansible_python_interpreter": str(PROGRAMS / "python"),
            "drydock_agent_fleet_url": self.url,
            "drydock_agent_join_token": TOKEN,
            "drydock_agent_settings": {"DRYDOCK_AVAILABILITY_SET": "web"},
            "drydock_agent_service": False,
            "drydock_agent_home": str(self.home),
            "drydock_agent_settings_file": str(self.settings),
            "drydock_agent_unit_folder": str(self.settings.parent),
            **variables,
        }
        command = [program("ansible-playbook"), "-vvv", "--diff", "-i", "localhost,", "play.yml"]
        ended = subprocess.run(
            [*command, "--extra-vars", json.dumps(values)],
            cwd=self.folder,
            env=environment(self.folder),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        output = ended.stdout + ended.stderr
        recap = {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", output.rpartition("PLAY RECAP")[2])}
        assert (ended.returncode == 0) == (recap.get("failed") == 0), output
        parts = re.split(r"^(?:TASK|RUNNING HANDLER) \[(?:drydock_agent : )?(.*?)\] \**$", output, flags=re.MULTILINE)
        skipped = {name for name, text in zip(parts[1::2], parts[2::2], strict=True) if "\nskipping: " in text}
        return recap, skipped, output

    def version(self) -> str:
        return subprocess.check_output([self.home / "bin" / "drydock-agent"], text=True).strip()


def environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_ROLES_PATH": str(DEPLOY / "ansible" / "roles"),
        "ANSIBLE_NOCOLOR": "1",
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
    }


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def test_role_and_playbook_pass_the_strictest_profile(tmp_path: Path) -> None:
    # The program writes its cache next to what it checks.
    folder = shutil.copytree(DEPLOY / "ansible", tmp_path / "ansible")
    command = [program("ansible-lint"), "--offline", "--strict", "--profile", "production", "--nocolor"]
    ended = subprocess.run(
        command, cwd=folder, env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_second_run_changes_nothing_and_an_upgrade_verifies_the_checksum(machine: Machine) -> None:
    machine.serve("1.0")
    recap, skipped, output = machine.play()
    assert (recap["failed"], skipped) == (0, NOT_RUN), output
    assert TOKEN not in output
    assert machine.version() == "1.0"
    lines = [f"DRYDOCK_FLEET_URL={machine.url}", f"DRYDOCK_JOIN_TOKEN={TOKEN}", "DRYDOCK_AVAILABILITY_SET=web"]
    assert machine.settings.read_text().splitlines() == lines
    assert stat.S_IMODE(machine.settings.stat().st_mode) == 0o600
    unit = (machine.settings.parent / "drydock-agent.service").read_text()
    assert unit == UNIT.replace("/opt/drydock-agent", str(machine.home)).replace(SETTINGS_FILE, str(machine.settings))

    recap, _, output = machine.play()
    assert (recap["changed"], recap["failed"]) == (0, 0), output

    machine.serve("1.1", digest="0" * 64)
    recap, _, output = machine.play()
    assert recap["failed"] == 1 and "do not match" in output.lower()
    assert machine.version() == "1.0"
    # The failed installation is repeated.
    machine.serve("1.1")
    recap, skipped, _ = machine.play()
    assert (recap["failed"], skipped, machine.version()) == (0, NOT_RUN, "1.1")


def test_an_agent_without_a_checksum_is_refused(machine: Machine) -> None:
    recap, _, output = machine.play(drydock_agent_requirement="drydock-agent")
    assert recap["failed"] == 1 and "names no SHA-256" in output
    assert not machine.home.exists()
