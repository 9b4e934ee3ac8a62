"""Import rules inside the agent: packages follow the order in the docstring of `drydock_agent`, read from source."""

import ast
import re
from pathlib import Path

from tests.architecture.sources import AGENTS, files, imports, module_name, shown, tree

AGENT = AGENTS / "drydock_agent"


def order() -> list[str]:
    """Rooms and modules as the docstring lists them: each may import from those before it."""
    text = ast.get_docstring(tree(AGENT / "__init__.py")) or ""
    return re.findall(r"^    (\w+)  ", text, flags=re.MULTILINE)


def room_of(module: str) -> str:
    """`drydock_agent.spool.store` is of `spool`; the package itself is of no room."""
    return f"{module}.".split(".")[1]


def upward(path: Path, top: Path, rooms: list[str]) -> list[str]:
    """The rooms that the file imports from and may not."""
    own = room_of(module_name(path, top))
    allowed = {"", *rooms[: rooms.index(own) + 1]} if own else {""}
    found = [item.module for item in imports(path) if item.module.split(".")[0] == "drydock_agent"]
    return sorted({room_of(module) for module in found} - allowed)


def test_every_package_is_in_the_order_once() -> None:
    here = [path.stem for path in AGENT.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    assert sorted(["__init__", *order()]) == sorted(here)


def test_package_imports_only_from_packages_above_it() -> None:
    rooms = order()
    wrong = [
        f"{shown(path)} imports from {room}" for path in files(AGENT, ".py") for room in upward(path, AGENTS, rooms)
    ]
    assert wrong == []


def test_an_arrow_upward_is_seen(tmp_path: Path) -> None:
    folder = tmp_path / "drydock_agent" / "hooks"
    folder.mkdir(parents=True)
    sample = folder / "sample.py"
    sample.write_text(
        "from drydock_agent.backend import client\nfrom drydock_agent import wire\nimport drydock_agent.redis.parts\n"
    )
    assert upward(sample, tmp_path, ["wire", "hooks", "backend", "redis"]) == ["backend", "redis"]
