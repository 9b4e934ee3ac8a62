"""The project's own files, found by walking, and Python files read with `ast`. Nothing is imported."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FLEET = ROOT / "fleet"
AGENTS = ROOT / "agents"

# What tools leave behind.
SKIPPED = {"__pycache__", "node_modules", "staticfiles", "test-artifacts", "htmlcov", "dist", "build", "site"}


@dataclass(frozen=True, slots=True)
class Imported:
    """One imported module by its full name."""

    module: str
    line: int


def files(folder: Path, *endings: str) -> list[Path]:
    """Files below the folder, sorted; hidden folders and leftovers of tools are passed over."""
    found = []
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith(".") or part in SKIPPED or part.endswith(".egg-info") for part in parts[:-1])
        if path.is_file() and not hidden and (not endings or path.suffix in endings):
            found.append(path)
    return sorted(found)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def module_name(path: Path, top: Path) -> str:
    """`fleet/api/views.py` below the repository is `fleet.api.views`; a package is named without `__init__`."""
    parts = list(path.relative_to(top).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path) -> list[Imported]:
    """Everything the file imports; `from a import b` counts as `a` and as `a.b`. Ruff forbids relative imports."""
    return list(_imports(tree(path)))


def _imports(node: ast.AST) -> Iterator[Imported]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Imported(alias.name, child.lineno) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield Imported(child.module or "", child.lineno)
            yield from (Imported(f"{child.module}.{alias.name}", child.lineno) for alias in child.names)
        elif not isinstance(child, ast.expr):
            yield from _imports(child)


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
