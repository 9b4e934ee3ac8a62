"""Pins what Drydock installs: `python requirements/lock.py` writes the files, `--check` says whether they are current.

Each file starts with the digest of what it was made from and of what it holds, so the check needs no network. Versions
that are already pinned stay; `--upgrade` asks for the newest.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
# The oldest that the backend runs on, and the oldest that the agent does.
BACKEND_PYTHON, AGENT_PYTHON = "3.11", "3.10"

# One uv for all: its file comes first and the others are resolved under it. `build.in` holds the build backend, because
# our two distributions go in without build isolation.
DEMO = ["pyproject.toml", "requirements/build.in", "requirements/uv.in", "--extra", "demo", "--group", "docs"]
OUTPUTS: dict[str, list[str]] = {
    "uv.txt": ["requirements/uv.in"],
    "base.txt": ["pyproject.toml", "requirements/build.in"],
    "agent.txt": [
        "agents/pyproject.toml",
        "requirements/build.in",
        "--extra",
        "redis",
        "--extra",
        "signed",
        "--python-version",
        AGENT_PYTHON,
    ],
    "docs.txt": ["--group", "docs"],
    "demo.txt": [*DEMO],
    "dev.txt": [*DEMO, "--extra", "dev"],
    # For an environment of its own: these are large, and only `make test-long` runs them.
    "deploy.txt": ["requirements/deploy.in"],
}
OPTIONS = [
    "--universal",
    # pip requires a pin that names the same extras as the requirement.
    "--no-strip-extras",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-header",
    "--no-annotate",
    "--no-emit-package=drydock-fleet",
    "--no-emit-package=drydock-agent",
    "--quiet",
]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def inputs_digest(name: str) -> str:
    """Digest of the command and of the dependency tables it reads; other parts of a pyproject.toml do not matter."""
    stated: list[object] = [OUTPUTS[name], OPTIONS]
    for source in ("pyproject.toml", "agents/pyproject.toml"):
        document = tomllib.loads((ROOT / source).read_text())
        project = document["project"]
        stated.append([project["requires-python"], project["dependencies"], project.get("optional-dependencies", {})])
        stated.append(document.get("dependency-groups", {}))
    own = [path.removeprefix("requirements/") for path in OUTPUTS[name] if path.endswith("/deploy.in")]
    stated.extend((FOLDER / source).read_text() for source in ("uv.in", "build.in", *own))
    return digest(json.dumps(stated, sort_keys=True))


def split(path: Path) -> tuple[str, str]:
    """The first line and the rest; two empty texts where there is no file."""
    if not path.exists():
        return "", ""
    head, _, body = path.read_text().partition("\n")
    return head, body


def head_of(name: str, body: str) -> str:
    return f"# made by `make lock`; inputs {inputs_digest(name)[:16]}, content {digest(body)[:16]}"


def versions_to_agree_on(name: str) -> str:
    """Every file agrees with the widest one on each version, and that one, which is made right after uv's, with uv's.

    On a Python that only the agent runs on, its libraries may be older.
    """
    wider = {"uv.txt": "", "dev.txt": "uv.txt"}.get(name, "dev.txt")
    text = split(FOLDER / wider)[1] if wider else ""
    pins = re.findall(r"^([^\s\[]+)(?:\[.+\])?(==[^\s;]+)(?: ; ([^\\\n]+?))? *\\?$", text, re.MULTILINE)
    newer = f"python_version >= '{BACKEND_PYTHON}'"
    return "".join(f"{package}{pin} ; {newer}{f' and ({marker})' if marker else ''}\n" for package, pin, marker in pins)


def write(name: str, upgrade: bool) -> None:
    target = FOLDER / name
    command = [sys.executable, "-m", "uv", "pip", "compile", *OUTPUTS[name], *OPTIONS, "-o", str(target)]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write(versions_to_agree_on(name))
        constraints.flush()
        command += ["-c", constraints.name, *(["--upgrade"] if upgrade else [])]
        subprocess.run(command, cwd=ROOT, check=True)
    body = target.read_text()
    if body.startswith("# made by"):
        body = body.partition("\n")[2]
    if "://" in body:
        raise SystemExit(f"{name} names an address; a requirement file must not say where packages come from.")
    target.write_text(head_of(name, body) + "\n" + body)


def main(arguments: list[str]) -> int:
    if "--check" not in arguments:
        for name in ("uv.txt", "dev.txt", "demo.txt", "docs.txt", "base.txt", "agent.txt", "deploy.txt"):
            write(name, "--upgrade" in arguments)
        return 0
    stale = [name for name in OUTPUTS if split(FOLDER / name)[0] != head_of(name, split(FOLDER / name)[1])]
    if stale:
        print(f"Not current: {', '.join('requirements/' + name for name in stale)}. Run `make lock` and commit them.")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
