"""The agent's packages: installed, upgraded, downgraded, removed and purged in a Debian root, the rpm by rpm itself."""

import json
import shutil
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote

import pytest

from fleet.domain.machines.enrolment import SETTINGS_FILE, UNIT, UNIT_FILE
from tests.packaging.debian import DebianRoot, build, need, run
from tests.processes import ROOT

pytestmark = [pytest.mark.long, pytest.mark.debian]

OLD, NEW = "0.2.0.dev1+gaaaaaaaaaaaa", "0.2.0.dev2+gbbbbbbbbbbbb"
AGENT = "/opt/drydock-agent/bin/drydock-agent"
SET = "DRYDOCK_FLEET_URL=https://drydock.example.org\nDRYDOCK_JOIN_TOKEN=join_a\n"
WANTED = "/etc/systemd/system/multi-user.target.wants/drydock-agent.service"
PACKAGED_UNIT = "/usr/lib/systemd/system/drydock-agent.service"
HOOK = "/etc/drydock-agent/hooks/prepare.d/20-mine"
STATE = "/var/lib/private/drydock-agent/credential.json"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Path]]:
    """Packages by version and kind."""
    need("mmdebstrap", "rpm", "rpm2cpio", "cpio")
    found = {}
    for version in (OLD, NEW):
        folder = tmp_path_factory.mktemp("sources")
        for name in ("agents", "requirements"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "CHANGELOG.md"):
            shutil.copy(ROOT / name, folder)
        (folder / "VERSION").write_text(version)
        built = tmp_path_factory.mktemp("packages")
        build("packages.py", built, root=folder)
        found[version] = {path.suffix[1:]: path for path in built.iterdir() if path.suffix != ".json"}
        assert {f"{path.name}.cdx.json" for path in found[version].values()} <= {path.name for path in built.iterdir()}
    return found


@pytest.fixture(scope="module")
def debian(packages: dict[str, dict[str, Path]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianRoot]:
    root = tmp_path_factory.mktemp("debian") / "root"
    build("debian_root.py", root, "python3", "python3-venv", "systemd")
    for version, kinds in packages.items():
        for kind, path in kinds.items():
            shutil.copy(path, root / "tmp" / f"{version}.{kind}")
    yield DebianRoot(root)
    shutil.rmtree(root)


def is_running_version(debian: DebianRoot, version: str) -> bool:
    """Whether the agent of this version is there, in the only environment, whose libraries fit each other."""
    assert len(debian.lists("/opt/drydock-agent.d/env.*")) == 1
    debian("/opt/drydock-agent/bin/pip", "check")
    debian("/opt/drydock-agent/bin/python", "-c", "import cryptography.x509, redis, requests")
    return debian(AGENT, "--version").strip() == version


def write(debian: DebianRoot, name: str, text: str, mode: int) -> None:
    path = debian.path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def test_debian_installs_upgrades_downgrades_removes_and_purges(debian: DebianRoot) -> None:
    # A machine with the agent of the install command: its settings, its unit, and a folder of that name.
    write(debian, SETTINGS_FILE, SET, 0o600)
    write(debian, UNIT_FILE, UNIT, 0o644)
    write(debian, AGENT, "#!/bin/sh\n", 0o755)
    debian("systemctl", "enable", "drydock-agent")
    debian("dpkg", "--install", f"/tmp/{OLD}.deb")
    assert is_running_version(debian, OLD)
    assert debian.path(PACKAGED_UNIT).read_text() == UNIT and not debian.path(UNIT_FILE).exists()
    assert debian.path(WANTED).readlink() in (Path(PACKAGED_UNIT), Path(PACKAGED_UNIT.removeprefix("/usr")))
    settings = debian.path(SETTINGS_FILE)
    assert (settings.read_text(), stat.S_IMODE(settings.stat().st_mode)) == (SET, 0o600)
    assert not debian.lists(f"{SETTINGS_FILE}?*")
    assert SETTINGS_FILE in debian("dpkg-query", "--show", "--showformat=${Conffiles}", "drydock-agent")
    write(debian, HOOK, "#!/bin/sh\n", 0o755)
    write(debian, STATE, "{}", 0o600)

    # An upgrade that fails halfway leaves the agent that there is, and is completed later.
    (ensurepip,) = debian.lists("/usr/lib/python3*/ensurepip")
    debian.path(ensurepip).rename(debian.path("/ensurepip"))
    debian("dpkg", "--install", f"/tmp/{NEW}.deb", status=1)
    assert is_running_version(debian, OLD)
    debian.path("/ensurepip").rename(debian.path(ensurepip))
    debian("dpkg", "--configure", "--pending")
    assert is_running_version(debian, NEW)
    debian("dpkg", "--install", f"/tmp/{OLD}.deb")
    assert is_running_version(debian, OLD) and settings.read_text() == SET

    # Another Python: its environment is made again.
    debian("dpkg-trigger", "--by-package=python3-minimal", "--no-await", "/usr/bin/python3")
    for name in debian.lists("/opt/drydock-agent/bin/python*"):
        debian.path(name).unlink()
    debian("dpkg", "--triggers-only", "--pending")
    assert is_running_version(debian, OLD)

    debian("dpkg", "--remove", "drydock-agent")
    assert not debian.lists("/opt/drydock-agent*") and not debian.path(PACKAGED_UNIT).exists()
    assert not debian.path(WANTED).is_symlink()
    assert all(debian.path(name).exists() for name in (SETTINGS_FILE, HOOK, STATE))
    # Its settings are there, so it would start.
    debian("dpkg", "--install", f"/tmp/{NEW}.deb")
    assert is_running_version(debian, NEW) and debian.path(WANTED).is_symlink() and settings.read_text() == SET
    debian("dpkg", "--purge", "drydock-agent")
    assert not settings.exists() and not debian.path(STATE).parent.exists() and debian.path(HOOK).exists()


def test_rpm_installs_upgrades_downgrades_and_removes(debian: DebianRoot) -> None:
    # Debian's rpm knows none of Debian's packages, and the package wants the Python of AppStream.
    python = debian.path("/usr/bin/python3.11")
    if not python.exists():
        python.symlink_to("python3")
    rpm = ["unshare", "--net", "rpm", "--root", debian.root, "--dbpath", "/var/lib/rpm", "--nodeps"]
    said = run([*rpm, "--install", debian.path(f"/tmp/{OLD}.rpm")])
    # Without an address it would only fail again and again.
    assert "enable --now drydock-agent" in said and not debian.path(WANTED).is_symlink()
    assert is_running_version(debian, OLD)
    settings = debian.path(SETTINGS_FILE)
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    settings.write_text(SET)
    debian("systemctl", "enable", "drydock-agent")
    write(debian, STATE, "{}", 0o600)
    for version, options in ((NEW, ["--upgrade"]), (OLD, ["--upgrade", "--oldpackage"])):
        run([*rpm, *options, debian.path(f"/tmp/{version}.rpm")])
        assert is_running_version(debian, version) and settings.read_text() == SET
        assert debian.path(WANTED).is_symlink() and not debian.lists(f"{SETTINGS_FILE}?*")
    run([*rpm, "--erase", "drydock-agent"])
    assert not debian.lists("/opt/drydock-agent*") and not debian.path(WANTED).is_symlink()
    assert debian.path(STATE).exists() and debian.path(f"{SETTINGS_FILE}.rpmsave").read_text() == SET


def test_both_packages_hold_the_same_and_state_it(packages: dict[str, dict[str, Path]], tmp_path: Path) -> None:
    held = {}
    for kind, path in packages[NEW].items():
        place = tmp_path / kind
        place.mkdir()
        if kind == "deb":
            run(["dpkg-deb", "--extract", path, place])
        else:
            run(["sh", "-c", f"rpm2cpio {path} | cpio --extract --quiet --make-directories"], cwd=place)
        files = {f"/{file.relative_to(place)}": file for file in place.rglob("*") if file.is_file()}
        wheels = {name.rpartition("/")[2]: file for name, file in files.items() if name.endswith(".whl")}
        held[kind] = {name: file.read_bytes() for name, file in files.items() if file not in wheels.values()}
        held[kind] |= {f"{kind} wheel {name.partition('-')[0]}": b"" for name in wheels}
        bill = path.with_name(f"{path.name}.cdx.json").read_text()
        assert files["/opt/drydock-agent.d/sbom.cdx.json"].read_text() == bill
        stated = {
            unquote(component["purl"].partition("?file_name=")[2]): component["hashes"][0]["content"]
            for component in json.loads(bill)["components"]
        }
        assert stated == {name: sha256(file.read_bytes()).hexdigest() for name, file in wheels.items()}
        assert not [name for name in wheels if name.startswith(("hatchling", "uv-"))]
    # The rpm has the wheels of its Python only, so bill and scripts differ.
    differing = {"/opt/drydock-agent.d/sbom.cdx.json"}
    deb, rpm = (
        {name: content for name, content in held[kind].items() if " wheel " not in name} for kind in ("deb", "rpm")
    )
    assert deb.keys() == rpm.keys() and {name for name in deb if deb[name] != rpm[name]} <= differing | {
        "/opt/drydock-agent.d/wheels/requirements.txt"
    }
    path = packages[NEW]["rpm"]
    assert "python3.11" in run(["rpm", "--query", "--package", "--requires", path]).splitlines()
    assert run(["rpm", "--query", "--package", "--configfiles", path]).split() == [SETTINGS_FILE]
    # A release is newer than its development versions.
    field = run(["dpkg-deb", "--field", packages[NEW]["deb"], "Version"]).strip()
    run(["dpkg", "--compare-versions", field, "lt", "0.2.0"])
    run(["dpkg", "--compare-versions", field, "gt", OLD.replace(".dev", "~dev")])
