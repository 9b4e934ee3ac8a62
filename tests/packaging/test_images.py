"""The images of `make images`: unpacked, and started as they state, without root and on a read-only disk."""

import json
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.namespaces import Namespace
from tests.packaging.debian import build, need
from tests.processes import PYTHON, ROOT, running, wait_for

pytestmark = [pytest.mark.long, pytest.mark.debian]

# In the namespace of an image: its disk read-only, except /tmp and its volumes; then its command as its user.
START = """
set -e
mount --bind {root} {root}
mount -t tmpfs tmpfs {root}/tmp
for volume in {volumes}; do mount -t tmpfs -o uid={user},mode=0700 tmpfs {root}$volume; done
mount -t proc proc {root}/proc
mount --rbind /dev {root}/dev
mount -o remount,bind,ro {root}
exec setpriv --no-new-privs chroot --userspec={user}:{user} {root} env -i {variables} {command}
"""
GET = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"


@dataclass(frozen=True)
class Unpacked:
    root: Path
    config: dict[str, Any]

    def command(self, words: list[str], **variables: str) -> list[str]:
        """The command line that runs `words` in the image."""
        user = self.config["User"].partition(":")[0]
        stated = [*self.config["Env"], *(f"{name}={value}" for name, value in variables.items())]
        script = START.format(
            root=self.root, user=user, volumes=" ".join(self.config.get("Volumes") or {}),
            variables=shlex.join(stated), command=shlex.join(words),
        )  # fmt: skip
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Unpacked]]:
    """Each image by name, unpacked as its manifest says."""
    need("mmdebstrap", "buildah", "setpriv", "kubectl")
    place = tmp_path_factory.mktemp("images")
    build("images.py", place / "built", shutil.which("kubectl") or "")
    found = {}
    for path in sorted((place / "built").glob("*.tar")):
        archive = place / path.stem
        with tarfile.open(path) as packed:
            packed.extractall(archive, filter="data")

        def blob(digest: str, archive: Path = archive) -> Path:
            return archive / "blobs" / digest.replace(":", "/")

        index = json.loads((archive / "index.json").read_text())
        manifest = json.loads(blob(index["manifests"][0]["digest"]).read_text())
        config = json.loads(blob(manifest["config"]["digest"]).read_text())["config"]
        root = place / f"root-{len(found)}"
        for layer in manifest["layers"]:
            with tarfile.open(blob(layer["digest"])) as packed:
                packed.extractall(root, filter="fully_trusted", numeric_owner=True)
        found[config["Labels"]["org.opencontainers.image.title"]] = Unpacked(root, config)
        bill = json.loads(path.with_suffix(".cdx.json").read_text())
        assert json.loads((root / "sbom.cdx.json").read_text()) == bill
    yield found
    shutil.rmtree(place)


def test_images_state_what_they_are_and_have_no_way_to_root(images: dict[str, Unpacked]) -> None:
    assert set(images) == {"drydock", "drydock-agent", "drydock-agent-kubectl"}
    for name, image in images.items():
        assert image.config["User"] == "10001:10001"
        labels = {key.rpartition(".")[2] for key in image.config["Labels"] if key.startswith("org.opencontainers")}
        assert labels >= {"title", "description", "version", "revision", "licenses"}
        components = {each["name"] for each in json.loads((image.root / "sbom.cdx.json").read_text())["components"]}
        assert {"libc6", "python3", "requests", f"drydock-{'fleet' if name == 'drydock' else 'agent'}"} <= components
        found = subprocess.check_output(["find", image.root, "-type", "f", "-perm", "/6000"], text=True)
        assert found == "" and list((image.root / "tmp").iterdir()) == []
        assert not (image.root / "usr/bin/apt").exists()
    assert list(images["drydock-agent"].config["Volumes"]) == ["/var/lib/drydock-agent"]


def test_the_image_for_kubernetes_runs_kubectl(images: dict[str, Unpacked]) -> None:
    image = images["drydock-agent-kubectl"]
    said = subprocess.check_output(image.command(["kubectl", "version", "--client", "--output=json"]), text=True)
    components = json.loads((image.root / "sbom.cdx.json").read_text())["components"]
    [billed] = [each["version"] for each in components if each["name"] == "kubectl"]
    assert json.loads(said)["clientVersion"]["gitVersion"] == billed
    assert shutil.which("kubectl", path=f"{images['drydock-agent'].root}/usr/bin") is None


@pytest.mark.real_time
def test_both_start_without_root_on_a_read_only_disk(images: dict[str, Unpacked], tmp_path: Path) -> None:
    server, agent = images["drydock"], images["drydock-agent"]
    settings = {"SECRET_KEY": "long and random enough for this image", "BASE_URL": "http://127.0.0.1:8000"}
    # There is no database and no Redis: the server reports that, and starts.
    settings |= {"DATABASE_URL": "postgresql://a@127.0.0.1:1/a", "REDIS_URL": "redis://127.0.0.1:1/0"}
    with ExitStack() as stack:
        namespace = stack.enter_context(Namespace())

        def start(command: list[str], name: str) -> Path:
            log = tmp_path / f"{name}.log"
            stack.enter_context(running(namespace.command(*command), environment={}, log=log, cwd=ROOT / "agents"))
            return log

        def get(address: str) -> str:
            command = namespace.command(PYTHON, "-c", GET, address)
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout

        server_log = start(server.command(server.config["Cmd"], **settings), "server")
        simulator = [PYTHON, "-m", "azure_simulator", "--listen", "127.0.0.1:8169"]
        start([*simulator, "--fleet", "azure_simulator/demo_fleet.json"], "simulator")
        address = {"DRYDOCK_IMDS_URL": "http://127.0.0.1:8169/vm/web-vm1", "DRYDOCK_FLEET_URL": settings["BASE_URL"]}
        agent_log = start(agent.command(agent.config["Cmd"], **address), "agent")
        wait_for(lambda: get("http://127.0.0.1:8000/healthz"), seconds=60, what="the server answers", every=0.5)
        assert "drydock_agent-" in get("http://127.0.0.1:8000/agent/SHA256SUMS"), server_log.read_text()
        wait_for(
            lambda: "scheduledevents" in get("http://127.0.0.1:8169/control/log"),
            seconds=60, what=f"the agent polls; it said {agent_log}", every=0.5,
        )  # fmt: skip
    for image in images.values():
        command = image.command(["sh", "-c", "id -u; touch /tmp/a && touch /a"])
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        assert ended.stdout == "10001\n" and "Read-only file system" in ended.stderr
