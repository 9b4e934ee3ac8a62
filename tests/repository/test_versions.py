"""Each build has its own version: from the changelog and the commit, and without Git from the sources."""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tests.processes import ROOT

CHANGELOG = "# Changelog\n\n## Unreleased\n\n- New.\n\n## 0.4.2 (2026-01-02)\n\n- Old.\n"


@pytest.fixture(scope="module")
def version() -> Callable[[Path], str]:
    spec: Any = importlib.util.spec_from_file_location("version", ROOT / "requirements" / "version.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.version  # type: ignore[no-any-return]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    for name in ("agents", "fleet", "templates", "docs"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file.py").write_text("1\n")
    (folder / "pyproject.toml").write_text("")
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    return folder


def git(folder: Path, *words: str, at: str = "2026-11-26T12:00:00+02:00") -> str:
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_AUTHOR_DATE": at}
    identity |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_COMMITTER_DATE": at}
    command = ["git", "-c", "commit.gpgsign=false", *words]
    return subprocess.check_output(command, cwd=folder, env=os.environ | identity, text=True)


def commit(folder: Path, **times: str) -> None:
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "a change", **times)


def test_commit_is_a_later_development_version_of_the_next_release(version: Callable[[Path], str], tree: Path) -> None:
    commit(tree)
    first, revision = version(tree), git(tree, "rev-parse", "HEAD").strip()
    assert first == f"0.5.0.dev20261126100000+g{revision[:12]}" == version(tree)
    assert str(Version(first)) == first
    git(tree.parent, "clone", "--quiet", "--depth", "1", tree.as_uri(), "shallow")
    assert version(tree.parent / "shallow") == first
    commit(tree, at="2026-11-26T12:00:01+02:00")
    assert Version("0.4.2") < Version(first) < Version(version(tree)) < Version("0.5.0")


def test_changed_sources_are_another_version_and_other_files_are_not(
    version: Callable[[Path], str], tree: Path
) -> None:
    commit(tree)
    committed = version(tree)
    (tree / "docs" / "file.py").write_text("2\n")
    assert version(tree) == committed
    found = {committed}
    for number, name in enumerate(("agents/file.py", "fleet/new.py", "templates/file.py"), start=2):
        (tree / name).write_text(f"{number}\n")
        assert version(tree).startswith(f"{committed}.d") and version(tree) == str(Version(version(tree)))
        found.add(version(tree))
    assert len(found) == 4


def test_tree_without_git_has_a_version_of_its_content(version: Callable[[Path], str], tree: Path) -> None:
    without = version(tree)
    assert without.startswith("0.5.0.dev0+d") and without == str(Version(without))
    copy = Path(shutil.copytree(tree, tree.parent / "copy"))
    # The repository of a folder above is another one.
    commit(tree.parent)
    (copy / "fleet" / "site").mkdir()
    (copy / "fleet" / "site" / "index.html").write_text("built")
    assert version(copy) == without
    (copy / "fleet" / "file.py").write_text("2\n")
    assert version(copy) != without
    (copy / "VERSION").write_text("1.2.3\n")
    assert version(copy) == "1.2.3"


def test_release_has_the_version_of_its_heading(version: Callable[[Path], str], tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text(CHANGELOG.replace("## Unreleased", "## 0.5.0 (2026-12-01)"))
    commit(tree)
    assert version(tree) == "0.5.0"
    (tree / "fleet" / "file.py").write_text("2\n")
    assert version(tree).startswith("0.5.0+g")


def test_both_distributions_are_installed_with_one_version() -> None:
    assert installed("drydock-fleet") == installed("drydock-agent")
