"""Layers of `fleet/operations`: each package imports only packages below it, and drivers are the top layer."""

from pathlib import Path

from tests.architecture.sources import FLEET, ROOT, files, imports

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
