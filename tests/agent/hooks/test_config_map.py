"""Hooks in a ConfigMap that kubelet has mounted read-only: modes do not matter there, and everywhere else they do.

The adversary is a local user who can write to a hooks folder that the agent sees read-only, because of its unit's
sandbox or through a bind mount.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.processes import PYTHON

pytestmark = pytest.mark.deploy

CONFIG_MAP = "pods/1c7d9a52-04a3-4f3b-8f6b-6a54d7f0a2e1/volumes/kubernetes.io~configmap/drydock-agent-hooks"
LIST = """
import json, sys
from pathlib import Path
from drydock_agent.hooks.folder import FolderRefused, list_hooks
try:
    print(json.dumps([hook.refused for hook in list_hooks(Path(sys.argv[1]), "prepare")]))
except FolderRefused as error:
    print(json.dumps(str(error)))
"""
APART = ["unshare", "--mount", *([] if os.name == "posix" and os.geteuid() == 0 else ["--user", "--map-root-user"])]


def volume(folder: Path) -> Path:
    """Write a volume as kubelet does: links to a folder with the time, and modes that let everybody write."""
    real = folder / "..2026_11_26_13_20_00.123456789" / "prepare.d"
    real.mkdir(parents=True)
    (folder / "..data").symlink_to(real.parent.name)
    (folder / "prepare.d").symlink_to("..data/prepare.d")
    (real / "20-drain").write_text("#!/bin/sh\n")
    for path in (folder, real.parent, real, real / "20-drain"):
        path.chmod(0o777)
    return folder


def listed(source: Path, tmp_path: Path, *, options: str = "ro") -> object:
    """Mount the folder as the agent's hooks folder. Return why each hook is refused, or why the whole folder is."""
    hooks = tmp_path / "etc" / "hooks"
    hooks.mkdir(parents=True)
    mount = f'mount --bind "$1" "$2" && mount -o remount,bind,{options} "$2" && exec "$3" -c "$4" "$2"'
    command = [*APART, "sh", "-c", mount, "sh", source, hooks, PYTHON, LIST]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if "unshare" in ended.stderr:
        pytest.skip(f"no mount namespaces here: {ended.stderr.strip()}")
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    return answer.replace(str(hooks), "HOOKS") if isinstance(answer, str) else answer


def test_hooks_in_a_read_only_config_map_are_run_whatever_their_modes(tmp_path: Path) -> None:
    assert listed(volume(tmp_path / CONFIG_MAP), tmp_path) == [""]


REFUSED = "Nothing in HOOKS/prepare.d is run: HOOKS can be written by everybody."


@pytest.mark.parametrize(("folder", "options"), [(CONFIG_MAP, "rw"), ("srv/hooks", "ro")])
def test_a_writable_mount_and_another_read_only_folder_are_refused(folder: str, options: str, tmp_path: Path) -> None:
    assert listed(volume(tmp_path / folder), tmp_path, options=options) == REFUSED


def test_a_link_from_a_config_map_to_a_file_that_everybody_can_write_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o777)
    folder = volume(tmp_path / CONFIG_MAP)
    hook = folder / "prepare.d" / "20-drain"
    hook.unlink()
    hook.symlink_to(program)
    assert listed(folder, tmp_path) == ["20-drain is not run: it can be written by everybody."]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused_in_a_config_map_too(tmp_path: Path) -> None:
    folder = volume(tmp_path / CONFIG_MAP)
    os.chown(folder / "prepare.d" / "20-drain", 12345, -1)
    [refused] = listed(folder, tmp_path)  # type: ignore[misc]
    assert "belongs to user 12345" in refused
