"""Import rules between packages: each imports only what its layer allows, read from source."""

import sys
from pathlib import Path

import pytest

from tests.architecture.sources import AGENTS, FLEET, ROOT, SKIPPED, Imported, files, imports, module_name, shown

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
