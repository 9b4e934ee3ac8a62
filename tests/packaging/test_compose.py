"""Containers without an engine: every service's own command runs with its own variables on the embedded servers.

The test stands in for the container network: service names and published ports become loopback addresses. Everything
else is taken from docker-compose.yml word for word.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from drydock_agent.platforms import posix
from drydock_agent.settings.load import SPEC

from fleet.configuration import table
from fleet.embedded import Urls
from fleet.embedded.parent_death import bound
from fleet.embedded.valkey import binary
from tests.nginx import OF_COMPOSE, listening, of_compose, running_nginx
from tests.processes import PYTHON, ROOT, Process, answers, free_port, manage, running, wait_for

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: each for name, each in SERVICES.items() if "build" in each}
BACKEND_SETTINGS = set(table)
DEMO_SETTINGS = {name for name, each in table.items() if each.chapter == "The demo"}
FORMER_SETTINGS = {each.former for name, each in table.items() if each.former and name not in DEMO_SETTINGS}
AGENT_SETTINGS = {f"DRYDOCK_{name.upper()}" for name in SPEC}
AGENTS = sorted(name for name in OURS if name.startswith("agent-"))


def variables(name: str) -> dict[str, str]:
    """What is stated; a variable without a value is passed through."""
    return {name: value for name, value in OURS[name].get("environment", {}).items() if value is not None}


def test_every_variable_is_a_documented_setting() -> None:
    for name, each in OURS.items():
        known = AGENT_SETTINGS if each["image"] == "drydock-agent" else BACKEND_SETTINGS | FORMER_SETTINGS
        assert set(each.get("environment", {})) <= known, name
    agent_page = (ROOT / "docs" / "admin" / "agent.md").read_text()
    assert {name for name in AGENT_SETTINGS if f"`{name}`" not in agent_page} == set()
    stated = re.findall(r"^ENV (.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    named = {word.partition("=")[0] for line in stated for word in line.split()}
    assert named - BACKEND_SETTINGS == {"PATH", "PYTHONUNBUFFERED"}


def test_every_setting_can_be_set_from_outside() -> None:
    # The image states where static files are, the demo has its own settings, and DEBUG stays off in containers.
    others = DEMO_SETTINGS | {"STATIC_ROOT", "DEBUG"}
    for name in ("web", "worker", "beat", "migrate"):
        assert set(OURS[name]["environment"]) == (BACKEND_SETTINGS | FORMER_SETTINGS) - others


def test_images_are_slim_and_run_without_root() -> None:
    text = (ROOT / "Dockerfile").read_text()
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", text, re.MULTILINE)
    assert {base for base, _ in stages} == {"python:3.13-slim", "tools"}
    assert {each["build"]["target"] for each in OURS.values()} == {"agent", "backend"}
    for stage in ("agent", "backend"):
        body = text.partition(f" AS {stage}\n")[2].partition("\nFROM ")[0]
        assert "\nUSER drydock\n" in body
    # What the Dockerfile copies is let through, and the default command is that of the web server.
    for source in re.findall(r"^COPY ([^-\n].*) \S+$", text, re.MULTILINE):
        assert all((ROOT / path).exists() for path in source.split())
    assert yaml.safe_load(text.rpartition("\nCMD ")[2]) == OURS["web"]["command"]


def test_each_agent_keeps_its_state_on_a_volume_of_its_own() -> None:
    """A recreated container finds its credential there, and does not wait for a person."""
    assert AGENTS
    folder = posix.state_dir({})
    for name in AGENTS:
        assert OURS[name]["volumes"] == [f"{name}:{folder}"]
        assert name in COMPOSE["volumes"]
        assert "DRYDOCK_STATE_DIR" not in OURS[name]["environment"]
    # A named volume takes its owner from the image.
    body = (ROOT / "Dockerfile").read_text().partition(" AS agent\n")[2]
    assert f"install -d -o drydock {folder}" in body


def test_services_start_after_what_they_need_is_healthy() -> None:
    for name in ("web", "worker", "beat"):
        assert OURS[name]["depends_on"] == {
            "postgres": {"condition": "service_healthy"},
            "redis": {"condition": "service_healthy"},
            "migrate": {"condition": "service_completed_successfully"},
        }
    for name in ("postgres", "redis", "proxy", "web", "worker", "simulator"):
        assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    for name in ("proxy", "web"):
        # Without Postgres they still show what to do by hand.
        assert "/healthz" in " ".join(SERVICES[name]["healthcheck"]["test"])
    for name in (*AGENTS, "simulator"):
        assert OURS[name]["profiles"] == ["demo"]
        # Agents refuse plain HTTP to another host.
        assert OURS[name]["network_mode"] == "service:proxy"
        assert OURS[name]["depends_on"]["proxy"] == {"condition": "service_healthy"}
    assert len(AGENTS) == 6


def test_there_may_be_any_number_of_web_processes_and_workers() -> None:
    for name in ("web", "worker", "beat"):
        # A port and a name can be given to one container only.
        assert not {"ports", "container_name", "hostname", "volumes"} & set(SERVICES[name])
    assert SERVICES["proxy"]["depends_on"] == {"web": {"condition": "service_healthy"}}
    assert SERVICES["proxy"]["ports"] == ["127.0.0.1:8000:8000"]
    (mounted,) = SERVICES["proxy"]["volumes"]
    assert mounted == f"./{OF_COMPOSE.relative_to(ROOT)}:/etc/nginx/nginx.conf:ro"
    # What waits for an answer of Celery's asks for the one of its own container.
    assert "celery@$$(hostname)" in " ".join(SERVICES["worker"]["healthcheck"]["test"])


def test_every_container_is_confined() -> None:
    for name, each in SERVICES.items():
        confined = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
        assert {key: each[key] for key in confined} == confined, name
        assert "/tmp" in each["tmpfs"] and each["mem_limit"], name
        assert each["logging"] == {"driver": "json-file", "options": {"max-size": "20m", "max-file": "5"}}
    # Those that begin as root and become another user.
    assert {name for name, each in SERVICES.items() if "cap_add" in each} == {"postgres", "redis"}
    assert all(not {"SYS_ADMIN", "NET_ADMIN"} & set(SERVICES[name]["cap_add"]) for name in ("postgres", "redis"))


def test_redis_wants_the_password_that_the_others_have(containers: "Containers") -> None:
    port = free_port()
    program, *words = [containers.placed(word) for word in SERVICES["redis"]["command"]]
    assert program == "valkey-server"
    command = [str(binary()), *words, "--port", str(port), "--bind", "127.0.0.1"]
    with running(command, environment={}, log=containers.folder / "redis.log", cwd=containers.folder):
        wait_for(lambda: listening(port), seconds=10, what="Redis listens")
        with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        url = OURS["web"]["environment"]["REDIS_URL"]
        url = url.replace("${REDIS_PASSWORD:?set it in .env}", "pass").replace("redis:6379", f"127.0.0.1:{port}")
        with redis.Redis.from_url(url) as client:
            assert client.ping()
            assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"


class Containers:
    """Commands and variables of the file, with its network played on loopback: `8000` is the port of the proxy, and
    within a container of a web process that of this one.
    """

    def __init__(self, urls: Urls, chosen: Mapping[str, str], folder: Path) -> None:
        self.chosen = dict(chosen)
        self.folder = folder
        self.proxy = str(free_port())
        self.webs = [str(free_port()), str(free_port())]
        self.words = {
            "0.0.0.0": "127.0.0.1",
            "8169": str(free_port()),
            "postgresql://drydock:pass@postgres:5432/drydock": urls.database,
            "redis://:pass@redis:6379/0": urls.redis,
        }

    def placed(self, text: str, port: str = "") -> str:
        """The text with compose's variables filled in, and names and ports where they are here."""

        def fill(match: re.Match[str]) -> str:
            value = self.chosen.get(match["name"], "")
            if not value and match["how"] == ":?":
                raise AssertionError(f"{match['name']} has to be set: {match['rest']}")
            return value or (match["rest"] or "")

        filled = re.sub(r"(?<!\$)\$\{(?P<name>\w+)(?:(?P<how>:[-?])(?P<rest>[^}]*))?\}", fill, text)
        filled = filled.replace("$$", "$")
        for word, here in {**self.words, "8000": port or self.proxy}.items():
            filled = re.sub(rf"(?<![\w.]){re.escape(word)}(?![\w.])", lambda _, here=here: here, filled)
        return filled

    def environment(self, name: str) -> dict[str, str]:
        """Return the variables of a service: as in a container, only PATH comes from this process."""
        emptied = dict.fromkeys((*BACKEND_SETTINGS, *AGENT_SETTINGS), "")
        mine = {key: self.placed(str(value)) for key, value in variables(name).items()}
        # A variable without a value is what `.env` says.
        mine |= {key: self.chosen[key] for key in OURS[name]["environment"] if key in self.chosen and key not in mine}
        here = {"PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}"}
        if OURS[name]["image"] == "drydock":
            here["STATIC_ROOT"] = str(self.folder / "static")
        else:
            # In the image this is the default folder.
            here["DRYDOCK_STATE_DIR"] = str(self.folder / f"state-{name}")
        return {**emptied, **mine, **here}

    def command(self, name: str, port: str = "") -> list[str]:
        first, *rest = [self.placed(word, port) for word in OURS[name]["command"]]
        found = shutil.which(first, path=str(Path(PYTHON).parent))
        assert found is not None, f"{first} is not installed"
        return [found, *rest]

    def start(self, name: str, stack: ExitStack, port: str = "") -> Process:
        log = self.folder / f"{name}{port}.log"
        # The image's folder of the application is here that of the source tree.
        cwd = ROOT / Path(OURS[name].get("working_dir", "/app")).relative_to("/app")
        command, environment = self.command(name, port), self.environment(name)
        return stack.enter_context(running(command, environment=environment, log=log, cwd=cwd))

    def once(self, name: str, words: list[str], port: str = "") -> int:
        """Runs a command to its end with the variables of the service; its exit status."""
        found = shutil.which(words[0], path=f"{Path(PYTHON).parent}{os.pathsep}/bin")
        assert found is not None
        environment = {key: value for key, value in {**os.environ, **self.environment(name)}.items() if value}
        command = bound([found, *(self.placed(word, port) for word in words[1:])])
        with (self.folder / f"{name}-once.log").open("ab") as log:
            return subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=log, check=False).returncode

    def is_healthy(self, name: str, port: str = "") -> bool:
        return self.once(name, SERVICES[name]["healthcheck"]["test"][1:], port) == 0


@pytest.fixture
def containers(tmp_path: Path, new_database: Callable[..., str], own_urls: Urls) -> Containers:
    chosen = {**dict.fromkeys(("POSTGRES_PASSWORD", "REDIS_PASSWORD"), "pass"), "SECRET_KEY": "long and random " * 3}
    return Containers(Urls(database=new_database(), redis=own_urls.redis), chosen, tmp_path)


def static_files_collected(containers: Containers) -> bool:
    line = next(line for line in (ROOT / "Dockerfile").read_text().splitlines() if "collectstatic" in line)
    words = line.removeprefix("RUN ").split()
    return containers.once("web", [Path(words[0]).name, *words[1:]]) == 0


@pytest.mark.flow
@pytest.mark.real_time
@pytest.mark.long
def test_every_service_runs_with_its_own_command_and_variables_and_two_of_web(containers: Containers) -> None:
    # As the head of the file says for a simulated Azure.
    containers.chosen["ENROLMENT_POLICY"] = "token"
    assert static_files_collected(containers)
    assert containers.once("migrate", OURS["migrate"]["command"]) == 0
    with ExitStack() as stack:
        started = {f"web{port}": containers.start("web", stack, port) for port in containers.webs}
        started |= {name: containers.start(name, stack) for name in ("worker", "beat")}
        # Their checks are programs that take long to start.
        for port in containers.webs:
            wait_for(partial(containers.is_healthy, "web", port), seconds=60, what="a healthy web server", every=0.5)
        upstreams = [f"127.0.0.1:{port}" for port in containers.webs]
        configuration = of_compose(containers.folder, upstreams, int(containers.proxy))
        stack.enter_context(running_nginx(configuration, containers.folder, int(containers.proxy)))
        wait_for(lambda: answers(f"http://127.0.0.1:{containers.proxy}/readyz"), seconds=10, what="the proxy answers")
        wait_for(lambda: containers.is_healthy("worker"), seconds=60, what="a healthy worker", every=0.5)
        # The head of the file says how to come by a token.
        token = manage("create_join_token", environment=containers.environment("web")).split()[-1]
        containers.chosen["DRYDOCK_JOIN_TOKEN"] = token
        started["simulator"] = containers.start("simulator", stack)
        wait_for(lambda: containers.is_healthy("simulator"), seconds=30, what="a healthy simulator")
        started |= {name: containers.start(name, stack) for name in AGENTS}
        for name in AGENTS:
            wait_for(lambda name=name: "enrolled" in started[name].said(), seconds=30, what=f"{name} enrolled")
        assert [name for name, process in started.items() if process.child.poll() is not None] == []
        # All of them end by themselves when the engine asks.
        assert {name: process.stop(seconds=15) for name, process in started.items()} == dict.fromkeys(started, 0)
