"""Import rules between packages: each imports only what its layer allows, read from source."""

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import AGENTS, FLEET, ROOT, SKIPPED, Imported, files, imports, module_name, shown, tree

WIRE = "drydock_agent.wire"
# Per layer: the other parts of the project that it may import in addition to itself.
ARROWS: dict[str, set[str]] = {
    "fleet.domain": set(),
    "fleet.models": {"fleet.domain"},
    "fleet.operations": {WIRE, "fleet.domain", "fleet.models"},
    "fleet.projections": {"fleet.domain", "fleet.models"},
    "fleet.wording": {"fleet.domain", "fleet.projections"},
    "fleet.gateway": {WIRE, "fleet.domain", "fleet.operations", "fleet.projections", "fleet.wording"},
    "fleet.relay": {"fleet.domain", "fleet.operations"},
    "fleet.dashboard": {"fleet.domain", "fleet.operations", "fleet.projections", "fleet.wording"},
    "fleet.api": {"fleet.domain", "fleet.operations", "fleet.projections", "fleet.wording"},
}
CORE_AND_EDGES = set(ARROWS)
# Parts that import the core and its edges. The core imports none of them; they import accounts, and no other annex.
ANNEXES = ("accounts", "notifications", "audit")
ARROWS |= {f"fleet.{annex}": CORE_AND_EDGES | {WIRE, "fleet.accounts"} for annex in ANNEXES}
# Folders without a layer: they may import everything, and no layer imports them.
OUTSIDE = {"embedded", "management", "migrations", "static"}
OURS = ("fleet", "drydock_agent", "azure_simulator")


def below(module: str, layer: str) -> bool:
    return module == layer or module.startswith(f"{layer}.")


def is_ours(module: str) -> bool:
    return any(below(module, package) for package in OURS)


def against(layer: str, found: list[Imported]) -> list[Imported]:
    """The imports of ours that the layer may not have. `from fleet import api` counts as `fleet` and as `fleet.api`."""
    allowed = {layer} | ARROWS[layer]
    ours = [item for item in found if is_ours(item.module) and item.module not in ("fleet", "drydock_agent")]
    return [item for item in ours if not any(below(item.module, name) for name in allowed)]


@pytest.mark.parametrize("layer", sorted(ARROWS))
def test_a_layer_imports_only_what_the_arrows_allow(layer: str) -> None:
    folder = ROOT / Path(*layer.split("."))
    wrong = [
        f"{shown(path)}:{item.line} imports {item.module}"
        for path in files(folder, ".py")
        for item in against(layer, imports(path))
    ]
    assert wrong == []


def test_every_folder_of_the_backend_has_its_arrows() -> None:
    folders = {path.name for path in FLEET.iterdir() if path.is_dir() and path.name not in SKIPPED}
    assert folders - OUTSIDE == {layer.removeprefix("fleet.") for layer in ARROWS}


def room_of(module: str) -> tuple[str, str] | None:
    """The layer and the room of `fleet.<layer>.<room>...`, where the room is a folder."""
    parts = module.split(".")
    is_room = len(parts) > 2 and parts[0] == "fleet" and (FLEET / parts[1] / parts[2]).is_dir()
    return (parts[1], parts[2]) if is_room else None


def test_no_two_rooms_import_each_other() -> None:
    arrows = {
        (room, other)
        for path in files(FLEET, ".py")
        for item in imports(path)
        if (room := room_of(module_name(path, ROOT))) and (other := room_of(item.module))
        if room != other and room[0] == other[0]
    }
    assert sorted(arrow for arrow in arrows if arrow[::-1] in arrows) == []


# The `cryptography` library reads certificates; the project must not reimplement it.
OF_CERTIFICATES = {"fleet/domain/machines/attestation.py", "fleet/domain/machines/pkcs7.py"}


def test_the_domain_imports_the_standard_library_and_itself() -> None:
    wrong = [
        f"{shown(path)}:{item.line} imports {item.module}"
        for path in files(FLEET / "domain", ".py")
        for item in imports(path)
        if item.module.split(".")[0] not in sys.stdlib_module_names and not below(item.module, "fleet.domain")
        if item.module != "fleet"
        if not (below(item.module, "cryptography") and shown(path) in OF_CERTIFICATES)
    ]
    assert wrong == []


def test_only_the_agent_imports_more_than_its_wire() -> None:
    wrong = [
        f"{shown(path)}:{item.line} imports {item.module}"
        for path in files(FLEET, ".py")
        for item in imports(path)
        if below(item.module, "drydock_agent") and not below(item.module, WIRE) and item.module != "drydock_agent"
    ]
    assert wrong == []


def test_agents_and_the_simulator_never_import_the_backend_or_one_another() -> None:
    wrong = []
    for path in files(AGENTS, ".py"):
        own = module_name(path, AGENTS).split(".")[0]
        for item in imports(path):
            top = item.module.split(".")[0]
            if top in (*OURS, "django") and top != own:
                wrong.append(f"{shown(path)}:{item.line} imports {item.module}")
    assert wrong == []


def test_the_wire_imports_the_standard_library_only() -> None:
    wire = AGENTS / "drydock_agent" / "wire.py"
    tops = {item.module.split(".")[0] for item in imports(wire)}
    assert tops <= set(sys.stdlib_module_names)


PAGE = (ROOT / "docs" / "dev" / "architecture.md").read_text(encoding="utf-8")


def rows(head: str) -> list[list[str]]:
    """The cells of the table below this line, without its heads and its rule."""
    table = PAGE.partition(f"| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_page_draws_the_arrows_that_are_checked() -> None:
    head = [WIRE, "fleet.domain", "fleet.models", "fleet.operations", "fleet.projections", "fleet.wording"]
    drawn: dict[str, set[str]] = {}
    for first, *cells in rows("may import → | agent's `wire` | domain | models | operations | projections | wording"):
        for name in re.findall(r"`(\w+)`", first):
            drawn[f"fleet.{name}"] = {layer for layer, cell in zip(head, cells, strict=True) if cell == "yes"}
    assert drawn.pop("fleet.drydock_agent") == {WIRE}
    assert drawn == {layer: ARROWS[layer] for layer in CORE_AND_EDGES}


# Inside the agent: packages follow the order in the docstring of `drydock_agent`, read from source.


AGENT = AGENTS / "drydock_agent"


def order_of_the_agent() -> list[str]:
    """Rooms and modules as the docstring lists them: each may import from those before it."""
    text = ast.get_docstring(tree(AGENT / "__init__.py")) or ""
    return re.findall(r"^    (\w+)  ", text, flags=re.MULTILINE)


def agent_room_of(module: str) -> str:
    """`drydock_agent.spool.store` is of `spool`; the package itself is of no room."""
    return f"{module}.".split(".")[1]


def upward(path: Path, top: Path, rooms: list[str]) -> list[str]:
    """The rooms that the file imports from and may not."""
    own = agent_room_of(module_name(path, top))
    allowed = {"", *rooms[: rooms.index(own) + 1]} if own else {""}
    found = [item.module for item in imports(path) if item.module.split(".")[0] == "drydock_agent"]
    return sorted({agent_room_of(module) for module in found} - allowed)


def test_every_package_is_in_the_order_once() -> None:
    here = [path.stem for path in AGENT.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    assert sorted(["__init__", *order_of_the_agent()]) == sorted(here)


def test_package_imports_only_from_packages_above_it() -> None:
    rooms = order_of_the_agent()
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


# Layers of `fleet/operations`: each package imports only packages below it, and drivers are the top layer.


OPERATIONS = FLEET / "operations"
MOST_FLOORS = 9
# They tie rooms together, so that no room needs to know them.
DRIVERS = {"reports", "reconcile"}
# Rooms say after their commit whom to wake, and take locks where there is no row: with imports of their own these two
# would close a circle.
GROUND = {"wake_up", "locks"}

Rooms = dict[str, set[str]]


def rooms(folder: Path = OPERATIONS, top: Path = ROOT) -> Rooms:
    """Each room (a module or a folder) with the rooms that it imports."""
    package = ".".join(folder.relative_to(top).parts) + "."
    found: Rooms = {path.stem: set() for path in folder.iterdir() if not path.name.startswith("__")}
    for path in files(folder, ".py"):
        room = path.relative_to(folder).parts[0].removesuffix(".py")
        for item in imports(path):
            other = item.module.removeprefix(package).split(".")[0]
            if item.module.startswith(package) and other in found and other != room:
                found[room].add(other)
    return found


def floors(imported: Rooms) -> list[set[str]]:
    """The rooms from the ground up: each stands above all that it imports. What is left out is in a circle."""
    below: set[str] = set()
    found: list[set[str]] = []
    while floor := {room for room, others in imported.items() if room not in below and others <= below}:
        found.append(floor)
        below |= floor
    return found


def test_no_rooms_import_each_other_in_a_circle() -> None:
    found = rooms()
    assert set(found) - set().union(*floors(found)) == set()


def test_there_are_few_floors() -> None:
    assert len(floors(rooms())) <= MOST_FLOORS


def test_no_room_imports_a_driver_and_the_ground_imports_no_room() -> None:
    found = rooms()
    assert found.keys() >= DRIVERS | GROUND
    assert {room for room, others in found.items() if others & DRIVERS} - DRIVERS == set()
    assert {room: sorted(found[room]) for room in GROUND if found[room]} == {}


def test_a_circle_is_seen(tmp_path: Path) -> None:
    house = tmp_path / "fleet" / "operations"
    (house / "sets").mkdir(parents=True)
    (house / "sets" / "join.py").write_text("from fleet.operations import events, locks\n", encoding="utf-8")
    (house / "events.py").write_text("from fleet.operations.sets.join import join\n", encoding="utf-8")
    (house / "locks.py").write_text("import enum\n", encoding="utf-8")
    found = rooms(house, tmp_path)
    assert found == {"sets": {"events", "locks"}, "events": {"sets"}, "locks": set()}
    assert floors(found) == [{"locks"}]
