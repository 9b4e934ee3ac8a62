"""Builds the images of server and agent: `python requirements/images.py [FOLDER [KUBECTL]]`, by default `dist/images`.

With the path of a kubectl for Linux, there is also an image of the agent with it, for nodes of Kubernetes: its version
must suit the cluster, so the one who builds chooses it.

Neither a daemon nor a registry is needed: buildah commits a Debian root file system from mmdebstrap, with Python and an
environment of the wheels of `make bundle`. The folder gets an OCI archive and a CycloneDX bill for each. The processes
run without root, and on a read-only disk. Needs root, and Debian or Ubuntu with a Python that the backend supports.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from email.message import Message
from email.parser import BytesParser, Parser
from pathlib import Path

import bundle
import debian_root
import dist
import sbom
from version import version

USER = 10001
# `essential` has no apt: nothing installs more into an image.
PACKAGES, VARIANT = ("python3", "ca-certificates", "tzdata"), "essential"
PYTHON = re.compile(r"\./usr/bin/python(3\.\d+)")
STATE = "/var/lib/drydock-agent"


@dataclass(frozen=True, slots=True)
class Image:
    """An image: what `buildah config` sets for this one only, and the distribution that it runs."""

    name: str
    distribution: str
    description: str
    command: str
    options: tuple[str, ...] = ()
    kubectl: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


AGENT = Image("drydock-agent", "agent", "The agent of Drydock", "drydock-agent run", ("--volume", STATE))
IMAGES = (
    Image(
        "drydock",
        "fleet",
        "Drydock: web, worker and beat",
        "drydock-fleet web --host 0.0.0.0 --port 8000",
        ("--port", "8000"),
        environment={"STATIC_ROOT": "/app/staticfiles"},
    ),
    AGENT,
)


def install(root: Path, image: Image, wheels: Path) -> None:
    """Install the distribution of the image into `/venv` of the root file system, from wheels only."""
    inside = root / "tmp" / "wheels"
    shutil.copytree(wheels, inside, ignore=shutil.ignore_patterns("*.tar.gz", "*.deb", "*.rpm"))
    shutil.copy(Path(sys.executable).with_name("uv"), inside)
    where = ["env", "--chdir=/tmp/wheels", "--ignore-environment", "PATH=/venv/bin:/usr/bin:/bin", "HOME=/tmp"]
    where = ["chroot", str(root), *where, *(f"{name}={value}" for name, value in image.environment.items())]
    uv = [*where, "./uv", "--quiet", "--offline", "--no-cache", "--no-config"]
    subprocess.run([*uv, "venv", "--python", "/usr/bin/python3", "/venv"], check=True)
    command = [*uv, "pip", "install", "--python", "/venv/bin/python", "--no-index", "--find-links", "."]
    command += ["--require-hashes", "--compile-bytecode", "--link-mode", "copy"]
    subprocess.run([*command, "-r", f"drydock-{image.distribution}.txt"], check=True)
    if "STATIC_ROOT" in image.environment:
        subprocess.run([*where, "drydock-fleet", "collectstatic", "--noinput", "--verbosity", "0"], check=True)
    shutil.rmtree(root / "tmp")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)


def prepare(root: Path) -> None:
    """Add the account of the processes and its state folder, and take away what an account could become root by."""
    with (root / "etc" / "passwd").open("a") as passwd:
        passwd.write(f"drydock:x:{USER}:{USER}::/nonexistent:/usr/sbin/nologin\n")
    with (root / "etc" / "group").open("a") as group:
        group.write(f"drydock:x:{USER}:\n")
    state = root / STATE.removeprefix("/")
    state.mkdir()
    shutil.chown(state, USER, USER)
    command = ["find", str(root), "-xdev", "-type", "f", "-perm", "/6000", "-exec", "chmod", "a-s", "{}", "+"]
    subprocess.run(command, check=True)


def bill(root: Path, image: Image) -> str:
    """Return the bill of the image: Debian's packages, and the distributions of `/venv`."""
    status = (root / "var" / "lib" / "dpkg" / "status").read_text()
    packages: list[Message] = [Parser().parsestr(paragraph) for paragraph in status.strip().split("\n\n")]
    system = debian_root.distribution()
    found = [sbom.debian_package(dict(package.items()), system) for package in packages]
    installed = (root / "venv").glob("lib/python*/site-packages/*.dist-info/METADATA")
    found += [sbom.library(BytesParser().parsebytes(path.read_bytes())) for path in installed]
    if image.kubectl:
        said = json.loads(subprocess.check_output([image.kubectl, "version", "--client", "--output=json"]))
        found.append(sbom.program("kubectl", said["clientVersion"]["gitVersion"], image.kubectl))
    return sbom.document(name=image.name, version=version(), kind="container", components=found)


def build(image: Image, root_tar: Path, wheels: Path, folder: Path, buildah: list[str]) -> None:
    """Build one image, and write its archive and its bill to the folder."""

    def run(*words: str) -> str:
        return subprocess.check_output([*buildah, *words], text=True).strip()

    container = run("from", "scratch")
    root = Path(run("mount", container))
    subprocess.run(
        ["tar", "--extract", "--numeric-owner", "--xattrs", "-C", str(root), "-f", str(root_tar)], check=True
    )
    prepare(root)
    install(root, image, wheels)
    if image.kubectl:
        program = shutil.copy(image.kubectl, root / "usr" / "bin" / "kubectl")
        Path(program).chmod(0o755)
    text = bill(root, image)
    (root / "sbom.cdx.json").write_text(text)
    environment = {"PATH": "/venv/bin:/usr/bin:/bin", "PYTHONUNBUFFERED": "1", **image.environment}
    labels = {
        "title": image.name,
        "description": image.description,
        "version": version(),
        "revision": version().partition("+g")[2],
        "licenses": "Apache-2.0",
    }
    command = ["config", "--user", f"{USER}:{USER}", "--cmd", image.command, "--workingdir", "/", *image.options]
    for name, value in environment.items():
        command += ["--env", f"{name}={value}"]
    for name, value in labels.items():
        command += ["--label", f"org.opencontainers.image.{name}={value}"]
    run(*command, container)
    run("umount", container)
    # A tag has no plus sign.
    tag = version().replace("+", "-")
    archive = folder / f"{image.name}-{tag}.tar"
    run("commit", "--quiet", "--format", "oci", "--rm", container, f"oci-archive:{archive}:{image.name}:{tag}")
    archive.with_suffix(".cdx.json").write_text(text)


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0] if arguments else dist.ROOT / "dist" / "images").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    images = IMAGES
    if len(arguments) > 1:
        kubectl = Path(arguments[1]).resolve(strict=True)
        images += (replace(AGENT, name="drydock-agent-kubectl", kubectl=kubectl),)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        debian_root.make(place / "root.tar", PACKAGES, VARIANT)
        with tarfile.open(place / "root.tar") as archive:
            python = next(found[1] for name in archive.getnames() if (found := PYTHON.fullmatch(name)))
        bundle.main([str(place / "bundle"), python])
        storage = [f"--root={place}/storage", f"--runroot={place}/run", "--storage-driver=vfs"]
        for image in images:
            build(image, place / "root.tar", place / "bundle", folder, ["buildah", *storage])
    dist.write_sums(folder)
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>12,} {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
